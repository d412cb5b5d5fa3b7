"""Constraints phi(q) = 0: residual, Jacobian J, and bias dJ/dt qd."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain, frame_index
from ...model._compiled import compiled
from ...model._configuration import integrate
from ...model._joints import Link
from ...model._mechanisms.constraint import (
    Constraint,
    Constraints,
    FrameConstraint,
    FunctionConstraint,
    PfaffianConstraint,
    listed,
)
from ...model._tree import ancestor_mask
from ...spatial._components import add, cross, scale, unrotate, zeros
from ...spatial.se3 import pose
from ...spatial.so3 import rotation_exp, rotation_log, skew
from .._kinematics.coordinates import joint_accelerations, joint_rates, joints_of, place
from .._kinematics.forward_kinematics import Placements, placements
from .._kinematics.jacobian import screws_at
from .._recursions.poses import start_pose, walk_finely
from .._recursions.sweep import outward


class Terms(NamedTuple):
    """Residual phi, Jacobian J, and bias dJ/dt qd."""

    residual: Float[Array, " m"]
    jacobian: Float[Array, "m nv"]
    bias: Float[Array, " m"]


@compiled
def constraint_residual(chain: Chain, constraints: Constraints, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """Residual phi(q), which is zero if the constraints are satisfied [rad, m for frames].

    The rows of several constraints are stacked. For frames, the residual contains the rotation vector and the position of one
    frame relative to the other (`FrameConstraint`).

    Raises:
        ModelError: there is no constraint, or a constraint refers to an unknown frame.
    """
    constraints = listed(constraints)
    placed = placements(*place(chain, q)) if _needs_poses(constraints) else None
    poses = lambda c: None if placed is None or not isinstance(c, FrameConstraint) else _poses(chain, c, placed)
    return jnp.concatenate([_residual(chain, c, poses(c), q) for c in constraints])


@compiled
def constraint_jacobian(chain: Chain, constraints: Constraints, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
    """Jacobian J(q) with d phi/dt = J(q) qd: the derivative of phi(integrate(chain, q, dq)) with respect to dq at 0.

    For frames a and b with the relative pose E = T_b^-1 T_a, J is computed from the joint screws by dE/dt E^-1 =
    Ad_{T_b^-1} (V_a - V_b), the twist of a relative to b. The errors are the same as for `constraint_residual`.
    """
    constraints = listed(constraints)
    placed = placements(*place(chain, q)) if _needs_poses(constraints) else None
    return _jacobians(chain, constraints, placed, q)


@compiled
def constraint_bias(
    chain: Chain, constraints: Constraints, q: Float[Array, " nq"], qd: Float[Array, " nv"]
) -> Float[Array, " m"]:
    """Bias term dJ/dt qd in d2 phi/dt2 = J(q) qdd + dJ/dt qd: the second derivative of phi(integrate(chain, q, t qd)) at t = 0.

    For frames, the bias [rad/s^2, m/s^2] is computed from the link twists V and their rates dV/dt at qdd = 0, by one outward
    sweep. The errors are the same as for `constraint_residual`.
    """
    return constraint_terms(chain, constraints, q, qd).bias


def constraint_terms(chain: Chain, constraints: Constraints, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Terms:
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


def constraint_target(terms: Terms, qd: Float[Array, " nv"], stabilisation) -> Float[Array, " m"]:
    """The required value of J qdd: -dJ/dt qd - 2 alpha J qd - beta^2 phi."""
    alpha, beta = stabilisation
    return -terms.bias - 2 * alpha * (terms.jacobian @ qd) - beta**2 * terms.residual


def _needs_poses(constraints: tuple[Constraint, ...]) -> bool:
    return any(isinstance(c, FrameConstraint) for c in constraints)


def _link_motions(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]):
    """Placements of the links, and their twists V and dV/dt at qdd = 0 in the link frames, (n, 6).

    For joint positions x and the parent p of a link, V = Ad V_p + A x' and dV = Ad dV_p + ad_V A x' + A x'' (Lynch & Park 2017,
    sec. 8.3).
    """

    def out(parent, link: Link, x):
        here, twist, rate = parent
        axis, slide = link.screw[:3], link.screw[3:]
        spin, push = scale(x[0], axis), scale(x[0], slide)
        w, v = _transported(link, *twist)
        w, v = add(w, spin), add(v, push)
        dw, dv = _transported(link, *rate)
        dw = add(dw, cross(w, spin), scale(x[1], axis))
        dv = add(dv, cross(v, spin), cross(w, push), scale(x[1], slide))
        pose = walk_finely(here, link)
        return (pose, (w, v), (dw, dv)), (pose, (*w, *v), (*dw, *dv))

    links, x = place(chain, q)
    still = zeros(3, (q, qd), (chain.screw,))
    inputs = (joint_rates(chain, qd), joint_accelerations(chain, qd, jnp.zeros_like(qd)))
    # all values carried by a sweep must have the same type
    rotation, position = start_pose(links, x)
    base = (rotation, position, tuple(jnp.zeros_like(p) for p in position))
    columns, twists, rates = outward(links, x, out, (base, (still, still), (still, still)), inputs)
    placed = (jnp.concatenate([jnp.stack(y, axis=1), jnp.stack(z)[None]]) for y, z in zip(columns, base, strict=True))
    r, p, rest = placed
    return Placements(r.reshape(-1, 3, 3), p, rest), jnp.stack(twists, axis=1), jnp.stack(rates, axis=1)


def _transported(link: Link, w, v):
    """A twist of the parent in the link's frame."""
    return unrotate(link.rotation, w), unrotate(link.rotation, add(v, cross(w, link.translation)))


def _poses(chain: Chain, constraint: FrameConstraint, placed: Placements) -> Float[Array, "m 4 4"]:
    """Poses of all links, of the base and of the world in a frame with world axes at the origin of the constraint's link.

    In the world, far from its origin, the positions would have too few digits for the difference of two nearby frames.
    """
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
