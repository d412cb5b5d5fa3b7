"""Trees, floating bases, spherical joints, couplings and transmissions: identities, Pinocchio, gradients, motion."""

import dataclasses
import functools
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import jaxdyn
from helpers import (
    derivatives,
    directions,
    mechanism_state,
    once,
    random_chain,
    random_inertia,
    random_links,
    random_mechanism,
    relative,
)
from jaxdyn.dynamics import coordinates
from jaxdyn.dynamics.engine.sweep import walk_of
from jaxdyn.model.chain import ancestor_mask, with_leaves
from peer_models import configuration_to_pinocchio, to_pinocchio, velocity_to_pinocchio

KINDS = {
    "free, coupled": lambda: random_mechanism(1),
    "floating": lambda: on_free_base(random_chain(4, 8)),
    "free": lambda: random_mechanism(2, coupled=False),
}


def on_free_base(chain):
    """A serial arm whose base is a body in free flight: the one free joint that everything hangs on."""
    n = chain.n + 6
    padded = {
        name: np.concatenate(
            [np.zeros((6, *np.shape(attrgetter(name)(chain))[1:])), np.asarray(attrgetter(name)(chain))]
        )
        for name in (
            "translation",
            "inertia",
            "armature",
            "friction.viscous",
            "springs.stiffness",
            "springs.rest_position",
        )
    }
    padded["inertia"][5] = random_inertia(np.random.default_rng(8))
    padded["armature"][:6] = 0.05
    nested = {name: jnp.asarray(x) for name, x in padded.items() if "." in name}
    whole = jaxdyn.make_chain(
        rotation=np.concatenate([np.tile(np.eye(3), (6, 1, 1)), np.asarray(chain.rotation)]),
        screw=np.concatenate([np.eye(6), np.asarray(chain.screw)]),
        frames={"tool": (n - 1, np.eye(4))},
        gravity=np.asarray(chain.gravity),
        topology=jaxdyn.Topology((-1, *range(5), 5, 6, 5, 8), compound_joints=[(0, "free")], tip_name="tool"),
        **{name: x for name, x in padded.items() if "." not in name},
    )
    return with_leaves(whole, nested)


def terms(chain, q, v, a):
    """Everything that a test compares, of one state."""
    moved = lambda t: jaxdyn.integrate(chain, q, t * v)
    along = lambda f: jax.jvp(f, (0.0,), (1.0,))
    torque = jaxdyn.inverse_dynamics(chain, q, v, a)
    return {
        "torque": torque,
        "mass_matrix": jaxdyn.mass_matrix(chain, q),
        "crba": jaxdyn.crba(chain, q),
        "mass_rate": along(lambda t: jaxdyn.mass_matrix(chain, moved(t)))[1],
        "coriolis": jaxdyn.coriolis_matrix(chain, q, v),
        "christoffel": jaxdyn.christoffel_symbols(chain, q),
        "coriolis_force": jaxdyn.coriolis_force(chain, q, v),
        "gravity": jaxdyn.gravity_force(chain, q),
        "bias": jaxdyn.bias_force(chain, q, v),
        "gradient": jax.grad(lambda d: jaxdyn.potential_energy(chain, jaxdyn.integrate(chain, q, d)))(
            jnp.zeros_like(v)
        ),
        "spring": jaxdyn.spring_force(chain, q),
        "spring_gradient": jax.grad(lambda d: jaxdyn.dynamics.spring_energy(chain, jaxdyn.integrate(chain, q, d)))(
            0 * v
        ),
        "energy_rate": along(lambda t: jaxdyn.total_energy(chain, moved(t), v + t * a))[1],
        "kinetic": jaxdyn.kinetic_energy(chain, q, v),
        "lagrange": jaxdyn.dynamics.euler_lagrange_torque(chain, q, v, a),
        "acceleration": jaxdyn.forward_dynamics(chain, q, v, torque),
        "aba": a if chain.coupling is not None else jaxdyn.aba(chain, q, v, torque),
        "linear": jaxdyn.regressor(chain, q, v, a) @ jaxdyn.inertial_parameters(chain).reshape(-1),
        "armature": jaxdyn.dynamics.drive_regressor(chain, v, a, ("armature",)) @ chain.armature,
        "links": jaxdyn.forward_kinematics(chain, q),
        "tool": jaxdyn.frame_pose(chain, q),
        "tool_rate": along(lambda t: jaxdyn.frame_pose(chain, moved(t)))[1],
        "body": jaxdyn.jacobian(chain, q),
        "mixed": jaxdyn.jacobian(chain, q, reference="mixed"),
        "space_rate": jaxdyn.jacobian_derivative(chain, q, v, reference="mixed"),
    }


