"""Inverse kinematics: projected Levenberg-Marquardt steps on SE(3) within joint limits, from many starts in parallel.

The error is the frame's pose relative to the target, in the target's axes: e(q) = (log(R_d^T R(q)), R_d^T (p(q) - p_d)) [rad,
m]. A component with weight zero is free. The Jacobian of e is approximated by (R_d^T J_w, R_d^T J_v) with the frame's angular
and linear Jacobians in the world, which is exact where log(R_d^T R) = 0. The gradient of |e|^2 / 2 is exact everywhere if the
angular weights are equal, because a rotation leaves its own axis unchanged. With a clearance, e has a seventh component, the
norm of max(0, d_min - d) over all pairs of shapes, with its exact gradient.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._jax_compat import Tracer
from .._summary import Summary, lines, number
from ..dynamics import frame_pose, jacobian
from ..dynamics.composite_body import positive_inverse
from ..dynamics.coordinates import joints_of
from ..dynamics.engine.lanes import by_batch, lane_shape, sparse_jvp, spread_over_lanes
from ..dynamics.engine.sweep import Link, next_pose, outward, start_pose
from ..errors import TrajectoryError
from ..model.chain import Chain, ancestor_mask, frame_index, is_ordinary, layout
from ..model.compiled import checked, compiled
from ..model.configuration import difference, integrate, neutral_configuration, place
from ..spatial.components import Mat, Vec, add, cross, dot, matmul, rotate, scale, sub, unstack
from ..spatial.so3 import rotation_log
from .constraints import Clearance
from .problem import Status, status_message

SHRINK, GROW = 0.2, 4.0  # factors applied to the damping after an accepted and a rejected step
DAMPINGS = (1e-6, 1e8)
FAR = 1e4  # larger than any error
Columns = tuple[Array, ...]  # six or seven arrays of shape (n,) or (n, lanes)


class Task(NamedTuple):
    """What a solution fulfils: T_d, the weights of its error, (lower, upper) of each coordinate, and least distances."""

    target: Float[Array, "4 4"]
    weights: Float[Array, "6"]
    limits: Float[Array, "nv 2"]
    clearance: Clearance | None

    @property
    def all_weights(self) -> Float[Array, " e"]:
        """The weights of all components of e."""
        return self.weights if self.clearance is None else jnp.append(self.weights, 1)


class Iterate(NamedTuple):
    """The best position q of a search, its error e, mu in lambda = mu |e|^2 / 2, and the largest projected gradient entry."""

    q: Float[Array, "nq *#lanes"]
    error: Float[Array, "e *#lanes"]
    damping: Float[Array, "*#lanes"]
    slope: Float[Array, "*#lanes"]


@by_batch(size=lambda chain: 200 + 60 * chain.n)
def pose_error(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    target: Float[Array, "4 4 *#lanes"],
    weights: Float[Array, "6 *#lanes"],
    frame: str | None,
) -> tuple[Float[Array, "6 *#lanes"], Columns]:
    """The pose error e of a link or frame and its weighted Jacobian w de/dx, in O(n), for chains of ordinary joints."""
    link, named = frame_index(chain, frame)
    lanes = lane_shape()

    def out(parent, here: Link, _):
        r, p = next_pose(parent, here)
        w = rotate(r, here.screw[:3])
        return (r, p), (r, p, w, add(rotate(r, here.screw[3:]), cross(p, w)))

    base = start_pose(chain, x)
    rotations, positions, w, v = outward(chain, x, out, base)
    r, p = base if link < 0 else (tuple(a[link] for a in rotations), tuple(a[link] for a in positions))
    if named is not None:
        t = chain.frame_poses[named]
        offset = tuple(t[i, 3] for i in range(3))
        r, p = matmul(r, tuple(t[i, j] for i in range(3) for j in range(3))), add(p, rotate(r, offset))
    turn = tuple(target[j, i] for i in range(3) for j in range(3))  # R_d^T
    phi = rotation_vector(matmul(turn, r))
    displacement = rotate(turn, sub(p, tuple(target[i, 3] for i in range(3))))
    error = jnp.stack([jnp.broadcast_to(e, lanes) for e in (*phi, *displacement)])
    moves = ancestor_mask(chain.topology.parents)[:, link] if link >= 0 else np.zeros(chain.n, bool)

    def column(_, x):
        moved, w, v = x
        parts = (*rotate(turn, w), *rotate(turn, add(v, cross(w, p))))
        return None, tuple(jnp.broadcast_to(moved * weights[i] * part, lanes) for i, part in enumerate(parts))

    return error, jax.lax.scan(column, None, (jnp.asarray(moves, x.dtype), w, v))[1]


def rotation_vector(r: Mat) -> Vec:
    """The rotation vector phi of R, with |phi| <= pi, from the best of four formulas for the quaternion (Shepperd 1978)."""
    xx, xy, xz, yx, yy, yz, zx, zy, zz = r
    a, b, c = zy - yz, xz - zx, yx - xy
    d, e, f = xy + yx, xz + zx, yz + zy
    trace = xx + yy + zz
    best, quaternion = trace, (1 + trace, a, b, c)
    for size, candidate in (
        (xx, (a, 1 + 2 * xx - trace, d, e)),
        (yy, (b, d, 1 + 2 * yy - trace, f)),
        (zz, (c, e, f, 1 + 2 * zz - trace)),
    ):
        better = size > best
        best = jnp.where(better, size, best)
        quaternion = tuple(jnp.where(better, x, y) for x, y in zip(candidate, quaternion, strict=True))
    scalar, vector = quaternion[0], quaternion[1:]
    sine = jnp.sqrt(dot(vector, vector))
    small = sine < jnp.finfo(sine.dtype).eps * jnp.abs(scalar)
    angle = 2 * jnp.arctan2(sine, jnp.abs(scalar)) / jnp.where(small, jnp.ones_like(sine), sine)
    factor = jnp.where(small, 2 / jnp.abs(jnp.where(small, scalar, jnp.ones_like(scalar))), angle)
    factor = jnp.where(scalar < 0, -factor, factor)
    return (factor * vector[0], factor * vector[1], factor * vector[2])


@by_batch(size=lambda q: 300 + 60 * q.shape[0])
def damped_step(
    q: Float[Array, "nv *#lanes"],
    error: Float[Array, "e *#lanes"],
    jacobian: Columns,
    damping: Float[Array, "*#lanes"],
    lower: Float[Array, "nv *#lanes"],
    upper: Float[Array, "nv *#lanes"],
) -> tuple[Float[Array, "nv *#lanes"], Float[Array, "*#lanes"]]:
    """The damped step of the joints that no limit holds, clipped to the limits, and the largest entry of their J^T e."""
    lower, upper = (spread_over_lanes(x) for x in (lower, upper))
    e = unstack(error)
    size = len(e)
    pairs = [(i, j) for i in range(size) for j in range(i, size)]

    def gather(carry, x):
        system, slope = carry
        here, low, high, columns = x
        gradient = dot(columns, e)
        held = ((here <= low) & (gradient > 0)) | ((here >= high) & (gradient < 0))
        free = jnp.where(held, jnp.zeros_like(here), jnp.ones_like(here))
        moved = scale(free, columns)
        system = tuple(a + moved[i] * moved[j] for a, (i, j) in zip(system, pairs, strict=True))
        return (system, jnp.maximum(slope, jnp.abs(gradient) * free)), moved

    zero = jnp.zeros_like(e[0])
    (system, slope), moved = jax.lax.scan(gather, ((zero,) * len(pairs), zero), (q, lower, upper, jacobian))
    damp = damping * dot(e, e) / 2 + 4 * jnp.finfo(q.dtype).eps
    entries = {pair: a + damp if pair[0] == pair[1] else a for a, pair in zip(system, pairs, strict=True)}
    matrix = jnp.stack([jnp.stack([entries[min(i, j), max(i, j)] for j in range(size)]) for i in range(size)])
    y = unstack((positive_inverse(matrix) * error[None]).sum(1))

    def propose(_, x):
        here, low, high, columns = x
        return None, jnp.clip(here - dot(columns, y), low, high) - here

    return jax.lax.scan(propose, None, (q, lower, upper, moved))[1], slope


def walk_down(
    at: Iterate, weights: Float[Array, "e *#lanes"], rows: Columns, look: Callable, propose: Callable, count: int
) -> Iterate:
    """Iterate `count` times: evaluate the trial (`look`), accept it if it is better, adapt the damping, `propose` the next."""

    def weigh(error: Array) -> Array:
        return jnp.stack([weights[i] * error[i] for i in range(len(error))])

    def size(error: Array) -> Array:
        return (weigh(error) ** 2).sum(0)

    def body(state, _):
        (q, error, damping, _), kept, trial = state
        new_error, new_rows = look(trial)
        better = size(new_error) < size(error)  # False for NaN

        def pick(new: Array, old: Array) -> Array:
            return jnp.where(better.reshape((1,) * (new.ndim - better.ndim) + better.shape), new, old)

        q, error = pick(trial, q), pick(new_error, error)
        kept = tuple(pick(new, old) for new, old in zip(new_rows, kept, strict=True))
        less, more = jnp.maximum(SHRINK * damping, DAMPINGS[0]), jnp.minimum(GROW * damping, DAMPINGS[1])
        damping = jnp.where(better, less, more)
        trial, slope = propose(q, weigh(error), kept, damping)
        return (Iterate(q, error, damping, slope), kept, trial), None

    # the first trial is q itself, which is always accepted
    start = at._replace(error=jnp.full_like(at.error, FAR), damping=at.damping / SHRINK), rows, at.q
    return jax.lax.scan(body, start, None, length=count + 1)[0][0]


TOLERANCES = {"float64": 1e-9, "float32": 1e-5}  # [rad and m]
BLOCK = 5  # iterations between checks for convergence
DRAWS = 64  # number of random positions drawn per start; those nearest to the target become the starts


class InverseKinematics(eqx.Module, Summary):
    """The result of `inverse_kinematics`, which describes it."""

    q: Float[Array, " nq"]
    error: Float[Array, "6"]
    status: Int[Array, ""]
    iterations: Int[Array, ""]
    reached: Int[Array, ""]
    clearance: Float[Array, ""]

    def __repr__(self) -> str:
        if isinstance(self.q, Tracer):
            return "InverseKinematics: traced"
        clearance = f", clearance {number(self.clearance, 'm')}" if jnp.isfinite(self.clearance).all() else ""
        angle, distance = (jnp.linalg.norm(self.error[..., part], axis=-1) for part in (slice(0, 3), slice(3, 6)))
        return lines(
            f"InverseKinematics: {self.message}",
            f"off by {number(angle, 'rad')} and {number(distance, 'm')}{clearance}" if self.error.ndim == 1 else "",
            f"q = {np.array2string(np.asarray(self.q), precision=4)}"
            if self.q.ndim == 1
            else f"q of shape {self.q.shape}",
        )

    @property
    def message(self) -> str:
        """The status in words; for a batch, the number of targets with each status."""
        return status_message(self.status)


@checked
def inverse_kinematics(
    chain: Chain,
    target: Float[Array, "4 4"],
    frame: str | None = None,
    *,
    guess: Float[Array, " nq"] | None = None,
    weights: Float[Array, "6"] | Sequence[float | int] = (1.0,) * 6,
    position_limits: Float[Array, "nv 2"] | None = None,
    clearance: Clearance | None = None,
    starts: int = 16,
    seed: int = 0,
    tolerance: float | Float[Array, ""] | None = None,
    max_iterations: int = 100,
) -> InverseKinematics:
    """Find joint positions q within the limits at which a frame reaches the pose T_d.

    Let (R, p) be the pose of the frame, (R_d, p_d) the target, and J the Jacobian of e(q) = (log(R_d^T R), R_d^T (p - p_d)).
    Joints that are not held at a limit move by dq = -J^T (J J^T + lambda 1)^-1 e, clipped to the limits. lambda = mu |e|^2 / 2,
    where mu falls after every accepted step.

    For each start, 64 random positions are drawn within the limits; among all of these, those with the nearest poses become the
    starts. The search ends when a start has converged; of several, the solution nearest to the guess is returned. A batch of
    targets runs until its slowest target has finished: split large ones with `jax.lax.map(f, targets, batch_size=64)`.

    With a `clearance`, e has a seventh component, the norm of max(0, d_min - d) over all pairs of shapes, with weight 1/m. A
    redundant arm moves away from obstacles during the search; other arms need a start whose solution is clear of them. The
    motion from `guess` to q may touch obstacles.

    The positions have first derivatives by the target and the chain (implicit function theorem): joints that are not at a limit
    move by dq = -J^+ de, the smallest motion that follows the target; distances do not restrict it. They are meaningless unless
    the status is CONVERGED.

    Args:
        target: T_d in the world [m].
        frame: name of the link or frame; None: the chain's tip.
        guess: first start [rad or m]; None: all are random, and the solution nearest to the middle of the limits is returned.
        weights: weights of the components of e, angular before linear, in the target's axes [1/rad, 1/m]. A component with
            weight 0 is free: (0, 0, 0, 1, 1, 1) constrains only the position, and (1, 1, 0, 1, 1, 1) leaves the rotation
            about the target's z axis free.
        position_limits: (lower, upper) of each coordinate [rad or m], infinite where there is none; None: `coordinate_limits`.
            Quaternion joints have no limits.
        clearance: the distances that shapes keep, for example `Clearance(shapes, 0.02)`; None: any.
        seed: random seed of the starts. Joints without limits start within half a revolution, or one metre, of zero.

    Returns:
        - q: joint positions; if the pose was not reached, those with the smallest error [rad or m].
        - error: (log(R_d^T R), R_d^T (p - p_d)) of the frame's pose (R, p) at q to the target (R_d, p_d) [rad, m].
        - status: a `Status` as an integer: CONVERGED, UNREACHABLE (no start converged, which is no proof that the arm cannot
            reach T_d) or NOT_FINITE; the property `message` is this status in words.
        - iterations: number of iterations; all starts iterate simultaneously.
        - reached: number of starts that had converged when the search ended.
        - clearance: smallest d - d_min of all pairs of shapes [m], in a solution at least -tolerance; infinite without shapes.

    Raises:
        TrajectoryError: the target is not a pose, the limits have the wrong shape or contradict each other, a weight is
            negative or none is positive, `starts` or `max_iterations` is less than 1, or the number of least distances is not
            that of the pairs.
        ModelError: the frame is unknown, `frame` is None for a tree with several tips, or a shape is on none of the links.
    """
    target = jnp.asarray(target)
    dtype = jnp.result_type(chain.dtype, target)
    frame_index(chain, frame)
    limits = coordinate_limits(chain) if position_limits is None else jnp.asarray(position_limits)
    weights = jnp.asarray(weights, dtype)
    _check(chain, target, weights, limits, starts, max_iterations)
    if tolerance is None:
        tolerance = TOLERANCES["float64" if dtype == jnp.float64 else "float32"]
    task = jax.tree.map(lambda x: x.astype(dtype), Task(target, weights, limits, clearance))
    return _solved(chain, task, frame, guess, starts, seed, jnp.asarray(tolerance, dtype), max_iterations)


@compiled
def _solved(chain, task, frame, guess, starts, seed, bound, max_iterations) -> InverseKinematics:
    """The result of the search, differentiable by the implicit function theorem."""
    fixed, still = jax.lax.stop_gradient((chain, task))
    first = _starts(fixed, still.target, still.weights, still.limits, frame, guess, starts, seed)
    near = _middle(fixed, still.limits, still.target.dtype) if guess is None else first[0]
    q, error, end = _search(fixed, still, frame, first, near, bound, max_iterations)
    followed = _following(frame, chain, task.target, still.weights, still.limits, q)
    lack = jnp.zeros(0, q.dtype) if still.clearance is None else still.clearance.violation(fixed, q)
    return InverseKinematics(followed, error[:6], *end, -jnp.max(lack, initial=-jnp.inf))


def _too_near(
    chain: Chain, clearance: Clearance, q: Float[Array, " nq"]
) -> tuple[Float[Array, ""], Float[Array, " nv"]]:
    """The norm of max(0, d_min - d) over all pairs, and its gradient with respect to a displacement of q."""

    def norm(step):
        square = jnp.sum(jnp.maximum(clearance.violation(chain, integrate(chain, q, step)), 0) ** 2)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    return jax.value_and_grad(norm)(jnp.zeros(chain.nv, q.dtype))


def coordinate_limits(chain: Chain) -> Float[Array, "nv 2"]:
    """Lower and upper position limit of every coordinate [rad or m]; infinite for quaternion joints.

    If joints are coupled, the limits of joints that are moved by more than one coordinate are ignored.
    """
    if chain.coupling is None:
        columns = jnp.asarray(layout(chain).columns)
        free = jnp.broadcast_to(jnp.asarray([-jnp.inf, jnp.inf], chain.dtype), (chain.nv, 2))
        return free.at[columns].set(chain.limits.position[columns])
    matrix, offset = chain.coupling.matrix, chain.coupling.offset
    moves = matrix != 0
    alone = moves & (moves.sum(1, keepdims=True) == 1)
    ends = (chain.limits.position - offset[:, None])[:, None] / jnp.where(alone, matrix, jnp.ones_like(matrix))[
        :, :, None
    ]
    lower = jnp.where(alone, ends.min(2), -jnp.inf).max(0)
    upper = jnp.where(alone, ends.max(2), jnp.inf).min(0)
    return jnp.stack([lower, upper], axis=1)


def _search(
    chain: Chain, task: Task, frame: str | None, first: Array, near: Array, tolerance: Array, max_iterations: int
) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """Iterate all starts and select the result: q, e, (status, iterations, reached)."""
    dtype, count, weights = first.dtype, first.shape[0], task.all_weights
    one = lambda at: _block(chain, at, task, frame)

    def arrived(at: Iterate) -> Array:
        return ((jnp.abs(at.error) <= tolerance) | (weights == 0)[None]).all(1)

    def goes_on(state: tuple[Iterate, Array]) -> Array:
        at, k = state
        stuck = (at.damping >= DAMPINGS[1]) | (at.slope <= 1e-3 * tolerance)
        return (k < max_iterations) & ~arrived(at).any() & ~((k > 0) & stuck.all())

    def body(state: tuple[Iterate, Array]) -> tuple[Iterate, Array]:
        at, k = state
        return jax.vmap(one)(at), k + BLOCK

    ones = jnp.ones(count, dtype)
    begin = Iterate(first, jnp.full((count, len(weights)), FAR, dtype), ones, ones)
    at, k = jax.lax.while_loop(goes_on, body, (begin, jnp.zeros((), jnp.int32)))
    there = arrived(at)
    size = ((weights[None] * at.error) ** 2).sum(1)
    away = jax.vmap(lambda q: (difference(chain, near, q) ** 2).sum())(at.q)
    best = jnp.where(there.any(), jnp.argmin(jnp.where(there, away, jnp.inf)), jnp.argmin(size))
    failure = jnp.where((at.error[best] < FAR).all(), int(Status.UNREACHABLE), int(Status.NOT_FINITE))
    status = jnp.where(there.any(), int(Status.CONVERGED), failure)
    return at.q[best], at.error[best], (status.astype(jnp.int32), k, there.sum().astype(jnp.int32))


def _block(chain: Chain, at: Iterate, task: Task, frame: str | None) -> Iterate:
    """Run BLOCK iterations from one start."""
    target, _, limits, clearance = task
    weights = task.all_weights
    lower, upper = limits[:, 0], limits[:, 1]
    if is_ordinary(chain) and clearance is None:
        return _ordinary_block(chain, at, target, weights, lower, upper, frame)

    def look(q):
        error, rows = pose_error(*place(chain, q), target, task.weights, frame)
        rows = tuple(joints_of(chain, row[None])[0] for row in rows)
        if clearance is None:
            return error, rows
        lack, gradient = _too_near(chain, clearance, q)
        return jnp.append(error, lack), (*rows, gradient)

    def propose(q, *rest):
        step, slope = damped_step(_coordinates(chain, q), *rest, lower, upper)
        return integrate(chain, q, step), slope

    rows = (jnp.zeros(chain.nv, at.q.dtype),) * len(weights)
    return walk_down(at, weights, rows, look, propose, BLOCK)


@by_batch(size=lambda chain: 300 + 60 * chain.n)
def _ordinary_block(chain: Chain, at: Iterate, target, weights, lower, upper, frame: str | None) -> Iterate:
    """Run BLOCK iterations for a chain of ordinary joints; on the CPU, a batch runs as a single kernel."""

    def propose(q, *rest):
        step, slope = damped_step(q, *rest, lower, upper)
        return q + step, slope

    look = lambda q: pose_error(chain, q, target, weights, frame)
    return walk_down(at, weights, (jnp.zeros_like(at.q),) * 6, look, propose, BLOCK)


def _coordinates(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Positions in the order of v: those of ordinary joints, and zeros in the entries of quaternion joints."""
    where = layout(chain)
    return jnp.zeros(chain.nv, q.dtype).at[where.columns].set(q[where.entries])


