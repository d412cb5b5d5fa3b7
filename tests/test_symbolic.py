"""Closed forms derived by SymPy against the numerical functions, formulas written by hand, and the seed's own recipe."""

import dataclasses
import importlib
import inspect
import sys

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import sympy

import jaxdyn
from helpers import once, random_chain, random_inertia, random_mechanism, random_state, relative
from jaxdyn import Coupling, Friction, Topology, Transmission, symbolic, textbook
from jaxdyn.symbolic.expressions import exact

TOLERANCE = 1e-12
SYSTEMS = ("planar_2r_point_masses", "planar_elbow", "spherical_rrp", "pendulum_3dof")
VALUES = {"m1": 1.7, "m2": 0.9, "l1": 0.6, "l2": 0.8, "lc1": 0.35, "lc2": 0.45, "i1": 0.06, "i2": 0.04, "g": 9.7}
_equations = {}


def equations(system):
    """Derived once for all tests."""
    if system not in _equations:
        _equations[system] = symbolic.derive(getattr(textbook, system)(), symbolic.textbook_leaves(system))
    return _equations[system]


def numerical(system):
    """The chain with the values, and the values of the letters that its equations have."""
    build = getattr(textbook, system)
    taken = inspect.signature(build).parameters
    chain = build(gravity=VALUES["g"], **{k: v for k, v in VALUES.items() if k in taken})
    return chain, {x.name: VALUES[x.name] for x in equations(system).parameters}


@once
def terms(chain, q, qd, qdd):
    """tau, M, the Christoffel-consistent C, C qd and g of the numerical functions, and the energies."""
    return {
        "tau": jaxdyn.inverse_dynamics(chain, q, qd, qdd),
        "M": jaxdyn.mass_matrix(chain, q),
        "C": jaxdyn.coriolis_matrix(chain, q, qd),
        "h": jaxdyn.coriolis_force(chain, q, qd),
        "g": jaxdyn.gravity_force(chain, q),
        "K": jaxdyn.kinetic_energy(chain, q, qd),
        "P": jaxdyn.potential_energy(chain, q),
    }


def vanishes(x):
    """True if an expression is zero, by complex exponentials, unlike the library's simplification."""
    return sympy.expand(x.rewrite(sympy.exp), power_exp=True) == 0


def evaluate(f, q, qd, qdd, values):
    c = f.C(q, qd, **values)
    return {"tau": f.tau(q, qd, qdd, **values), "M": f.M(q, **values), "h": c @ qd, "g": f.g(q, **values)}


def check(found, reference):
    for name, x in found.items():
        assert relative(x, reference[name]) < TOLERANCE, name


def test_planar_2r_is_the_corrected_textbook_formula():
    e = equations("planar_2r_point_masses")
    m1, m2, l1, l2, g = sympy.symbols("m1 m2 l1 l2 g", positive=True)
    (q1, q2), (w1, w2), (a1, a2) = e.q, e.qd, e.qdd
    c1, c2, s2, c12 = sympy.cos(q1), sympy.cos(q2), sympy.sin(q2), sympy.cos(q1 + q2)
    m11, m12 = m1 * l1**2 + m2 * (l1**2 + 2 * l1 * l2 * c2 + l2**2), m2 * (l1 * l2 * c2 + l2**2)
    h = [-m2 * l1 * l2 * s2 * (2 * w1 * w2 + w2**2), m2 * l1 * l2 * w1**2 * s2]
    gravity = [(m1 + m2) * l1 * g * c1 + m2 * g * l2 * c12, m2 * g * l2 * c12]
    zero = sympy.zeros(2, 1)
    assert sympy.simplify(e.M - sympy.Matrix([[m11, m12], [m12, m2 * l2**2]])) == sympy.zeros(2, 2)
    assert sympy.simplify(e.C * sympy.Matrix([w1, w2]) - sympy.Matrix(h)) == zero
    assert sympy.simplify(e.g - sympy.Matrix(gravity)) == zero
    tau = [m11 * a1 + m12 * a2 + h[0] + gravity[0], m12 * a1 + m2 * l2**2 * a2 + h[1] + gravity[1]]
    assert sympy.simplify(e.tau - sympy.Matrix(tau)) == zero
    assert sympy.simplify(e.M.det() - m2 * l1**2 * l2**2 * (m1 + m2 * s2**2)) == 0
    assert e.parameters == (g, l1, l2, m1, m2)


