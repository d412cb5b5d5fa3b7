"""Derivatives of every public function: forward = reverse = finite differences, in the states and in every leaf of the model.

One compiled program a function gives all derivatives; it is run on a chain with one joint of every kind in a random state, and
on a straight arm at rest, where norms, angles and signs have their corners.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import derivatives, directions, once, random_chain, relative
from jaxdyn import robots

N = 4  # "mixed" has one joint of every kind

# name -> f(chain, q, qd, x, wrenches, tip_wrench), with x in the place of accelerations and of torques
FUNCTIONS = {
    "inverse_dynamics": lambda c, q, v, x, f, t: jaxdyn.inverse_dynamics(c, q, v, x, f, t),
    "bias_force": lambda c, q, v, x, f, t: jaxdyn.bias_force(c, q, v, f, t),
    "gravity_force": lambda c, q, v, x, f, t: jaxdyn.gravity_force(c, q),
    "coriolis_force": lambda c, q, v, x, f, t: jaxdyn.coriolis_force(c, q, v),
    "mass_matrix": lambda c, q, v, x, f, t: jaxdyn.mass_matrix(c, q),
    "crba": lambda c, q, v, x, f, t: jaxdyn.crba(c, q),
    "coriolis_matrix": lambda c, q, v, x, f, t: jaxdyn.coriolis_matrix(c, q, v),
    "christoffel_symbols": lambda c, q, v, x, f, t: jaxdyn.christoffel_symbols(c, q),
    "forward_dynamics": lambda c, q, v, x, f, t: jaxdyn.forward_dynamics(c, q, v, x, f, t),
    "aba": lambda c, q, v, x, f, t: jaxdyn.aba(c, q, v, x, f, t),
    "mass_matrix_solve": lambda c, q, v, x, f, t: jaxdyn.mass_matrix_solve(c, q, x),
    "friction_force": lambda c, q, v, x, f, t: jaxdyn.friction_force(c, v),
    "kinetic_energy": lambda c, q, v, x, f, t: jaxdyn.kinetic_energy(c, q, v),
    "potential_energy": lambda c, q, v, x, f, t: jaxdyn.potential_energy(c, q),
    "total_energy": lambda c, q, v, x, f, t: jaxdyn.total_energy(c, q, v),
    "lagrangian": lambda c, q, v, x, f, t: jaxdyn.dynamics.lagrangian(c, q, v),
    "euler_lagrange_torque": lambda c, q, v, x, f, t: jaxdyn.dynamics.euler_lagrange_torque(c, q, v, x),
    "forward_kinematics": lambda c, q, v, x, f, t: jaxdyn.forward_kinematics(c, q),
    "frame_pose": lambda c, q, v, x, f, t: jaxdyn.frame_pose(c, q),
    "jacobian": lambda c, q, v, x, f, t: jaxdyn.jacobian(c, q, reference="mixed"),
    "jacobian_derivative": lambda c, q, v, x, f, t: jaxdyn.jacobian_derivative(c, q, v),
    "regressor": lambda c, q, v, x, f, t: jaxdyn.regressor(c, q, v, x),
    "drive_regressor": lambda c, q, v, x, f, t: jaxdyn.dynamics.drive_regressor(c, v, x),
    "inertial_parameters": lambda c, q, v, x, f, t: jaxdyn.inertial_parameters(
        jaxdyn.with_inertial_parameters(c, 2 * jaxdyn.inertial_parameters(c))
    ),
}


def in_motion():
    """A chain without infinite leaves, and (q, qd, x, wrenches, tip wrench), all random."""
    rng = np.random.default_rng(5)
    chain = random_chain(N, 5)
    chain = jaxdyn.model.with_leaves(
        chain,
        {
            "limits.velocity": jnp.asarray(rng.uniform(1, 2, N)),
            "limits.effort": jnp.asarray(rng.uniform(1, 2, N)),
            "limits.position": jnp.asarray(rng.normal(size=(N, 2))),
        },
    )
    return chain, *(jnp.asarray(rng.normal(size=shape)) for shape in ((N,), (N,), (N,), (N, 6), (6,)))


def straight_at_rest():
    """A planar arm stretched out along x, nothing moving, nothing acting but gravity."""
    chain = in_motion()[0]
    chain = dataclasses.replace(
        chain,
        rotation=jnp.tile(jnp.eye(3), (N, 1, 1)),
        translation=jnp.tile(jnp.asarray([[0.5, 0, 0]]), (N, 1)),
        screw=jnp.tile(jnp.asarray([[0, 0, 1.0, 0, 0, 0]]), (N, 1)),
        gravity=jnp.asarray([0, -9.81, 0]),
    )
    return chain, *(jnp.zeros(shape) for shape in ((N,), (N,), (N,), (N, 6), (6,)))


# compiling the derivatives of all functions takes minutes: by default those of one, in continuous integration of two
MARKS = {"inverse_dynamics": pytest.mark.ci, "friction_force": ()}


NAMES = [pytest.param(name, marks=MARKS.get(name, pytest.mark.nightly)) for name in FUNCTIONS]


@functools.cache
def flat(name):
    """The function of that name with one vector as its result."""
    return lambda *arguments: jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(FUNCTIONS[name](*arguments))])


@functools.cache
def all_derivatives(name, state):
    """The leaves' names, a cotangent, and everything of `derivatives` in the state of that name."""
    f = flat(name)
    arguments = STATES[state]()
    leaves, along = directions(arguments)
    size = jax.eval_shape(f, *arguments).shape[0]
    cotangent = jnp.asarray(np.random.default_rng(7).normal(size=size))
    return leaves, np.asarray(cotangent), *map(np.asarray, derivatives(f, arguments, along, cotangent))