@functools.cache
def computed(kind):
    chain = KINDS[kind]()
    state = mechanism_state(chain, 4)
    return chain, *state, {k: np.asarray(x) for k, x in once(terms)(chain, *state).items()}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["free, coupled", "floating"])
def test_mechanisms_satisfy_the_identities_of_the_equations_of_motion(kind):
    chain, _, v, a, x = computed(kind)
    m, c = x["mass_matrix"], x["coriolis"]
    assert relative(m, m.T) < 1e-14 and np.linalg.eigvalsh(m).min() > 0
    assert relative(x["crba"], m) < 1e-13
    skew = x["mass_rate"] - 2 * c
    assert np.abs(skew + skew.T).max() < 1e-12 * np.abs(x["mass_rate"]).max()
    assert relative(c @ v, x["coriolis_force"]) < 1e-12
    assert relative(np.einsum("ijk,k->ij", x["christoffel"], v), c) < 1e-12
    assert relative(x["gravity"], x["gradient"]) < 1e-12
    assert relative(x["spring"], x["spring_gradient"]) < 1e-12
    assert relative(m @ a + c @ v + x["gravity"], x["torque"]) < 1e-12
    assert relative(x["bias"], x["coriolis_force"] + x["gravity"]) < 1e-13
    assert relative(x["lagrange"], x["torque"]) < 1e-12
    np.testing.assert_allclose(x["kinetic"], v @ m @ v / 2, rtol=1e-12)
    np.testing.assert_allclose(x["energy_rate"], v @ (x["torque"] + x["spring"]), rtol=1e-11)
    assert relative(x["acceleration"], a) < 1e-10 and relative(x["aba"], a) < 1e-10
    rotors = 0 if chain.transmission is None else rotor_torque(chain, a)
    assert relative(x["linear"] + x["armature"] + rotors, x["torque"]) < 1e-12
    pose, rate = x["tool"], x["tool_rate"]
    twist = np.linalg.inv(pose) @ rate
    body = np.concatenate([[twist[2, 1], twist[0, 2], twist[1, 0]], twist[:3, 3]])
    assert relative(x["body"] @ v, body) < 1e-12


def rotor_torque(chain, a):
    s, r = np.asarray(chain.coupling.matrix), np.asarray(chain.transmission.matrix)
    return s.T @ r.T @ (np.asarray(chain.transmission.rotor_inertia) * (r @ s @ np.asarray(a)))


@once
def compared(chain, q, v, a):
    torque = jaxdyn.inverse_dynamics(chain, q, v, a)
    return {
        "torque": torque,
        "mass_matrix": jaxdyn.crba(chain, q),
        "coriolis_force": jaxdyn.coriolis_force(chain, q, v),
        "gravity": jaxdyn.gravity_force(chain, q),
        "acceleration": jaxdyn.forward_dynamics(chain, q, v, torque),
        "links": jaxdyn.forward_kinematics(chain, q),
        "tool": jaxdyn.frame_pose(chain, q),
        "body": jaxdyn.jacobian(chain, q),
        "mixed": jaxdyn.jacobian(chain, q, reference="mixed"),
        "space_rate": jaxdyn.jacobian_derivative(chain, q, v, reference="mixed"),
    }