CASES = [SYSTEMS[0], *(pytest.param(system, marks=pytest.mark.nightly) for system in SYSTEMS[1:])]


@pytest.mark.parametrize("system", CASES)
def test_textbook_systems_equal_the_numerical_functions(system):
    e, (chain, values) = equations(system), numerical(system)
    state = random_state(chain.n, 3)
    reference = terms(chain, *state)
    check(once(lambda *x: evaluate(e.lambdify("jax"), *x))(*state, values), reference)
    arrays = [np.asarray(x) for x in state]
    f = e.lambdify("numpy")
    check(evaluate(f, *arrays, values), reference)
    assert isinstance(f.M(arrays[0], **values), np.ndarray)
    at = {**dict(zip((*e.q, *e.qd), np.concatenate(arrays[:2]).tolist(), strict=True))}
    at |= {x: values[x.name] for x in e.parameters}
    christoffel = np.array(e.christoffel().subs(at).tolist(), float)
    assert np.abs(christoffel - reference["C"]).max() < TOLERANCE
    assert abs(e.kinetic_energy.subs(at) - float(reference["K"])) < TOLERANCE
    assert abs(e.potential_energy.subs(at) - float(reference["P"])) < TOLERANCE


@pytest.mark.parametrize("system", CASES)
def test_mass_rate_less_twice_c_is_skew_symmetric(system):
    e = equations(system)
    rate = sum((e.M.diff(x) * xd for x, xd in zip(e.q, e.qd, strict=True)), start=sympy.zeros(*e.M.shape))
    skew = rate - 2 * e.C
    assert all(vanishes(x) for x in skew + skew.T)
    assert not all(vanishes(x) for x in rate)
    christoffel = rate - 2 * e.christoffel()
    assert all(vanishes(x) for x in christoffel + christoffel.T)


def test_zeros_and_sums_of_angles_are_found():
    e = equations("pendulum_3dof")
    assert e.M[0, 1] == e.M[0, 2] == 0 and e.C[2, 2] == 0
    assert e.M.atoms(sympy.cos) == {sympy.cos(e.q[1]), sympy.cos(e.q[2]), sympy.cos(e.q[1] + e.q[2])}
    rrp = equations("spherical_rrp")
    assert rrp.M.is_diagonal() and rrp.g[0] == 0
    assert rrp.M[2, 2] == sympy.Symbol("m2", positive=True)


def seed_coriolis_matrix(chain, q, qd):
    """C of the decomposition as the seed writes it, in base axes and with numbers, from poses and their derivatives."""
    poses = lambda x: jaxdyn.forward_kinematics(chain, x)
    pi, h = chain.inertia, chain.inertia[:, 1:4]
    com = h / pi[:, :1]

    def centres(x):
        t = poses(x)
        return t[:, :3, 3] + jnp.einsum("nij,nj->ni", t[:, :3, :3], com)

    def angular(x):  # of every link: the vector of dR/dq_j R^T
        r, dr = poses(x)[:, :3, :3], jax.jacfwd(poses)(x)[:, :3, :3]
        w = jnp.einsum("nabk,ncb->nkac", dr, r)
        return jnp.stack([w[:, :, 2, 1], w[:, :, 0, 2], w[:, :, 1, 0]], 1)

    jv, djv = jax.jvp(jax.jacfwd(centres), (q,), (qd,))
    jw, djw = jax.jvp(angular, (q,), (qd,))
    total = jnp.zeros((chain.n, chain.n))
    for i in range(chain.n):
        o = pi[i]
        about_origin = jnp.array([[o[4], o[5], o[7]], [o[5], o[6], o[8]], [o[7], o[8], o[9]]])
        central = about_origin - o[0] * (com[i] @ com[i] * jnp.eye(3) - jnp.outer(com[i], com[i]))
        r = poses(q)[i, :3, :3]
        inertia = r @ central @ r.T
        gyroscopic = jnp.cross((jw[i] @ qd)[None, :], (inertia @ jw[i]).T).T
        total += jw[i].T @ (inertia @ djw[i] + gyroscopic) + o[0] * jv[i].T @ djv[i]
    return total