STATES = {"in motion": in_motion, "straight at rest": straight_at_rest}


@pytest.mark.parametrize("name", NAMES)
def test_forward_reverse_and_finite_differences_agree(name):
    for state in STATES:
        leaves, cotangent, values, forward, reverse, differences = all_derivatives(name, state)
        assert np.all(np.isfinite(forward)) and np.all(np.isfinite(reverse))
        magnitude = np.abs(values).max()
        for k, leaf in enumerate(leaves):
            scale = np.abs(forward[k]).max()
            error = np.abs(forward[k] - differences[k]).max()
            assert error <= 2e-9 * scale + 1e-11 * magnitude, f"{leaf}: forward mode is off by {error} of {scale}"
            gap = abs(reverse[k] - forward[k] @ cotangent)
            bound = 1e-12 * np.abs(forward[k] * cotangent).sum() + 1e-13 * magnitude
            assert gap <= bound, f"{leaf}: reverse mode is off by {gap} of {scale}"


@pytest.mark.nightly
@pytest.mark.parametrize("state", ["in motion", "straight at rest"])
def test_derivatives_of_forward_dynamics_are_those_of_its_recursion(state):
    """The rule M^-1 (d tau - dID) against differentiating the articulated-body recursion, leaf by leaf."""
    _, _, *rule = all_derivatives("forward_dynamics", state)
    _, _, *recursion = all_derivatives("aba", state)
    for k in range(len(rule[1])):
        scale = np.abs(recursion[1][k]).max()
        assert np.abs(rule[1][k] - recursion[1][k]).max() <= 1e-12 * scale
        assert abs(rule[2][k] - recursion[2][k]) <= 1e-11 * scale


@pytest.mark.parametrize("name", NAMES)
def test_plain_compiled_and_batched_calls_agree(name):
    """Compiled calls on one robot, a compiled batch of two robots in different states, and the same operations one by one."""
    f = flat(name)
    arguments, other = in_motion(), straight_at_rest()
    compiled = jax.jit(f)
    with jax.disable_jit():
        plain = f(*arguments)
    batch = jax.jit(jax.vmap(f))(*jax.tree.map(lambda a, b: jnp.stack([a, b]), arguments, other))
    assert relative(compiled(*arguments), plain) < 1e-13
    assert relative(batch[0], plain) < 1e-13
    assert relative(batch[1], compiled(*other)) < 1e-13 or not np.any(batch[1])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics"])
def test_derivatives_of_batches_are_batches_of_derivatives(name):
    f = flat(name)
    chain, *state = in_motion()
    states = [jnp.stack([x, 0.5 * x, -x]) for x in state]

    def cost(chain, *state):
        return jnp.sum(f(chain, *state) ** 2)

    over_states = (None, 0, 0, 0, 0, 0)
    together, one_by_one = once(
        lambda: (
            jax.grad(lambda c: jnp.sum(jax.vmap(cost, over_states)(c, *states)))(chain),
            jax.tree.map(lambda g: g.sum(0), jax.vmap(jax.grad(cost), over_states)(chain, *states)),
        )
    )()
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(one_by_one), strict=True):
        assert relative(a, b) < 1e-12 or not np.any(b)


