"""Robots under constraints phi(q) = 0 or A(q) qd = 0, such as closed loops and contacts.

In this order: residual, Jacobian and bias; dynamics with constraint forces; projection onto the constraints; reduction
to independent coordinates.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Int

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, Wrenches, ancestor_mask, frame_index, layout
from ..model.compiled import compiled
from ..model.configuration import difference, integrate, place
from ..model.mechanisms import (
    Constraint,
    Constraints,
    FrameConstraint,
    FunctionConstraint,
    PfaffianConstraint,
    coordinate_columns,
    listed,
)
from ..spatial.components import cross, sub, zeros
from ..spatial.se3 import pose
from ..spatial.so3 import rotation_exp, rotation_log, skew
from .composite_body import crba
from .coordinates import joint_accelerations, joint_rates, joints_of
from .coriolis import coriolis_matrix
from .engine.lanes import sparse_jvp
from .engine.sweep import Link, carry_twist, next_pose_finely, outward, start_pose
from .kinematics import Placements, placements, screws_at
from .newton_euler import accelerate, bias_force, gravity_force, inverse_dynamics
from .operational_space_dynamics import pseudo_inverse, rank_tolerance
from .regressors import regressor


class Terms(NamedTuple):
    """Residual phi, Jacobian J, and bias dJ/dt qd."""

    residual: Float[Array, " m"]
    jacobian: Float[Array, "m nv"]
    bias: Float[Array, " m"]


@compiled
def constraint_residual(chain: Chain, constraints: Constraints, q: Position) -> Float[Array, " m"]:
    """Residual phi(q), which is zero if the constraints are satisfied, stacked over constraints [rad, m for frames].

    For frames, it is the rotation vector and the position of one frame relative to the other (`FrameConstraint`).

    Raises:
        ModelError: there is no constraint, or a constraint refers to an unknown frame.
    """
    constraints = listed(constraints)
    placed = placements(*place(chain, q)) if _needs_poses(constraints) else None
    poses = lambda c: None if placed is None or not isinstance(c, FrameConstraint) else _poses(chain, c, placed)
    return jnp.concatenate([_residual(chain, c, poses(c), q) for c in constraints])


@compiled
def constraint_jacobian(chain: Chain, constraints: Constraints, q: Position) -> Float[Array, "m nv"]:
    """Jacobian J(q) with d phi/dt = J(q) qd: the derivative of phi(integrate(chain, q, dq)) with respect to dq at 0.

    For frames a and b with the relative pose E = T_b^-1 T_a, J follows from dE/dt E^-1 = Ad_{T_b^-1} (V_a - V_b), the
    twist of a relative to b. The errors are those of `constraint_residual`.
    """
    constraints = listed(constraints)
    placed = placements(*place(chain, q)) if _needs_poses(constraints) else None
    return _jacobians(chain, constraints, placed, q)


@compiled
def constraint_bias(chain: Chain, constraints: Constraints, q: Position, qd: Velocity) -> Float[Array, " m"]:
    """Bias dJ/dt qd in d2 phi/dt2 = J(q) qdd + dJ/dt qd [rad/s^2, m/s^2 for frames].

    It is the second derivative of phi(integrate(chain, q, t qd)) at t = 0. The errors are those of
    `constraint_residual`.
    """
    return constraint_terms(chain, constraints, q, qd).bias


def constraint_terms(chain: Chain, constraints: Constraints, q: Position, qd: Velocity) -> Terms:
    """Residual, Jacobian and bias from one sweep, O(n)."""
    constraints = listed(constraints)
    motions = _link_motions(chain, q, qd) if _needs_poses(constraints) else None
    placed = None if motions is None else motions[0]
    pairs = [_curve(chain, c, motions, q, qd) for c in constraints]
    return Terms(
        jnp.concatenate([residual for residual, _ in pairs]),
        _jacobians(chain, constraints, placed, q),
        jnp.concatenate([bias for _, bias in pairs]),
    )


def constraint_target(terms: Terms, qd: Velocity, stabilisation) -> Float[Array, " m"]:
    """The required value of J qdd: -dJ/dt qd - 2 alpha J qd - beta^2 phi."""
    alpha, beta = stabilisation
    return -terms.bias - 2 * alpha * (terms.jacobian @ qd) - beta**2 * terms.residual


def _needs_poses(constraints: tuple[Constraint, ...]) -> bool:
    return any(isinstance(c, FrameConstraint) for c in constraints)


def _link_motions(chain: Chain, q: Position, qd: Velocity):
    """Placements of the links, and their twists V and dV/dt at qdd = 0 in the link frames, (n, 6)."""

    def out(parent, link: Link, inputs):
        here, motion, velocity = parent
        w, v = carry_twist((motion[0], velocity), link, inputs[0])
        motion = accelerate(motion, link, *inputs)
        here = next_pose_finely(here, link)
        return (here, motion, v), (here, (*w, *v), (*motion[1], *sub(motion[2], cross(w, v))))

    links, x = place(chain, q)
    still = zeros(3, (q, qd), (chain.screw,))
    inputs = (joint_rates(chain, qd), joint_accelerations(chain, qd, jnp.zeros_like(qd)))
    # all values carried by a sweep must have the same type
    rotation, position = start_pose(links, x)
    base = (rotation, position, tuple(jnp.zeros_like(p) for p in position))
    columns, twists, rates = outward(links, x, out, (base, (still, still, still), still), inputs)
    placed = (jnp.concatenate([jnp.stack(y, axis=1), jnp.stack(z)[None]]) for y, z in zip(columns, base, strict=True))
    r, p, rest = placed
    return Placements(r.reshape(-1, 3, 3), p, rest), jnp.stack(twists, axis=1), jnp.stack(rates, axis=1)


def _poses(chain: Chain, constraint: FrameConstraint, placed: Placements) -> Float[Array, "m 4 4"]:
    """Poses of all links, of the base and of the world in a frame with world axes at the origin of the constraint's link."""
    # far from the world's origin, positions in the world would have too few digits for the difference of nearby frames
    link = frame_index(chain, constraint.frame)[0]
    position = jnp.concatenate([placed.position, jnp.zeros_like(placed.position[:1])]) - placed.position[link][None]
    rest = jnp.concatenate([placed.rest, jnp.zeros_like(placed.rest[:1])]) - placed.rest[link][None]
    rotation = jnp.concatenate([placed.rotation, jnp.eye(3, dtype=placed.rotation.dtype)[None]])
    last = jnp.tile(jnp.asarray([[[0, 0, 0, 1]]], rotation.dtype), (len(rotation), 1, 1))
    return jnp.concatenate([jnp.concatenate([rotation, (position + rest)[:, :, None]], axis=2), last], axis=1)