@pytest.mark.parametrize(("joints", "n"), [("mixed", 2), pytest.param("helical", 2, marks=pytest.mark.nightly)])
def test_closed_forms_of_random_chains_equal_the_numerical_functions(joints, n):
    chain, state = random_chain(n, 5, joints), random_state(n, 5)
    e = symbolic.derive(chain)
    reference = terms(chain, *state)
    f = e.lambdify("numpy")
    arrays = [np.asarray(x) for x in state]
    check(evaluate(f, *arrays, {}), reference)
    if joints == "helical":
        check(evaluate(symbolic.derive(chain, simplify=False).lambdify("numpy"), *arrays, {}), reference)
    at = dict(zip((*e.q, *e.qd), np.concatenate(arrays[:2]).tolist(), strict=True))
    assert relative(np.array(e.christoffel().subs(at).tolist(), float), reference["C"]) < TOLERANCE


@pytest.mark.ci
def test_it_is_the_coriolis_matrix_of_the_decomposition():
    rng, state = np.random.default_rng(5), random_state(3, 5)
    chain = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (3, 1, 1)),
        translation=[[0, 0, 0.2], [0.3, 0, 0], [0, 0.1, 0.4]],
        screw=np.eye(3, 6)[::-1],
        inertia=[random_inertia(rng).round(3) for _ in range(3)],
    )
    f, reference = symbolic.derive(chain).lambdify("numpy"), terms(chain, *state)
    check(evaluate(f, *map(np.asarray, state), {}), reference)
    c = f.C(*map(np.asarray, state[:2]))
    assert relative(c, once(seed_coriolis_matrix)(chain, *state[:2])) < TOLERANCE
    # the Christoffel-consistent one is another as soon as three independent axes turn a link
    assert relative(c, reference["C"]) > 1e-2


@pytest.mark.nightly
def test_closed_forms_of_trees_equal_the_numerical_functions():
    rng = np.random.default_rng(2)
    chain = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (3, 1, 1)),
        translation=[[0, 0, 0], [0.5, 0, 0.1], [-0.3, 0.2, 0]],
        screw=[[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]],
        inertia=[random_inertia(rng) for _ in range(3)],
        armature=[0.1, 0, 0.2],
        topology=Topology([-1, 0, 0]),
    )
    e, state = symbolic.derive(chain), random_state(3, 7)
    check(evaluate(e.lambdify("numpy"), *map(np.asarray, state), {}), terms(chain, *state))
    assert e.M[1, 2] == 0 and not e.C[1, :].has(e.qd[2])


@pytest.mark.ci
def test_any_leaf_may_be_an_expression():
    angle, pitch, length, mass, rotor = sympy.symbols("angle pitch length mass rotor", positive=True)
    ca, sa = sympy.cos(angle), sympy.sin(angle)

    def leaves(angle, pitch, length, mass, rotor, cos, sin, row):
        turn = [[1, 0, 0], [0, cos(angle), -sin(angle)], [0, sin(angle), cos(angle)]]
        return {
            "rotation": [np.eye(3).tolist(), turn],
            "translation": [[0, 0, 0], [length, 0, 0]],
            "screw": [[0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 0, pitch]],
            "inertia": [[1, 0, 0, 0, 0.2, 0, 0.2, 0, 0, 0.1], row],
            "armature": [rotor, 2 * rotor],
        }

    body = symbolic.ten_parameters(mass, [0, length / 2, 0], [[0.3, 0.01, 0], [0.01, 0.3, 0], [0, 0, 0.3]])
    given = leaves(angle, pitch, length, mass, rotor, lambda _: ca, lambda _: sa, body)
    at = {angle: 0.4, pitch: 0.1, length: 0.7, mass: 1.3, rotor: 0.05}
    row = [float(x.subs(at)) for x in body]
    chain = jaxdyn.make_chain(**leaves(*at.values(), np.cos, np.sin, row))
    state = random_state(2, 4)
    reference = terms(chain, *state)
    arrays, values = [np.asarray(x) for x in state], {x.name: v for x, v in at.items()}
    f = symbolic.derive(chain, given).lambdify("numpy")
    check(evaluate(f, *arrays, values), reference)
    single = {name: {(1, 0): length} if name == "translation" else leaf for name, leaf in given.items()}
    single["armature"] = sympy.Matrix([rotor, 2 * rotor])
    f = symbolic.derive(chain, single, simplify=False).lambdify("numpy")
    check(evaluate(f, *arrays, values), reference)