def variable(arguments):
    """Unconstrained inputs of the equations: states, wrenches, inertias, armature, gravity, origins of the placements."""
    chain, *state = arguments
    return (chain.inertia, chain.armature, chain.gravity, chain.translation, *state)


def filled(f, arguments):
    """f as a function of `variable(arguments)`."""

    def of_variables(inertia, armature, gravity, translation, *state):
        leaves = {"inertia": inertia, "armature": armature, "gravity": gravity, "translation": translation}
        return f(dataclasses.replace(arguments[0], **leaves), *state)

    return of_variables


@pytest.mark.nightly
def test_second_derivatives_of_forward_dynamics_are_symmetric_and_equal_differences():
    """Symmetric in the two directions, the same in reverse mode, and what changes in the recursion's own first derivatives."""
    arguments = in_motion()
    x = variable(arguments)
    rng = np.random.default_rng(9)
    u, v = (tuple(jnp.asarray(rng.normal(size=a.shape)) for a in x) for _ in range(2))
    cotangent = jnp.asarray(rng.normal(size=N))
    rule, recursion = (filled(flat(name), arguments) for name in ("forward_dynamics", "aba"))

    second = once(lambda u, v: jax.jvp(lambda *y: jax.jvp(rule, y, u)[1], x, v)[1])
    uv = second(u, v)
    assert relative(uv, second(v, u)) < 1e-12

    h = 1e-3
    steps = jnp.asarray([-2 * h, -h, h, 2 * h])
    moved = lambda s: jax.jvp(recursion, jax.tree.map(lambda a, b: a + s * b, x, v), u)[1]
    around = once(jax.vmap(moved))(steps)
    assert relative(uv, (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * h)) < 1e-9

    pulled = once(jax.grad(lambda y: cotangent @ jax.jvp(rule, y, u)[1]))(x)
    along_v = sum(jnp.sum(a * b) for a, b in zip(pulled, v, strict=True))
    np.testing.assert_allclose(along_v, cotangent @ uv, rtol=1e-12)


# bounds of the largest error over the states: three to five times what was measured, 1e-7 to 5e-7, for C 1.1e-6, crba 8.6e-7
SINGLE = {
    "inverse_dynamics": 2e-6,
    "crba": 3e-6,
    "coriolis_matrix": 4e-6,
    "forward_dynamics": 2e-6,
    "kinetic_energy": 2e-6,
    "potential_energy": 6e-7,
    "frame_pose": 1e-6,
    "jacobian": 1e-6,
    "regressor": 2e-6,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_have_the_type_of_the_arguments(name):
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), in_motion())
    for leaf in jax.tree.leaves(jax.eval_shape(FUNCTIONS[name], *arguments)):
        assert leaf.dtype == jnp.float32


@pytest.mark.ci
def test_results_and_gradients_are_accurate_in_single_precision():
    """Errors of single precision, relative to the largest entry of the result in each state."""
    chain = robots.panda()
    rng = np.random.default_rng(10)
    count = 256
    shapes = (((7,), 3), ((7,), 2), ((7,), 5), ((7, 6), 10), ((6,), 10))
    state = [jnp.asarray(rng.uniform(-w, w, size=(count, *shape))) for shape, w in shapes]

    @once
    def values(chain, *state):
        names = {k: FUNCTIONS[k] for k in SINGLE}
        return jax.vmap(lambda *s: {k: f(chain, *s) for k, f in names.items()})(*state)

    exact = values(chain, *state)
    single = values(*jax.tree.map(lambda x: x.astype(jnp.float32), (chain, *state)))
    for name, bound in SINGLE.items():
        assert single[name].dtype == jnp.float32
        a, b = (np.asarray(x[name], float).reshape(count, -1) for x in (single, exact))
        scale = np.abs(b).max() if name == "potential_energy" else np.abs(b).max(axis=1)  # it has no zero of its own
        error = (np.abs(a - b).max(axis=1) / scale).max()
        assert error < bound, f"{name}: {error}"