def _among(chain: Chain, poses: Float[Array, "m 4 4"], frame: str | None) -> Float[Array, "4 4"]:
    link, k = frame_index(chain, frame)
    t = poses[link if link >= 0 else -2]
    return t if k is None else t @ chain.frame_poses[k].astype(t.dtype)


def _relative(chain: Chain, constraint: FrameConstraint, poses: Float[Array, "m 4 4"]):
    """The poses T_b, in the frame of `_poses`, and E = T_b^-1 T_a."""
    a = _among(chain, poses, constraint.frame) @ constraint.pose.astype(poses.dtype)
    there = constraint.other_pose.astype(poses.dtype)
    if constraint.other is not None:
        b = _among(chain, poses, constraint.other) @ there
    else:  # the positions of the world and of the constrained point are differences of large numbers of like size
        b = there.at[:3, 3].add(poses[-1, :3, 3])
    axes = b[:3, :3].T
    return b, pose(axes @ a[:3, :3], axes @ (a[:3, 3] - b[:3, 3]))


def _residual(chain: Chain, constraint: Constraint, poses, q) -> Array:
    if isinstance(constraint, FunctionConstraint):
        return jnp.atleast_1d(constraint.function(chain, q, constraint.parameters))
    if isinstance(constraint, PfaffianConstraint):  # a Pfaffian constraint does not constrain positions
        return jnp.zeros(constraint.function(chain, q, constraint.parameters).shape[0], q.dtype)
    _, e = _relative(chain, constraint, poses)
    position, rows = e[:3, 3], constraint.rows
    turns = rotation_log(e[:3, :3]) if min(rows) < 3 else jnp.zeros_like(position)
    return jnp.concatenate([turns, position])[jnp.asarray(rows)]