def _with_coordinates(chain: Chain, q: Float[Array, " nq"], values: Float[Array, " nv"]) -> Float[Array, " nq"]:
    where = layout(chain)
    return q.at[where.entries].set(values[where.columns])


def _starts(
    chain: Chain,
    target: Array,
    weights: Array,
    limits: Array,
    frame: str | None,
    guess: Array | None,
    starts: int,
    seed: int,
) -> Array:
    """Start positions (starts, nq) within the limits: the guess, if any, and the random ones with the nearest poses."""
    dtype, count = target.dtype, starts * DRAWS
    lower, upper = _finite(chain, limits)
    where, rng = layout(chain), np.random.default_rng(seed)
    parts = jnp.asarray(rng.uniform(size=(count, chain.nv)), dtype)
    random = rng.normal(size=(count, chain.nq))
    for joint in where.curved:
        random[:, joint.quaternion] /= np.linalg.norm(random[:, joint.quaternion], axis=1, keepdims=True)
    values = lower[None] + parts * (upper - lower)[None]
    q = jnp.asarray(random, dtype).at[:, where.entries].set(values[:, where.columns])
    poses = jax.vmap(functools.partial(frame_pose, chain, frame=frame))(q)
    away = ((weights[None, 3:] * (poses[:, :3, 3] - target[None, :3, 3])) ** 2).sum(1)
    turned = 3 - (poses[:, :3, :3] * target[None, :3, :3]).sum((1, 2))
    _, nearest = jax.lax.top_k(-(away + (weights[:3] ** 2).mean() * turned), starts)
    q = q[nearest]
    if guess is None:
        return q
    given = jax.lax.stop_gradient(guess).astype(q.dtype)
    inside = jnp.clip(_coordinates(chain, given), limits[:, 0], limits[:, 1])
    return q.at[0].set(_with_coordinates(chain, given, inside))