@pytest.mark.ci
def test_rotors_couplings_and_a_tilted_base_are_derived():
    """The remotely driven elbow of Spong, Hutchinson & Vidyasagar: absolute angles, on a wall, with motors behind gears."""
    chain, given = numerical("planar_elbow")[0], dict(symbolic.textbook_leaves("planar_elbow"))
    r, j = sympy.symbols("r j", positive=True)
    chain = dataclasses.replace(
        chain,
        base_pose=jnp.asarray([[0.0, 0, 1, 0.1], [0.8, 0.6, 0, 0.2], [-0.6, 0.8, 0, 0], [0, 0, 0, 1]]),
        transmission=Transmission(
            matrix=jnp.diag(jnp.array([20.0, 50.0])),
            rotor_inertia=jnp.array([2e-4, 1e-4]),
            friction=Friction(viscous=jnp.zeros(2), coulomb=jnp.zeros(2), coulomb_velocity=jnp.ones(2)),
        ),
        coupling=Coupling(matrix=jnp.array([[1.0, 0], [-1, 1]]), offset=jnp.array([0.3, np.pi / 2])),
    )
    given |= {"transmission.matrix": {(0, 0): r}, "transmission.rotor_inertia": {0: j}}
    e, state = symbolic.derive(chain, given), random_state(2, 9)
    values = {**{x.name: VALUES[x.name] for x in e.parameters if x.name in VALUES}, "r": 20.0, "j": 2e-4}
    check(evaluate(e.lambdify("numpy"), *map(np.asarray, state), values), terms(chain, *state))
    q1, q2 = e.q
    assert e.M.has(r) and e.M[0, 1].has(sympy.sin(q1 - q2)) and e.M[0, 1].atoms(sympy.sin) == {sympy.sin(q1 - q2)}


@pytest.mark.ci
def test_functions_of_jax_batch_differentiate_and_follow_the_dtype():
    e, (chain, values) = equations("planar_elbow"), numerical("planar_elbow")
    f, state = e.lambdify(), random_state(2, 8)
    batch = [jnp.stack([x, 2 * x, -x]) for x in state]
    together = jax.jit(jax.vmap(lambda *x: f.tau(*x, **values)))(*batch)
    assert relative(together, jax.jit(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(chain, *x)))(*batch)) < TOLERANCE
    slope = jax.jit(jax.jacrev(lambda m: f.tau(*state, **{**values, "m2": m})))(values["m2"])
    more = f.tau(*state, **{**values, "m2": values["m2"] + 1}) - f.tau(*state, **values)
    assert relative(slope, more) < 1e-11  # the torque is linear in a mass
    gravity = jax.jit(jax.jacfwd(lambda q: f.g(q, **values)))(state[0])
    assert relative(gravity, jax.jit(jax.hessian(lambda q: jaxdyn.potential_energy(chain, q)))(state[0])) < 1e-11
    single = [x.astype(jnp.float32) for x in state]
    assert f.tau(*single, **values).dtype == f.M(single[0], **values).dtype == jnp.float32
    constant = symbolic.derive(textbook.cartesian_two_link()).lambdify()
    assert constant.M(single[0]).dtype == jnp.float32 and constant.C(*single[:2]).shape == (2, 2)
    assert symbolic.derive(textbook.cartesian_two_link()).lambdify("numpy").g([0, 0]).tolist() == [19.62, 0.0]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.5, "1/2"),
        (9.81, "981/100"),
        (1 / 3, "1/3"),
        (-1.0, "-1"),
        (np.sqrt(0.5), "sqrt(2)/2"),
        (-np.cos(np.pi / 6), "-sqrt(3)/2"),
        (np.pi / 4, "pi/4"),
        (np.float32(0.1), "1/10"),
        (np.float32(np.sqrt(0.5)), "sqrt(2)/2"),
        (0.0, "0"),
        (1e-20, "1/100000000000000000000"),
        (0.1234567890123457, "1234567890123457/10000000000000000"),
    ],
)
def test_numbers_become_the_constants_they_stand_for(x, expected):
    x = x if isinstance(x, np.floating) else np.float64(x)
    found = exact(x)
    assert found == sympy.sympify(expected)
    assert abs(float(found) - x) <= 4 * np.finfo(type(x)).eps * abs(x)