def _curve(chain: Chain, constraint: Constraint, motions, q, qd) -> tuple[Array, Array]:
    """The residual phi at q, and its second time derivative along the motion from q with constant qd."""
    if isinstance(constraint, PfaffianConstraint):
        rows = lambda t: constraint.function(chain, integrate(chain, q, t * qd), constraint.parameters) @ qd
        bias = jax.jvp(rows, (jnp.zeros((), qd.dtype),), (jnp.ones((), qd.dtype),))[1]
        return jnp.zeros_like(bias), bias
    if isinstance(constraint, FunctionConstraint):
        along = lambda t: _residual(chain, constraint, None, integrate(chain, q, t * qd))
    else:
        placed, twists, rates = motions
        poses = _poses(chain, constraint, placed)
        used = sorted({frame_index(chain, f)[0] for f in _frames(constraint)} - {-1})
        first = {i: poses[i] @ _hat(twists[i]) for i in used}
        second = {i: first[i] @ _hat(twists[i]) + poses[i] @ _hat(rates[i]) for i in used}

        def along(t):
            # T exp(t V + t^2 dV/dt / 2), to second order in t
            moved = [poses[i] + t * first[i] + t * t / 2 * second[i] for i in used]
            return _residual(chain, constraint, poses.at[jnp.asarray(used)].set(jnp.stack(moved)), q)

    zero, one = jnp.zeros((), qd.dtype), jnp.ones((), qd.dtype)
    (residual, _), (_, bias) = jax.jvp(lambda t: jax.jvp(along, (t,), (one,)), (zero,), (one,))
    return residual, bias


def _hat(twist: Float[Array, "6"]) -> Float[Array, "4 4"]:
    """The matrix [V] with dT/dt = T [V] for the body twist V."""
    top = jnp.concatenate([skew(twist[:3]), twist[3:, None]], axis=1)
    return jnp.concatenate([top, jnp.zeros((1, 4), top.dtype)])


def _frames(constraint: FrameConstraint) -> list[str | None]:
    """The robot's frames in the constraint; None is the tip."""
    return [constraint.frame] if constraint.other is None else [constraint.frame, constraint.other]


def _jacobians(chain: Chain, constraints: tuple[Constraint, ...], placed, q) -> Float[Array, "m nv"]:
    return jnp.concatenate([_jacobian(chain, c, placed, q) for c in constraints])


def _jacobian(chain: Chain, constraint: Constraint, placed, q) -> Array:
    if isinstance(constraint, PfaffianConstraint):
        return constraint.function(chain, q, constraint.parameters)
    if isinstance(constraint, FunctionConstraint):
        moved = lambda dq: _residual(chain, constraint, None, integrate(chain, q, dq))
        return jax.jacfwd(moved)(jnp.zeros(chain.nv, q.dtype))
    poses = _poses(chain, constraint, placed)
    b, e = _relative(chain, constraint, poses)
    moves = _moved_by(chain, constraint.frame)
    if constraint.other is not None:
        moves = moves - _moved_by(chain, constraint.other)
    screws = screws_at(place(chain, q)[0], placed, (b[:3, :3] @ e[:3, 3] + b[:3, 3])[None] - poses[:-1, :3, 3])
    twist = joints_of(chain, screws * moves.astype(screws.dtype))
    turning, linear, rotation = b[:3, :3].T @ twist[:3], b[:3, :3].T @ twist[3:], e[:3, :3]
    if min(constraint.rows) < 3:
        logarithm = lambda w: rotation_log(rotation_exp(w) @ rotation)
        turning = jax.jacfwd(logarithm)(jnp.zeros(3, e.dtype)) @ turning
    return jnp.concatenate([turning, linear])[jnp.asarray(constraint.rows)]


def _moved_by(chain: Chain, frame: str | None) -> Array:
    """A row (1, n) with 1 for joints that move a frame and 0 for the others."""
    link, _ = frame_index(chain, frame)
    mask = ancestor_mask(chain.topology.parents)[:, link] if link >= 0 else jnp.zeros(chain.n, bool)
    return jnp.asarray(mask, chain.dtype)[None]