def test_mechanisms_have_the_dynamics_of_pinocchio():
    pin = pytest.importorskip("pinocchio", reason="Pinocchio is not installed")
    chain = KINDS["free"]()
    q, v, a = mechanism_state(chain, 4)
    x = {k: np.asarray(y) for k, y in compared(chain, q, v, a).items()}
    model = to_pinocchio(chain)
    data = model.createData()
    there = functools.partial(velocity_to_pinocchio, chain)
    pq, pv, pa = configuration_to_pinocchio(chain, q), there(v), there(a)
    assert relative(there(x["torque"]), pin.rnea(model, data, pq, pv, pa)) < 1e-12
    m = pin.crba(model, data, pq)
    assert relative(there(there(x["mass_matrix"]).T), np.triu(m) + np.triu(m, 1).T) < 1e-12
    assert relative(there(x["coriolis_force"]), pin.computeCoriolisMatrix(model, data, pq, pv) @ pv) < 1e-12
    assert relative(there(x["gravity"]), pin.computeGeneralizedGravity(model, data, pq)) < 1e-12
    assert relative(there(x["acceleration"]), pin.aba(model, data, pq, pv, there(x["torque"]))) < 1e-10
    pin.computeJointJacobiansTimeVariation(model, data, pq, pv)
    pin.updateFramePlacements(model, data)
    for i in range(chain.n):
        assert relative(x["links"][i], data.oMf[model.getFrameId(f"link{i}")].homogeneous) < 1e-12
    tool = model.getFrameId("tool")
    assert relative(x["tool"], data.oMf[tool].homogeneous) < 1e-12
    angular_first = lambda j: j[[3, 4, 5, 0, 1, 2]]
    for name, frame in (("body", pin.LOCAL), ("mixed", pin.LOCAL_WORLD_ALIGNED)):
        assert relative(there(x[name]), angular_first(pin.getFrameJacobian(model, data, tool, frame))) < 1e-12
    rate = pin.getFrameJacobianTimeVariation(model, data, tool, pin.LOCAL_WORLD_ALIGNED)
    assert relative(there(x["space_rate"]), angular_first(rate)) < 1e-12


@pytest.mark.nightly
def test_a_coupling_restricts_the_free_mechanism():
    """M, C v and g of coupled joints are S^T (.) S of the same robot's without coupling."""
    chain = KINDS["free, coupled"]()
    q, v, a = mechanism_state(chain, 4)
    x = compared(chain, q, v, a)
    s, r = np.asarray(chain.coupling.matrix), np.asarray(chain.transmission.matrix)
    loose = dataclasses.replace(
        chain,
        coupling=None,
        transmission=None,
        topology=dataclasses.replace(chain.topology, coordinate_names=None),
    )
    full = jnp.concatenate([q, -0.7 * q[-1:] + 0.2])
    rates = s @ v
    apart = compared(loose, full, jnp.asarray(rates), jnp.asarray(s @ a))
    assert relative(x["coriolis_force"], s.T @ apart["coriolis_force"]) < 1e-12
    assert relative(x["gravity"], s.T @ apart["gravity"]) < 1e-12
    assert relative(x["links"], apart["links"]) < 1e-14
    mass = apart["mass_matrix"] + r.T @ np.diag(np.asarray(chain.transmission.rotor_inertia)) @ r
    assert relative(x["mass_matrix"], s.T @ mass @ s) < 1e-13
    friction = s.T @ np.asarray(jaxdyn.friction_force(loose, jnp.asarray(rates)))
    motors = chain.transmission
    spins = r @ rates
    losses = motors.friction.viscous * spins + motors.friction.coulomb * np.tanh(
        spins / motors.friction.coulomb_velocity
    )
    assert relative(jaxdyn.friction_force(chain, v), friction + s.T @ r.T @ np.asarray(losses)) < 1e-13


@once
def summary(chain, q, v, a):
    return (
        jaxdyn.inverse_dynamics(chain, q, v, a),
        jaxdyn.crba(chain, q),
        jaxdyn.forward_dynamics(chain, q, v, a),
        jaxdyn.forward_kinematics(chain, q)[:, :3, 3],
    )


@once
def torques_and_poses(chain, q, v, a):
    return jaxdyn.inverse_dynamics(chain, q, v, a), jaxdyn.crba(chain, q), jaxdyn.forward_kinematics(chain, q)


