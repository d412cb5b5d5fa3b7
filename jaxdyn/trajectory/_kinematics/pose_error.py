"""The pose error of a frame, its Jacobian, and one projected Levenberg-Marquardt step.

The error consists of six numbers that describe the pose of the frame relative to the target, in the target's axes, with angular
components first:

    e(q) = (log(R_d^T R(q)), R_d^T (p(q) - p_d)) [rad, m].

A component with weight zero is free. The Jacobian of e is approximated by (R_d^T J_w, R_d^T J_v), where J_w and J_v are the
frame's angular and linear Jacobians in the world. The approximation is exact if log(R_d^T R) = 0. The gradient of |e|^2 / 2 is
nevertheless exact everywhere if the angular weights are equal, because a rotation leaves its own axis unchanged.

The functions scan over the joints; the last axis of their arrays, if present, contains the lanes of a batch
(`dynamics._lowering`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics._equations.mass_matrix_inverse import positive_inverse
from ...dynamics._lowering import by_batch, lane_shape, spread_over_lanes
from ...dynamics._recursions.poses import start_pose, walk
from ...dynamics._recursions.sweep import outward
from ...model._chain import Chain, frame_index
from ...model._joints import Link
from ...model._tree import ancestor_mask
from ...spatial._components import Mat, Vec, add, cross, dot, matmul, rotate, scale, sub, unstack

SHRINK, GROW = 0.2, 4.0  # factors applied to the damping after an accepted and a rejected step
DAMPINGS = (1e-6, 1e8)
FAR = 1e4  # larger than any error
PAIRS = [(i, j) for i in range(6) for j in range(i, 6)]
Columns = tuple[Array, ...]  # six arrays of shape (n,) or (n, lanes)


class Iterate(NamedTuple):
    """The current iterate of a search.

    Attributes:
        q: best position so far.
        error: pose error e at q.
        damping: mu in lambda = mu |e|^2 / 2.
        slope: largest entry of the projected gradient at q.
    """

    q: Float[Array, "nq *#lanes"]
    error: Float[Array, "6 *#lanes"]
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
        r, p = walk(parent, here)
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
    error: Float[Array, "6 *#lanes"],
    jacobian: Columns,
    damping: Float[Array, "*#lanes"],
    lower: Float[Array, "nv *#lanes"],
    upper: Float[Array, "nv *#lanes"],
) -> tuple[Float[Array, "nv *#lanes"], Float[Array, "*#lanes"]]:
    """The step dq = -J^T (J J^T + lambda 1)^-1 e of the free joints, and the largest entry of J^T e over these joints.

    A joint at a limit is held if descent would push it beyond the limit; all others are free, and their step is clipped to
    the limits. The linear system is 6 x 6 for any number of joints.
    """
    lower, upper = (spread_over_lanes(x) for x in (lower, upper))
    e = unstack(error)

    def gather(carry, x):
        system, slope = carry
        here, low, high, columns = x
        gradient = dot(columns, e)
        held = ((here <= low) & (gradient > 0)) | ((here >= high) & (gradient < 0))
        free = jnp.where(held, jnp.zeros_like(here), jnp.ones_like(here))
        moved = scale(free, columns)
        system = tuple(a + moved[i] * moved[j] for a, (i, j) in zip(system, PAIRS, strict=True))
        return (system, jnp.maximum(slope, jnp.abs(gradient) * free)), moved

    zero = jnp.zeros_like(e[0])
    (system, slope), moved = jax.lax.scan(gather, ((zero,) * len(PAIRS), zero), (q, lower, upper, jacobian))
    damp = damping * dot(e, e) / 2 + 4 * jnp.finfo(q.dtype).eps
    entries = {pair: a + damp if pair[0] == pair[1] else a for a, pair in zip(system, PAIRS, strict=True)}
    matrix = jnp.stack([jnp.stack([entries[min(i, j), max(i, j)] for j in range(6)]) for i in range(6)])
    y = unstack((positive_inverse(matrix) * error[None]).sum(1))

    def propose(_, x):
        here, low, high, columns = x
        return None, jnp.clip(here - dot(columns, y), low, high) - here

    return jax.lax.scan(propose, None, (q, lower, upper, moved))[1], slope


def walk_down(
    at: Iterate, weights: Float[Array, "6 *#lanes"], rows: Columns, look: Callable, propose: Callable, count: int
) -> Iterate:
    """Iterate `count` times: evaluate the trial, accept it if its error is smaller, adapt the damping, propose a new trial.

    Args:
        weights: weights w of the components of the error.
        rows: zeros with the shape of the Jacobian.
        look: q -> (e, w de/dq).
        propose: (q, w e, w de/dq, damping) -> (next trial, slope at q).
    """

    def weigh(error: Array) -> Array:
        return jnp.stack([weights[i] * error[i] for i in range(6)])

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