Stabilisation = tuple[float | Array, float | Array]


class ConstrainedDynamics(NamedTuple):
    """The result of `constrained_forward_dynamics`, which describes it."""

    acceleration: Float[Array, " nv"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    redundant: Bool[Array, ""]
    residual: Float[Array, ""]
    consistent: Bool[Array, ""]


@compiled
def constrained_forward_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    qd: Velocity,
    tau: Force,
    external_wrenches: Wrenches | None = None,
    stabilisation: Stabilisation = (0.0, 0.0),
    tolerance: float | Float[Array, ""] | None = None,
) -> ConstrainedDynamics:
    """Accelerations qdd and constraint forces lambda of a robot under constraints phi(q) = 0, O(n^3):

        M(q) qdd + C(q, qd) qd + g(q) = tau + J(q)^T lambda,
        J(q) qdd + dJ/dt qd = -2 alpha d phi/dt - beta^2 phi.

    Friction and springs are not included; to include them, pass tau - resistive_force(chain, q, qd).

    Let M = L L^T, W = J L^-T, and let r be the required value of J qdd. The solution is L^T qdd = z + W^+ (r - W z) and
    lambda = W^+T W^+ (r - W z), where z = L^-1 (tau - C qd - g) is the unconstrained solution. Derivatives are obtained
    by implicit differentiation of the two equations, at constant rank.

    Args:
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        stabilisation: Baumgarte's gains (alpha, beta) [1/s]; if they are equal, phi is critically damped.
        tolerance: singular values of W below this fraction of the largest are treated as zero; by default, the square
            root of the machine epsilon.

    Returns:
        - acceleration: qdd [rad/s^2 or m/s^2].
        - multipliers: constraint forces on the robot, one per row of J. For frames, they are the moment and force (n, f)
            that `other` exerts on `frame`, in the axes and about the origin of the constraint's frame on `other` [N m,
            N]. If constraints are redundant, the multipliers have minimum norm.
        - rank: number of independent rows of J.
        - redundant: True if rows of J are dependent; accelerations are then unique, but multipliers are not.
        - residual: largest absolute entry of J qdd - r, where r is the required value of J qdd [m/s^2, rad/s^2].
        - consistent: True if the residual is within rounding errors; False if constraints contradict each other.

    Raises:
        ModelError: there is no constraint, or a constraint refers to an unknown frame.
    """
    gains = jnp.asarray(stabilisation[0], q.dtype), jnp.asarray(stabilisation[1], q.dtype)
    tolerance = rank_tolerance(q, tolerance)
    a, multipliers, rank, residual, bound = _dynamics(
        chain, constraints, q, qd, tau, external_wrenches, gains, tolerance
    )
    rank = rank.astype(int)
    redundant = rank < multipliers.shape[0]
    return ConstrainedDynamics(a, multipliers, rank, redundant, residual, residual <= bound)


class Factors(NamedTuple):
    """The Cholesky factor L of M = L L^T, the matrix W = J L^-T, its pseudo-inverse, the Jacobian J, and the rank of W."""

    lower: Float[Array, "nv nv"]
    whitened: Float[Array, "m nv"]
    inverse: Float[Array, "nv m"]
    jacobian: Float[Array, "m nv"]
    rank: Float[Array, ""]


def factorise(chain: Chain, q: Position, j: Float[Array, "m nv"], tolerance) -> Factors:
    """Compute the factors that `solve` requires, O(n^3)."""
    lower = jnp.linalg.cholesky(crba(chain, q))
    whitened = solve_triangular(lower, j.T, lower=True).T
    inverse, rank = pseudo_inverse(whitened, tolerance)
    return Factors(lower, whitened, inverse, j, rank)