def _middle(chain: Chain, limits: Array, dtype) -> Array:
    """The configuration in the middle of the limits."""
    lower, upper = _finite(chain, limits)
    return _with_coordinates(chain, neutral_configuration(chain).astype(dtype), (lower + upper) / 2)


def _finite(chain: Chain, limits: Array) -> tuple[Array, Array]:
    """Replace missing limits: both by +-pi or +-1 m; a single one by a value 2 pi or 2 m from the other limit."""
    turns = (chain.screw[:, :3] != 0).any(1)
    turns = turns if chain.coupling is None else ((chain.coupling.matrix != 0) & turns[:, None]).any(0)
    half = jnp.where(turns, jnp.pi, 1.0).astype(limits.dtype)
    lower, upper = limits[:, 0], limits[:, 1]
    below, above = jnp.isfinite(lower), jnp.isfinite(upper)
    return (
        jnp.where(below, lower, jnp.where(above, upper - 2 * half, -half)),
        jnp.where(above, upper, jnp.where(below, lower + 2 * half, half)),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _following(frame: str | None, chain: Chain, target: Array, weights: Array, limits: Array, q: Array) -> Array:
    """Return q unchanged, with the derivative of a solution of the inverse kinematics: dq = -J^+ de."""
    del frame, chain, target, weights, limits
    return q


def _following_jvp(frame: str | None, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    chain, target, weights, limits, q = primals
    still = jax.lax.stop_gradient(target[:3, :3].T)  # R = R_d at q

    def error(chain: Chain, target: Array) -> Array:
        t = frame_pose(chain, q, frame)
        turn = rotation_log(target[:3, :3].T @ t[:3, :3])
        return weights * jnp.concatenate([turn, still @ (t[:3, 3] - target[:3, 3])])

    _, change = sparse_jvp(error, (chain, target), tangents[:2])
    here = _coordinates(chain, q)
    free = jnp.where((here <= limits[:, 0]) | (here >= limits[:, 1]), jnp.zeros_like(here), jnp.ones_like(here))
    mixed = jacobian(chain, q, frame, "mixed")
    moved = weights[:, None] * (still @ mixed.reshape(2, 3, -1)).reshape(6, -1) * free[None]
    system = moved @ moved.T
    regular = system + 4 * jnp.finfo(q.dtype).eps * (1 + jnp.trace(system)) * jnp.eye(6, dtype=q.dtype)
    dq = -moved.T @ (positive_inverse(regular) @ change)
    return _following(frame, *primals), jax.jvp(functools.partial(integrate, chain, q), (jnp.zeros_like(dq),), (dq,))[1]


_following.defjvp(_following_jvp, symbolic_zeros=True)


def _check(chain: Chain, target, weights, limits, starts: int, max_iterations: int) -> None:
    """Raise TrajectoryError for invalid arguments; values of traced arrays are not checked."""
    known = lambda x: None if isinstance(x, Tracer) else np.asarray(x, float)
    t, w, bounds = known(target), known(weights), known(limits)
    if weights.shape != (6,):
        raise TrajectoryError(f"weights have shape {weights.shape}; pass 6 weights, angular before linear")
    if starts < 1 or max_iterations < 1:
        raise TrajectoryError(f"starts={starts}, max_iterations={max_iterations}; both must be at least 1")
    if limits.shape != (chain.nv, 2):
        what = f"position limits have shape {limits.shape}"
        raise TrajectoryError(f"{what}; pass (lower, upper) for each of the {chain.nv} coordinates")
    if t is not None and np.isfinite(t).all():
        if np.abs(t[3] - (0, 0, 0, 1)).max() > 1e-6:
            what = f"the target is not a pose: its last row is {t[3].tolist()}, not (0, 0, 0, 1)"
            raise TrajectoryError(what, "pass the matrix [R, p; 0, 1]; if it is transposed, pass target.T")
        r = t[:3, :3]
        if np.abs(r.T @ r - np.eye(3)).max() > 1e-3 or np.linalg.det(r) < 0:
            raise TrajectoryError("the target is not a pose: its upper left 3 x 3 block is not a rotation")
    if w is not None and not ((w >= 0).all() and (w > 0).any()):
        raise TrajectoryError("the weights of the error must be non-negative, with at least one positive")
    if bounds is not None and (wrong := np.flatnonzero(~(bounds[:, 0] <= bounds[:, 1]))).size:
        what = f"the lower position limit of coordinate {wrong[0]} exceeds its upper limit"
        raise TrajectoryError(f"{what}, or one of them is NaN")