@pytest.mark.nightly
def test_links_may_stand_in_any_order():
    """A tree whose parents are no depth-first order, against the same robot in such an order."""
    rng = np.random.default_rng(5)
    parents = (-1, 0, 1, 1, 3, 0, 5, 5)  # depth-first
    n = len(parents)
    axis = rng.normal(size=(n, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    leaves = {
        "rotation": np.asarray(random_chain(n, 6).rotation),
        "translation": rng.normal(size=(n, 3)),
        "screw": np.hstack([axis, np.zeros((n, 3))]),
        "inertia": np.array([random_inertia(rng) for _ in range(n)]),
    }
    order = [0, 5, 1, 7, 3, 2, 6, 4]
    place = np.argsort(order)
    assert walk_of(parents).order is None
    shuffled = tuple(-1 if parents[i] < 0 else int(place[parents[i]]) for i in order)
    assert walk_of(shuffled).order is not None
    tree = jaxdyn.make_chain(topology=jaxdyn.Topology(parents), **leaves)
    other = jaxdyn.make_chain(topology=jaxdyn.Topology(shuffled), **{k: x[order] for k, x in leaves.items()})
    state = jnp.asarray(rng.normal(size=(3, n)))
    index = np.array(order)
    torque, mass, points = torques_and_poses(tree, *state)
    again = torques_and_poses(other, *state[:, index])
    for x, y in zip((torque[index], mass[np.ix_(index, index)], points[index]), again, strict=True):
        assert relative(y, x) < 1e-12


def test_branchings_are_kept_no_longer_than_needed():
    """Branchings are kept no longer than needed: one register serves a humanoid's pelvis and then its chest."""
    serial = walk_of((-1, 0, 1, 2))
    assert serial.is_serial and serial.registers == 0
    humanoid = (-1, 0, 1, 0, 3, 0, 5, 6, 5, 8)  # two legs, then a trunk with two arms
    assert walk_of(humanoid).registers == 1
    binary = tuple((i - 1) // 2 if i else -1 for i in range(15))
    assert walk_of(binary).registers <= 3
    mask = ancestor_mask(humanoid)
    assert mask[0].all() and mask[5].tolist() == [j in (5, 6, 7, 8, 9) for j in range(10)]


def test_integrate_and_difference_undo_each_other():
    chain = KINDS["free, coupled"]()
    q, v, _ = mechanism_state(chain, 7)
    integrate, difference = jax.jit(jaxdyn.integrate), jax.jit(jaxdyn.difference)
    for size in (1e-9, 1e-3, 1.0):
        step = size * v / jnp.abs(v).max() * 2
        moved = integrate(chain, q, step)
        assert relative(difference(chain, q, moved), step) < (1e-6 if size < 1e-8 else 1e-12)
        for joint in ((3, 7), (7, 11)):
            np.testing.assert_allclose(np.linalg.norm(moved[slice(*joint)]), 1.0, rtol=1e-14)
    flipped = q.at[3:7].multiply(-1)  # the same orientation
    assert np.abs(difference(chain, q, flipped)).max() < 1e-12
    np.testing.assert_array_equal(jaxdyn.neutral_configuration(chain)[jnp.asarray([3, 7])], 1.0)


@once
def on_the_manifold(chain, q, step):
    there_and_back = lambda d: jaxdyn.difference(chain, q, jaxdyn.integrate(chain, q, d))
    pose = lambda d: jaxdyn.frame_pose(chain, jaxdyn.integrate(chain, q, d)).reshape(-1)
    back = jax.jacfwd(lambda x: jaxdyn.difference(chain, q, x))(jaxdyn.integrate(chain, q, step))
    return jax.jacfwd(there_and_back)(step), jax.jacfwd(pose)(step), jax.jacrev(pose)(step), back


@pytest.mark.ci
@pytest.mark.parametrize("angle", [0.0, 1e-9, 3.1415926, np.pi])
def test_derivatives_of_difference_are_the_identity_at_no_step(angle):
    """d difference / d step is the identity at no step and finite near half a turn; forward and reverse mode agree."""
    chain = random_mechanism(3, free=False, coupled=False)
    q = jaxdyn.neutral_configuration(chain)
    axis = jnp.asarray([0.6, 0.0, 0.8])
    step = jnp.zeros(chain.nv).at[:3].set(angle * axis)
    same, forward, reverse, back = on_the_manifold(chain, q, step)
    if angle < 3:
        np.testing.assert_allclose(same, np.eye(chain.nv), atol=1e-7)
    assert np.isfinite(forward).all() and relative(forward, reverse) < 1e-13
    assert np.isfinite(back).all()


GRADIENTS = {
    "torques and poses": lambda c, q, v, a: jnp.concatenate(
        [jaxdyn.inverse_dynamics(c, q, v, a), jaxdyn.frame_pose(c, q).reshape(-1), jaxdyn.jacobian(c, q) @ v]
    ),
    "step": lambda c, q, v, a: jnp.concatenate(jaxdyn.step(c, q, v, a, 0.01)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["torques and poses", "step"])
def test_gradients_of_mechanisms_equal_differences(name):
    """Forward = reverse = finite differences, in the state (quaternions too) and in every leaf of the model."""
    chain = random_mechanism(1)
    finite = {
        "limits.velocity": jnp.ones(chain.n),
        "limits.effort": jnp.ones(chain.n),
        "limits.position": jnp.ones((chain.n, 2)),
    }
    arguments = (with_leaves(chain, finite), *mechanism_state(chain, 4))
    f = GRADIENTS[name]
    leaves, along = directions(arguments)
    # rotations and screws move on their manifolds: off them, algorithms that agree on them differ
    turn, shift = np.random.default_rng(8).normal(size=(2, chain.n, 3))
    w, u = np.asarray(chain.screw[:, :3]), np.asarray(chain.screw[:, 3:])
    screws = np.hstack([np.cross(turn, w), np.cross(turn, u) + np.cross(shift, w)])
    screws[:9] = 0  # those of the free and the spherical joint are what they are
    tangent = {
        "rotation": chain.rotation @ jax.vmap(jaxdyn.spatial.so3.skew)(jnp.asarray(turn)),
        "screw": jnp.asarray(screws),
    }
    for leaf, direction in tangent.items():
        k = leaves.index(f"[0].{leaf}")
        along = eqx.tree_at(
            lambda x, name=leaf: getattr(x[0], name), along, getattr(along[0], leaf).at[k].set(direction)
        )
    size = jax.eval_shape(f, *arguments).shape[0]
    cotangent = jnp.asarray(np.random.default_rng(7).normal(size=size))
    values, forward, reverse, differences = map(np.asarray, derivatives(f, arguments, along, cotangent))
    assert np.isfinite(forward).all() and np.isfinite(reverse).all()
    moved = 0
    for k, leaf in enumerate(leaves):
        scale = np.abs(forward[k]).max()
        moved += scale > 0
        assert np.abs(forward[k] - differences[k]).max() <= 1e-8 * scale + 1e-10 * np.abs(values).max(), leaf
        assert abs(reverse[k] - forward[k] @ cotangent) <= 1e-11 * np.abs(forward[k] * cotangent).sum() + 1e-12, leaf
    assert moved >= 5


@pytest.mark.nightly
def test_mechanisms_work_in_batches_and_single_precision():
    chain = KINDS["free, coupled"]()
    states = [mechanism_state(chain, k) for k in range(3)]
    batch = [jnp.stack(x) for x in zip(*states, strict=True)]
    together = jax.vmap(summary, (None, 0, 0, 0))(chain, *batch)
    for k, state in enumerate(states):
        for x, y in zip(together, summary(chain, *state), strict=True):
            assert relative(x[k], y) < 1e-11
    single = summary(*jax.tree.map(lambda x: x.astype(jnp.float32), (chain, *states[0])))
    for x, y, bound in zip(single, summary(chain, *states[0]), (1e-5, 1e-5, 1e-2, 1e-5), strict=True):
        assert x.dtype == jnp.float32 and relative(x, y) < bound


def free_body():
    """A body in free fall that tumbles about its intermediate axis."""
    inertia = np.zeros((6, 10))
    inertia[5] = [2.0, 0.2, -0.1, 0.4, 0.5, 0.05, 0.9, 0.02, -0.03, 1.2]
    return jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (6, 1, 1)),
        translation=np.zeros((6, 3)),
        screw=np.eye(6),
        inertia=inertia,
        topology=jaxdyn.Topology.serial(6, compound_joints=[(0, "free")]),
    )


@once
def fly_on(chain, q, v, dt):
    positions, velocities = jaxdyn.rollout(chain, q, v, jnp.zeros((25, 6)), dt, method="rk4")
    return positions[-1], velocities[-1]


def fly(chain, q, v, steps):
    """For a second."""
    for _ in range(steps // 25):
        q, v = fly_on(chain, q, v, 1.0 / steps)
    return q, v


@pytest.mark.ci
def test_a_body_in_free_fall_keeps_energy_and_momentum():
    """RK4 on the manifold is of fourth order; energy and momentum about the centre of mass are kept; the latter falls."""
    chain = free_body()
    q = jnp.asarray([0.1, 0.2, 0.3, 0.5, -0.5, 0.5, 0.5])
    v = jnp.asarray([0.3, 4.0, 0.2, 1.0, -2.0, 0.5])
    exact = fly(chain, q, v, 800)
    errors = []
    for steps in (25, 50):
        x, w = fly(chain, q, v, steps)
        errors.append(float(np.abs(jax.jit(jaxdyn.difference)(chain, exact[0], x)).max() + np.abs(w - exact[1]).max()))
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.3
    energy = jax.jit(lambda q, v: jaxdyn.total_energy(chain, q, v))
    np.testing.assert_allclose(energy(*exact), energy(q, v), rtol=1e-10)

    def centre(q, v):
        pose = np.asarray(jax.jit(jaxdyn.frame_pose)(chain, q))
        c = np.array([0.1, -0.05, 0.2])
        inertia = np.asarray(jax.jit(jaxdyn.spatial.inertia.spatial_inertia)(chain.inertia[5]))
        momentum = inertia @ np.asarray(v)
        spin = pose[:3, :3] @ (momentum[:3] - np.cross(c, momentum[3:]))
        return pose[:3, 3] + pose[:3, :3] @ c, pose[:3, :3] @ momentum[3:] / 2.0, spin

    (p0, v0, s0), (p1, v1, s1) = centre(q, v), centre(*exact)
    np.testing.assert_allclose(p1, p0 + v0 + np.array([0, 0, -9.81 / 2]), atol=1e-9)
    np.testing.assert_allclose(v1, v0 + np.array([0, 0, -9.81]), atol=1e-9)
    np.testing.assert_allclose(s1, s0, rtol=1e-9)


def test_wrong_mechanisms_are_refused():
    chain = random_mechanism(1, coupled=False)
    leaves = {k: np.asarray(attrgetter(k)(chain)) for k in ("rotation", "translation", "screw", "inertia")}
    parents = chain.topology.parents
    make = lambda changed=(), **names: jaxdyn.make_chain(
        **{**leaves, **dict(changed)}, topology=jaxdyn.Topology(**{"parents": parents, **names})
    )
    free = make(compound_joints=[(0, "free")])
    cases = [
        ("pass its first link and its type", lambda: make(compound_joints=[(0, "ball")])),
        ("wrong screws", lambda: make(compound_joints=[(3, "spherical")])),
        (
            "wrong placements",
            lambda: make({"rotation": random_chain(chain.n, 1).rotation}, compound_joints=[(0, "free")]),
        ),
        ("a coupling of 14 coordinates requires a matrix", lambda: jaxdyn.with_coupling(make(), jnp.eye(3))),
        ("but 14 joints require", lambda: jaxdyn.with_transmission(make(), matrix=jnp.eye(2))),
        ("a motor cannot drive", lambda: jaxdyn.with_transmission(free, matrix=jnp.ones((2, chain.n)))),
        ("require a coupling", lambda: make(coordinate_names=["a"])),
        ("must not change", lambda: jaxdyn.with_coupling(free, np.random.default_rng(0).normal(size=(chain.n, 8)))),
        ("not a tree", lambda: make(parents=(-1, 1, *parents[2:]))),
    ]
    for message, build in cases:
        with pytest.raises(jaxdyn.ModelError, match=message):
            build()
    with pytest.raises(jaxdyn.ModelError, match=r"q has shape \(14,\); expected \(16,\)"):
        jaxdyn.inverse_dynamics(chain, jnp.zeros(14), jnp.zeros(14), jnp.zeros(14))
    with pytest.raises(jaxdyn.ModelError, match="is zero; start from `neutral_configuration`"):
        jaxdyn.gravity_force(chain, jnp.zeros(chain.nq))
    with pytest.raises(jaxdyn.ModelError, match="several ends"):
        jaxdyn.frame_pose(make(), jnp.zeros(chain.n))
    with pytest.raises(jaxdyn.ModelError, match="use forward_dynamics"):
        coupled = random_mechanism(1)
        jaxdyn.aba(coupled, *mechanism_state(coupled))
    with pytest.raises(Exception, match="is zero"):
        jaxdyn.model.normalise_configuration(chain, jnp.zeros(chain.nq))


def test_rates_of_quaternion_joints_follow_from_products_of_exponentials():
    """A(x) with A dx/dt = v of the links' joints, from the product of their exponentials alone: dA/dt v = g(v) at x = 0."""
    chain = random_mechanism(2, coupled=False)
    v = jnp.asarray(np.random.default_rng(3).normal(size=chain.nv))

    def hat(screw):
        w, u = screw[:3], screw[3:]
        return np.block([[np.cross(np.eye(3), w), u[:, None]], [np.zeros((1, 4))]])

    def twists(x, screws):
        """Body twists for unit rates of a joint's links, by columns: those nearer the base are seen through the others."""
        out, after = [], np.eye(4)
        for screw, angle in reversed(list(zip(screws, x, strict=True))):
            m = np.linalg.inv(after) @ hat(screw) @ after
            out.append([m[2, 1], m[0, 2], m[1, 0], *m[:3, 3]])
            after = expm(hat(screw) * angle) @ after
        return np.array(out[::-1]).T[: len(screws)]

    expected, h = np.zeros((chain.nv, chain.nv)), 1e-3
    for k, size in ((0, 6), (6, 3)):
        here = slice(k, k + size)
        at = {t: twists(t * h * np.asarray(v[here]), np.asarray(chain.screw[here])) for t in (-2, -1, 0, 1, 2)}
        np.testing.assert_allclose(at[0], np.eye(size), atol=1e-14)
        expected[here, here] = (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h)
    np.testing.assert_allclose(coordinates.rate_matrix(chain, v), expected, atol=1e-10)
    np.testing.assert_allclose(coordinates.rate_terms(chain, v), expected @ v, atol=1e-10)
    accelerations = jnp.arange(1.0, chain.nv + 1)
    found = coordinates.joint_accelerations(chain, v, accelerations)
    np.testing.assert_allclose(found, accelerations - expected @ v, atol=1e-10)


@once
def of_the_ball(chain, q, v, a, v_ref):
    """Quantities compared only with torques at other states."""
    return {
        "slopes": jaxdyn.inverse_dynamics_derivatives(chain, q, v, a)[:3],
        "C": jaxdyn.coriolis_matrix(chain, q, v),
        "along": jaxdyn.dynamics.passivity_inverse_dynamics(chain, q, v, v_ref, a),
    }


@pytest.mark.ci
def test_slopes_and_coriolis_matrix_of_a_ball_joint_equal_differences_of_torques():
    """Torques are quadratic in v and linear in a: slopes and C from differences of them."""
    rng, n = np.random.default_rng(6), 4
    rotation, translation, inertia = random_links(n, [(0, 3)], rng)
    chain = jaxdyn.make_chain(
        rotation,
        translation,
        [*np.eye(6)[:3], [0.6, 0, 0.8, 0.16, 0.1, -0.12]],
        inertia,
        gravity=(1.0, -2.0, -9.0),
        armature=[0.1, 0.2, 0.3, 0.4],
        topology=jaxdyn.Topology.serial(n, compound_joints=[(0, "spherical")]),
    )
    q, (v, a, v_ref) = jaxdyn.random_configuration(chain, jax.random.key(1)), jnp.asarray(rng.normal(size=(3, n)))
    x = jax.tree.map(np.asarray, of_the_ball(chain, q, v, a, v_ref))
    torques = once(jax.vmap(lambda dq, v, a: jaxdyn.inverse_dynamics(chain, jaxdyn.integrate(chain, q, dq), v, a)))
    e, none, h = np.eye(n), np.zeros((n, n)), 1e-3
    tau = lambda dq, v, a: np.asarray(torques(*(jnp.asarray(none + np.asarray(x)) for x in (dq, v, a)))).T
    mass = tau(0, 0, e) - tau(0, 0, 0)
    by_q, by_v, by_a = x["slopes"]
    assert relative(by_a, mass) < 1e-13
    assert relative(by_v, (tau(0, np.asarray(v) + e, a) - tau(0, np.asarray(v) - e, a)) / 2) < 1e-12
    ahead, behind, further, before = (tau(t * h * e, v, a) for t in (1, -1, 2, -2))
    assert relative(by_q, (before - 8 * behind + 8 * ahead - further) / (12 * h)) < 1e-9
    torque, gravity = tau(0, v, a)[:, 0], tau(0, 0, 0)[:, 0]
    assert relative(mass @ a + x["C"] @ v + gravity, torque) < 1e-12
    assert relative(x["along"], mass @ a + x["C"] @ v_ref + gravity) < 1e-12
    moving = [tau(t * h * v, 0, e) - tau(t * h * v, 0, 0) for t in (-2, -1, 1, 2)]
    rate = (moving[0] - 8 * moving[1] + 8 * moving[2] - moving[3]) / (12 * h)
    skew = rate - 2 * x["C"]
    assert np.abs(skew + skew.T).max() < 1e-9 * np.abs(rate).max()