def solve(
    factors: Factors, force: Float[Array, " nv"], rate: Float[Array, " m"]
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Solution (x, lambda) of M x = force + J^T lambda and J x = rate, O(n^2)."""
    free = solve_triangular(factors.lower, force, lower=True)
    change = factors.inverse @ (rate - factors.whitened @ free)
    x = solve_triangular(factors.lower, free + change, lower=True, trans="T")
    return x, factors.inverse.T @ change


def _solution(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance):
    terms = constraint_terms(chain, constraints, q, qd)
    factors = factorise(chain, q, terms.jacobian, tolerance)
    wanted = constraint_target(terms, qd, stabilisation)
    a, multipliers = solve(factors, tau - bias_force(chain, q, qd, wrenches), wanted)
    residual, bound = _violation(factors.jacobian, a, wanted)
    return (a, multipliers, factors.rank, residual, bound), factors


def _violation(matrix: Array, x: Array, wanted: Array) -> tuple[Array, Array]:
    """Largest |A x - wanted|, and a bound on the part of it that is due to rounding."""
    matrix, x, wanted = (jax.lax.stop_gradient(y) for y in (matrix, x, wanted))
    size = (jnp.abs(matrix) @ jnp.abs(x) + jnp.abs(wanted)).max()
    return jnp.abs(matrix @ x - wanted).max(), size * float(jnp.finfo(x.dtype).eps) ** 0.5


@jax.custom_jvp
def _dynamics(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance):
    return _solution(chain, constraints, q, qd, tau, wrenches, stabilisation, tolerance)[0]


def _dynamics_jvp(primals, tangents):
    out, factors = _solution(*primals)
    a, multipliers = out[:2]
    # W^+ determines only the part of d lambda in the range of J; the remainder, which keeps lambda in that range as J changes,
    # is (1 - W W^+) dJ y with y = M^-1 J^T A^+ lambda and A = W W^T
    y, _ = solve(factors, jnp.zeros_like(a), multipliers)

    def equations(chain, constraints, q, qd, tau, wrenches, stabilisation):
        terms = constraint_terms(chain, constraints, q, qd)
        j = terms.jacobian
        force = tau - inverse_dynamics(chain, q, qd, a, wrenches) + j.T @ multipliers
        return force, constraint_target(terms, qd, stabilisation) - j @ a, j @ y

    _, (force, rate, turn) = sparse_jvp(equations, primals[:-1], tangents[:-1])
    da, d_multipliers = solve(factors, force + factors.jacobian.T @ turn, rate)
    rank, residual, bound = (jnp.zeros_like(x) for x in out[2:])
    return out, (da, d_multipliers + turn, rank, residual, bound)


_dynamics.defjvp(_dynamics_jvp, symbolic_zeros=True)


class ConstrainedTorques(NamedTuple):
    """The result of `constrained_inverse_dynamics`, which describes it."""

    torques: Float[Array, " k"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    residual: Float[Array, ""]
    feasible: Bool[Array, ""]


@compiled
def constrained_inverse_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    actuated: Sequence[str | int],
    external_wrenches: Wrenches | None = None,
    tolerance: float | Float[Array, ""] | None = None,
) -> ConstrainedTorques:
    """Torques u on the actuated coordinates that produce qdd: M qdd + C qd + g = B u + J^T lambda, O(n^3).

    B contains the columns of the identity matrix for the actuated coordinates. The acceleration must satisfy the
    constraints, J qdd = -dJ/dt qd. With N = 1 - J^+ J, the solution is u = (N B)^+ N (M qdd + C qd + g) and lambda =
    J^+T (M qdd + C qd + g - B u): the torques of minimum norm if the robot is over-actuated, and the least-squares
    solution if it is under-actuated.

    Args:
        actuated: names of joints (of coordinates if joints are coupled) or columns of v.
        tolerance: for the rank of J and of N B, as in `constrained_forward_dynamics`.

    Returns:
        - torques: torques on the actuated coordinates, in the order of the argument `actuated` [N m or N].
        - multipliers: constraint forces on the robot, as in `constrained_forward_dynamics` [N m, N].
        - rank: number of independent motions that the actuated coordinates drive.
        - residual: largest absolute entry of M qdd + C qd + g - B u - J^T lambda, the force that cannot be produced [N m or N].
        - feasible: True if the residual is within rounding errors.

    Raises:
        ModelError: a coordinate is unknown, there is no constraint, or a constraint refers to an unknown frame.
    """
    columns = jnp.asarray(coordinate_columns(chain, actuated))
    needed = inverse_dynamics(chain, q, qd, qdd, external_wrenches)
    j = constraint_jacobian(chain, constraints, q)
    inverse, _ = pseudo_inverse(j, tolerance)
    free = jnp.eye(chain.nv, dtype=j.dtype) - inverse @ j
    drive, rank = pseudo_inverse(free[:, columns], tolerance)
    torques = drive @ (free @ needed)
    rest = needed.at[columns].add(-torques)
    multipliers = inverse.T @ rest
    residual, bound = _violation(j.T, multipliers, rest)
    bound = jnp.maximum(bound, jax.lax.stop_gradient(jnp.abs(needed).max()) * float(jnp.finfo(j.dtype).eps) ** 0.5)
    return ConstrainedTorques(torques, multipliers, rank.astype(int), residual, residual <= bound)


class Projection(NamedTuple):
    """The result of `project_configuration`, which describes it."""

    configuration: Float[Array, " nq"]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


@compiled
def project_configuration(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    held: Sequence[str | int] = (),
    max_iterations: int = 50,
    tolerance: float | None = None,
) -> Projection:
    """The configuration nearest to q that satisfies phi = 0: integrate(chain, q, u) with the smallest |u|.

    The Gauss-Newton iteration u <- J^+ (J u - phi) with J = d phi / du converges in a few steps near a solution; far
    from one, it may fail, and `converged` is then False. Derivatives are those of the fixed point: du = (1 - dT/du)^-1
    dT for the iteration u <- T(u). The iterations are neither differentiated nor stored.

    Args:
        held: coordinates that are held fixed, given as names of joints or columns of v. With all independent
            coordinates fixed, the result contains the dependent coordinates that close the loop.
        tolerance: tolerance for the residual and for the last step [m, rad]; by default, 1000 times the machine
            epsilon.

    Returns:
        - configuration: projected configuration q [rad or m].
        - iterations: number of iterations.
        - residual: largest absolute entry of phi(q) [m, rad].
        - converged: True if the residual and the last step are within the tolerance. If False, derivatives are meaningless.

    Raises:
        ModelError: a coordinate is unknown, there is no constraint, or a constraint refers to an unknown frame.
    """
    tolerance = 1000 * float(jnp.finfo(q.dtype).eps) if tolerance is None else tolerance
    free = jnp.ones(chain.nv, q.dtype).at[jnp.asarray(coordinate_columns(chain, held))].set(0.0)
    limits = (jnp.asarray(max_iterations, q.dtype), jnp.asarray(tolerance, q.dtype))
    u, iterations, step = _nearest(chain, constraints, q, free, limits)
    projected = integrate(chain, q, u)
    residual = jax.lax.stop_gradient(jnp.abs(constraint_residual(chain, constraints, projected)).max())
    converged = (residual <= tolerance) & (step <= tolerance)
    return Projection(projected, iterations.astype(int), residual, converged)


def _improve(chain, constraints, q, u, free):
    """J^+ (J u - phi) at integrate(q, u), and the largest |phi|."""
    here = integrate(chain, q, u)
    j = constraint_jacobian(chain, constraints, here)
    if layout(chain).curved:
        j = j @ jax.jacfwd(lambda du: difference(chain, here, integrate(chain, q, u + du)))(jnp.zeros_like(u))
    j = j * free[None]
    inverse, _ = pseudo_inverse(j)
    phi = constraint_residual(chain, constraints, here)
    return free * (inverse @ (j @ u - phi)), jnp.abs(phi).max()


@jax.custom_jvp
def _nearest(chain, constraints, q, free, limits):
    most, tolerance = limits

    def unfinished(state):
        count, _, residual, step = state
        return (count < most) & ~((residual <= tolerance) & (step <= tolerance))

    def body(state):
        count, u, _, _ = state
        new, residual = _improve(chain, constraints, q, u, free)
        return count + 1, new, residual, jnp.abs(new - u).max()

    far = jnp.full((), jnp.inf, q.dtype)
    count, u, _, step = jax.lax.while_loop(unfinished, body, (jnp.zeros_like(most), jnp.zeros_like(free), far, far))
    return u, count, step


def _nearest_jvp(primals, tangents):
    out = _nearest(*primals)
    chain, constraints, q, free, _ = primals
    u = out[0]
    moved = lambda chain, constraints, q: _improve(chain, constraints, q, u, free)[0]
    _, change = sparse_jvp(moved, (chain, constraints, q), tangents[:3])
    slope = jax.jacfwd(lambda u: _improve(chain, constraints, q, u, free)[0])(u)
    du = jnp.linalg.solve(jnp.eye(u.shape[0], dtype=u.dtype) - slope, change)
    return out, (du, jnp.zeros_like(out[1]), jnp.zeros_like(out[2]))


_nearest.defjvp(_nearest_jvp, symbolic_zeros=True)


@compiled
def project_velocity(
    chain: Chain, constraints: Constraints, q: Position, qd: Velocity, tolerance: float | Float[Array, ""] | None = None
) -> Velocity:
    """The velocity qd' nearest to qd, in the metric of the mass matrix, with J(q) qd' = 0, O(n^3) [rad/s or m/s].

    The result qd' = qd - M^-1 J^T (J M^-1 J^T)^+ J qd is the velocity after a plastic impact on the constraints, and M
    (qd' - qd) is the impulse of the constraints. The errors and the tolerance are those of
    `constrained_forward_dynamics`.
    """
    j = constraint_jacobian(chain, constraints, q)
    factors = factorise(chain, q, j, rank_tolerance(q, tolerance))
    return qd + solve(factors, jnp.zeros_like(qd), -j @ qd)[0]


class ReducedDynamics(NamedTuple):
    """The result of `reduced_dynamics`, which describes it."""

    map: Float[Array, "nv k"]
    acceleration: Float[Array, " nv"]
    mass_matrix: Float[Array, "k k"]
    bias: Float[Array, " k"]


@compiled
def independent_coordinates(
    chain: Chain, constraints: Constraints, q: Position, independent: Sequence[str | int]
) -> Float[Array, "nv k"]:
    """Matrix G(q) with qd = G w and J G = 0, where w are the independent velocities [rad/s or m/s], O(n^3).

    G is the identity in the rows of the independent coordinates and -J_d^+ J_i in the rows of the dependent
    coordinates, where J_i and J_d are the columns of J for the independent and the dependent coordinates. If J_d does
    not have full column rank, the independent coordinates do not determine the motion: J G is not 0, or G does not
    contain all admissible motions.

    Args:
        independent: one coordinate per degree of freedom of the mechanism, given as names of joints (of coordinates if
            joints are coupled) or columns of v.

    Raises:
        ModelError: a coordinate is unknown, there are no dependent coordinates, or more of them than constraint rows.
    """
    return _split(chain, constraints, q, independent)[0]


@compiled
def reduced_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    w: Float[Array, " k"],
    independent: Sequence[str | int],
    external_wrenches: Wrenches | None = None,
) -> ReducedDynamics:
    """Equation of motion in the independent velocities w, without constraint forces: M_r a + b = G^T tau, O(n^3).

    Here M_r = G^T M G and b = G^T (M dG/dt w + C qd + g - sum_i J_i^T F_i), with the external wrenches F_i. The
    independent coordinates and the errors are those of `independent_coordinates`.

    Returns:
        - map: matrix G, which maps independent velocities to those of all coordinates.
        - acceleration: accelerations dG/dt w of all coordinates at a = 0 [rad/s^2 or m/s^2].
        - mass_matrix: reduced mass matrix M_r = G^T M G [kg m^2 or kg].
        - bias: bias forces b = G^T (C(q, qd) qd + g + M dG/dt w) [N m or N].
    """
    g, qd, acceleration = reduced_motion(chain, constraints, q, w, jnp.zeros_like(w), independent)
    bias = g.T @ inverse_dynamics(chain, q, qd, acceleration, external_wrenches)
    return ReducedDynamics(g, acceleration, g.T @ crba(chain, q) @ g, bias)


@compiled
def reduced_forward_dynamics(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    w: Float[Array, " k"],
    tau: Force,
    independent: Sequence[str | int],
    external_wrenches: Wrenches | None = None,
) -> Float[Array, " k"]:
    """Accelerations M_r^-1 (G^T tau - b) of the independent coordinates, O(n^3) [rad/s^2 or m/s^2].

    They agree with those of `constrained_forward_dynamics`; tau acts on all coordinates. The errors are those of
    `reduced_dynamics`.
    """
    terms = reduced_dynamics(chain, constraints, q, w, independent, external_wrenches)
    return cho_solve(cho_factor(terms.mass_matrix, lower=True), terms.map.T @ tau - terms.bias)


@compiled
def reduced_regressor(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    w: Float[Array, " k"],
    a: Float[Array, " k"],
    independent: Sequence[str | int],
) -> Float[Array, "k p"]:
    """Regressor Y_r = G^T Y(q, G w, G a + dG/dt w) of a mechanism: Y_r pi = M_r a + b [N m or N], O(n^3).

    M_r and b are those of `reduced_dynamics`, without armature and rotors; columns are ordered as in `regressor`. Since
    the independent coordinates determine q (`project_configuration`), a mechanism can be identified from the reduced
    motor torques G^T tau, without sensors at its passive joints. The errors are those of `independent_coordinates`.
    """
    g, qd, qdd = reduced_motion(chain, constraints, q, w, a, independent)
    return g.T @ regressor(chain, q, qd, qdd)


def reduced_motion(
    chain: Chain, constraints: Constraints, q: Array, w: Array, a: Array, independent: Sequence[str | int]
) -> tuple[Float[Array, "nv k"], Float[Array, " nv"], Float[Array, " nv"]]:
    """The matrix G, and the velocities G w and accelerations G a + dG/dt w of all coordinates."""
    g, dependent, inverse = _split(chain, constraints, q, independent)
    qd = g @ w
    bias = -inverse @ constraint_bias(chain, constraints, q, qd)
    return g, qd, (g @ a).at[dependent].add(bias, unique_indices=True)


@compiled
def reduced_coriolis_matrix(
    chain: Chain, constraints: Constraints, q: Position, w: Float[Array, " k"], independent: Sequence[str | int]
) -> Float[Array, "k k"]:
    """Coriolis matrix C_r = G^T (C(q, G w) G + M dG/dt) of a mechanism, O(n^3) [N m s/rad].

    The bias in `reduced_dynamics` is b = C_r w + G^T g, where G^T g is `reduced_gravity_force`. Like dM/dt - 2 C with
    the `coriolis_matrix` C, dM_r/dt - 2 C_r is skew-symmetric. The errors are those of `independent_coordinates`.
    """
    g, _, _ = _split(chain, constraints, q, independent)
    qd = g @ w
    moved = lambda t: _split(chain, constraints, integrate(chain, q, t * qd), independent)[0]
    _, rate = jax.jvp(moved, (jnp.zeros((), q.dtype),), (jnp.ones((), q.dtype),))
    return g.T @ (coriolis_matrix(chain, q, qd) @ g + crba(chain, q) @ rate)


@compiled
def reduced_gravity_force(
    chain: Chain, constraints: Constraints, q: Position, independent: Sequence[str | int]
) -> Float[Array, " k"]:
    """Generalised forces g_r = G^T g(q) that hold the mechanism still against gravity [N m or N].

    The equation of motion is M_r a + C_r w + g_r = G^T tau with C_r = `reduced_coriolis_matrix`. The errors are those
    of `independent_coordinates`.
    """
    return _split(chain, constraints, q, independent)[0].T @ gravity_force(chain, q)


def _split(chain: Chain, constraints: Constraints, q: Array, independent: Sequence[str | int]):
    """G, the dependent columns, and J_d^+."""
    chosen = coordinate_columns(chain, independent)
    dependent = np.setdiff1d(np.arange(chain.nv), chosen)
    j = constraint_jacobian(chain, constraints, q)
    if len(dependent) > j.shape[0] or not len(dependent):
        raise ModelError(
            f"{len(chosen)} of {chain.nv} coordinates are independent, which leaves {len(dependent)} dependent ones for "
            f"{j.shape[0]} constraint rows; choose one independent coordinate per degree of freedom"
        )
    inverse, _ = pseudo_inverse(j[:, dependent])
    k = len(chosen)
    g = jnp.zeros((chain.nv, k), j.dtype).at[chosen].set(jnp.eye(k, dtype=j.dtype), unique_indices=True)
    return g.at[dependent].set(-inverse @ j[:, chosen], unique_indices=True), dependent, inverse