def test_equations_are_printed_by_entry_and_as_latex():
    e = equations("planar_elbow")
    lines = dict(line.split(" = ") for line in str(e).splitlines())
    assert list(lines) == ["M11", "M12", "M22", "C11", "C12", "C21", "C22", "g1", "g2"]
    assert lines["C11"] == "-l1*lc2*m2*qd2*sin(q2)" and lines["C22"] == "0"
    text = e.latex()
    assert r"- l_{1} l_{c2} m_{2} \dot{q}_{2} s_{2}" in text and r"g l_{c2} m_{2} c_{12}" in text
    assert r"\cos{\left(q_{1} + q_{2} \right)}" in e.latex(short=False)
    named = symbolic.derive(textbook.cartesian_two_link(), coordinates=("x", "y"))
    assert [x.name for x in (*named.q, *named.qd, *named.qdd)] == ["x", "y", "x_dot", "y_dot", "x_ddot", "y_ddot"]


def test_errors_say_what_is_wrong(request):
    chain = textbook.planar_2r_point_masses()
    with pytest.raises(jaxdyn.ModelError, match=r"joint 'joint2' has the screw .* chains with revolute"):
        symbolic.derive(dataclasses.replace(chain, screw=chain.screw.at[1].set(0.0)))
    for leaves, message in (
        ({"mass": [1, 1]}, "unknown leaf 'mass'; the leaves that expressions can replace are rotation, translation"),
        ({"inertia": [[1, 2]]}, r"shape \(1, 2\)"),
        ({"translation": {(2, 0): 1}}, r"no entry \(2, 0\)"),
        ({"gravity": {1: sympy.Symbol("q1")}}, "'q1' is used twice"),
        ({"inertia": {(0, 0): 0, (0, 1): "h"}}, "link 'link1' has no mass"),
    ):
        with pytest.raises(jaxdyn.ModelError, match=message):
            symbolic.derive(chain, leaves)
    with pytest.raises(jaxdyn.ModelError, match="3 coordinate names are given for 2 joints"):
        symbolic.derive(chain, coordinates=("a", "b", "c"))
    with pytest.raises(jaxdyn.ModelError, match="joint 'joint1' is spherical or free"):
        symbolic.derive(random_mechanism(1, coupled=False))
    with pytest.raises(jaxdyn.ModelError, match="derive accepts one robot"):
        symbolic.derive(jax.tree.map(lambda x: jnp.stack([x, x]), chain))
    with pytest.raises(jaxdyn.ModelError, match="no unknown symbols"):
        symbolic.derive(chain).regressor()
    with pytest.raises(jaxdyn.ModelError, match="unknown system 'biped'; the systems are cartesian_two_link"):
        symbolic.textbook_leaves("biped")
    e = equations("planar_2r_point_masses")
    jaxtyping.config.update("jaxtyping_disable", True)  # users have no type checker running: the message is for them
    request.addfinalizer(lambda: jaxtyping.config.update("jaxtyping_disable", False))
    with pytest.raises(jaxdyn.ModelError, match="not 'torch'"):
        e.lambdify("torch")
    f, q = e.lambdify("numpy"), np.zeros(2)
    with pytest.raises(jaxdyn.ModelError, match="g, l1, l2, m1, m2: missing"):
        f.M(q)
    with pytest.raises(jaxdyn.ModelError, match="m3: not among"):
        f.M(q, g=1, l1=1, l2=1, m1=1, m2=1, m3=1)
    with pytest.raises(
        jaxdyn.ModelError, match=r"requires 1 state arrays of \[2\] numbers, not of the shapes \[\(3,\)\]"
    ):
        f.M(np.zeros(3), g=1, l1=1, l2=1, m1=1, m2=1)
    with pytest.raises(jaxdyn.ModelError, match="requires 2 state arrays"):
        f.C(q, g=1, l1=1, l2=1, m1=1, m2=1)


def test_without_sympy_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jaxdyn.symbolic")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(ImportError, match=r'pip install "jaxdyn\[symbolic\]"'):
        importlib.import_module("jaxdyn.symbolic")
