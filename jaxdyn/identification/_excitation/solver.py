"""Parallel solver for a batch of excitation problems: D-optimality within limits by an augmented Lagrangian method.

The unknowns are the coefficients z (n, k) of a motion in a linear basis. The problem is:

    minimise  f(z) = -log det(H(z)) / b + w log cond(Sigma^-1/2 W(z)),    H = W^T Sigma^-1 W / N,
    subject to  |x(z)| / limit <= 1  for x = q - middle, qd, qdd, qddd, tau, dtau/dt at all samples, and  clearance(q) >= 0.

The constraints are written as c(z) <= 0, with multipliers mu and a penalty weight rho. Each round takes several steps
of Adam on the Lagrangian of Powell, Hestenes and Rockafellar, f + sum(max(0, mu + rho c)^2 - mu^2) / (2 rho). It then
updates the multipliers, mu <- max(0, mu + rho c) (Nocedal & Wright 2006, sec. 17.4). Gradients are exact and include
the derivatives of the regressor.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...dynamics import friction_force, inverse_dynamics
from ...model._chain import Chain
from .._regression.columns import Columns
from .limits import Clearance, MotionLimits

RIDGE = (
    1e-10  # added to H, which is scaled to about unit size, so that it can be factorised even for poor initial motions
)


class Setting(NamedTuple):
    """Settings of an excitation problem that are static arguments of compiled functions.

    Attributes:
        columns: the identified columns.
        kept: indices of the base parameters' columns.
        clearance: the user's clearance function, or None.
        torques: True if the torque of at least one joint is limited.
        torque_rates: True if the torque rate of at least one joint is limited.
        conditioned: True if the condition number is part of the cost.
    """

    columns: Columns
    kept: tuple[int, ...]
    clearance: Clearance | None
    torques: bool
    torque_rates: bool
    conditioned: bool


class ExcitationProblem(NamedTuple):
    """Data of an excitation problem, shared by all motions of the batch.

    Attributes:
        chain: the robot.
        coarse: (4, n, N, k) maps from z to q, qd, qdd and qddd at the samples used for the information matrix, torques
            and clearance.
        fine: (4, n, M, k) the same maps on a finer grid, for the quantities that are linear in z.
        slopes: (N, N) map from values at the coarse samples to their time derivatives, by a quintic spline.
        limits: limits of the motion; the position limits are finite.
        weights: (n,) inverse standard deviations of the joint torques.
        scale: (b,) magnitudes by which the columns of the regressor are divided.
        condition_weight: weight w of the condition number.
        margin: minimum clearance on the coarse grid.
    """

    chain: Chain
    coarse: Float[Array, "4 n N k"]
    fine: Float[Array, "4 n M k"]
    slopes: Float[Array, "N N"]
    limits: MotionLimits
    weights: Float[Array, " n"]
    scale: Float[Array, " b"]
    condition_weight: Float[Array, ""]
    margin: Float[Array, ""]


class State(NamedTuple):
    """State of one motion: coefficients, multipliers of the limits on the fine and coarse grids, and state of Adam."""

    z: Float[Array, "n k"]
    multipliers: tuple[Array, Array]
    adam: PyTree


def motion_at(matrices: Float[Array, "4 n N k"], limits: MotionLimits, z: Float[Array, "n k"]) -> Float[Array, "4 N n"]:
    """q, qd, qdd and qddd for coefficients z; z = 0 corresponds to a robot at rest in the middle of the position ranges."""
    motion = jnp.einsum("djmk,jk->dmj", matrices, z)
    return motion.at[0].add(((limits.upper + limits.lower) / 2)[None])


def regressor_rows(setting: Setting, chain: Chain, motion: Float[Array, "4 N n"]) -> Float[Array, "N n p"]:
    """The complete regressor at every sample."""
    return jax.vmap(setting.columns.matrix, in_axes=(None, 0, 0, 0))(chain, *motion[:3])


def _criterion(setting: Setting, problem: ExcitationProblem, rows: Array) -> Array:
    count = len(rows)
    rows = rows[:, :, jnp.asarray(setting.kept)] * problem.weights[None, :, None] / problem.scale[None, None]
    rows = rows.reshape(-1, rows.shape[2])
    information = rows.T @ rows / count + RIDGE * jnp.eye(rows.shape[1], dtype=rows.dtype)
    # use only one decomposition: a batch of LAPACK calls occupies a thread of XLA:CPU's pool while it waits for its
    # subtasks in the same pool, so two batches deadlock on two cores (jaxlib 0.10.2)
    if not setting.conditioned:
        factor = jnp.linalg.cholesky(information)
        return -2 * jnp.log(jnp.diagonal(factor)).sum() / rows.shape[1]
    spectrum = jnp.linalg.eigvalsh(information * problem.scale[:, None] * problem.scale[None])
    log_det = jnp.log(spectrum).sum() - 2 * jnp.log(problem.scale).sum()
    return -log_det / rows.shape[1] + problem.condition_weight * jnp.log(spectrum[-1] / spectrum[0]) / 2


def _excess(setting: Setting, problem: ExcitationProblem, z: Array, motion: Array, rows: Array) -> tuple[Array, Array]:
    """Constraint values c, satisfied if c <= 0, for the limits that are linear in z, and for all other limits."""
    limits = problem.limits
    half = (limits.upper - limits.lower) / 2
    bounds = jnp.stack([half, limits.velocity, limits.acceleration, limits.jerk])
    linear = jnp.abs(jnp.einsum("djmk,jk->dmj", problem.fine, z)) / bounds[:, None] - 1
    rest = []
    if setting.torques or setting.torque_rates:
        chain = problem.chain
        if chain.coupling is None and chain.transmission is None:
            tau = rows[:, :, : 10 * chain.n] @ chain.inertia.reshape(-1) + chain.armature[None] * motion[2]
        else:  # joints and motors depend on common coordinates
            tau = jax.vmap(inverse_dynamics, in_axes=(None, 0, 0, 0))(chain, *motion[:3])
        tau += jax.vmap(friction_force, in_axes=(None, 0))(chain, motion[1])
        rest.append(jnp.abs(tau) / limits.torque[None] - 1)
    if setting.torque_rates:
        rest.append(jnp.abs(problem.slopes @ tau) / limits.torque_rate[None] - 1)
    if setting.clearance is not None:
        rest.append(problem.margin - jnp.asarray(jax.vmap(setting.clearance)(motion[0])))
    return linear, jnp.concatenate([x.reshape(-1) for x in rest]) if rest else jnp.zeros(0, z.dtype)


def _excess_of(setting: Setting, problem: ExcitationProblem, z: Array) -> tuple[Array, Array]:
    motion = motion_at(problem.coarse, problem.limits, z)
    return _excess(setting, problem, z, motion, regressor_rows(setting, problem.chain, motion))


def _lagrangian(setting: Setting, problem: ExcitationProblem, multipliers, penalty: Array, z: Array) -> Array:
    motion = motion_at(problem.coarse, problem.limits, z)
    rows = regressor_rows(setting, problem.chain, motion)
    value = _criterion(setting, problem, rows)
    for mu, c in zip(multipliers, _excess(setting, problem, z, motion, rows), strict=True):
        value += jnp.sum(jnp.maximum(0, mu + penalty * c) ** 2 - mu**2) / (2 * penalty)
    return value


def _adam():
    """Adam (Kingma & Ba 2015), with a shorter memory of squared gradients than usual because there are few steps."""
    import optax

    return optax.scale_by_adam(0.9, 0.99)


@functools.partial(jax.jit, static_argnums=0)
def begin(setting: Setting, problem: ExcitationProblem, z: Float[Array, "s n k"]) -> State:
    """The initial state of all motions, with zero multipliers."""

    def one(z):
        shapes = jax.eval_shape(functools.partial(_excess_of, setting, problem), z)
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return State(z, zero, _adam().init(z))

    return jax.vmap(one)(z)


@functools.partial(jax.jit, static_argnums=0)
def advance(
    setting: Setting, problem: ExcitationProblem, state: State, rates: Float[Array, " steps"], penalty: Array
) -> State:
    """Perform one round for all motions: Adam steps with the given sizes, then an update of the multipliers."""

    def one(state: State) -> State:
        def step(carry, rate):
            z, adam = carry
            gradient = jax.grad(functools.partial(_lagrangian, setting, problem, state.multipliers, penalty))(z)
            with jax.numpy_dtype_promotion("standard"):  # because optax mixes data types
                direction, adam = _adam().update(gradient, adam)
            return (z - rate * direction, adam), None

        (z, adam), _ = jax.lax.scan(step, (state.z, state.adam), rates)
        excess = _excess_of(setting, problem, z)
        multipliers = jax.tree.map(lambda mu, c: jnp.maximum(0, mu + penalty * c), state.multipliers, excess)
        return State(z, multipliers, adam)

    return jax.vmap(one)(state)


@functools.partial(jax.jit, static_argnums=0)
def criteria(
    setting: Setting, problem: ExcitationProblem, z: Float[Array, "s n k"]
) -> tuple[Array, Float[Array, "s b"]]:
    """The criterion f of every motion, and the weighted RMS of its base regressor's columns."""

    def one(z):
        rows = regressor_rows(setting, problem.chain, motion_at(problem.coarse, problem.limits, z))
        weighted = rows[:, :, jnp.asarray(setting.kept)] * problem.weights[None, :, None]
        return _criterion(setting, problem, rows), jnp.sqrt((weighted**2).sum(1).mean(0))

    return jax.vmap(one)(z)
