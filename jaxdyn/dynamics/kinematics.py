"""Kinematics: poses, Jacobians, twists and accelerations of links and frames.

A twist (w, v) or an acceleration is in "body", "space" or "mixed" coordinates (`jacobian`).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Position, Velocity, ancestor_mask, frame_index
from ..model.compiled import compiled
from ..model.configuration import integrate, place
from ..spatial.components import zeros
from ..spatial.se3 import adjoint
from .coordinates import joint_accelerations, joint_rates, joints_of
from .engine.lanes import PerLink, by_batch
from .engine.sweep import Link, carry_twist, next_pose, next_pose_finely, outward, start_pose
from .newton_euler import accelerate


@compiled
def forward_kinematics(chain: Chain, q: Position) -> Float[Array, "n 4 4"]:
    """Poses T_0i of all link frames in the world, T_0i = T_0p M_i exp([A_i] q_i) with p the parent of i, O(n) [m].

    See Lynch & Park (2017, sec. 4.1). The world frame is the base frame without a `base_pose` or a free joint.
    """
    return link_poses(*place(chain, q))


@by_batch(size=lambda chain: 100 + 40 * chain.n)
def link_poses(chain: Chain, x: PerLink) -> Float[Array, "n 4 4 *#lanes"]:
    """Poses of the links of a chain with ordinary joints, in the world."""

    def out(parent, link: Link, _):
        here = next_pose(parent, link)
        return here, here

    r, p = outward(chain, x, out, start_pose(chain, x))
    zero, one = jnp.zeros_like(p[0]), jnp.ones_like(p[0])
    entries = [*r[0:3], p[0], *r[3:6], p[1], *r[6:9], p[2], zero, zero, zero, one]
    return jnp.stack(entries, axis=1).reshape(chain.n, 4, 4, *zero.shape[1:])


class Placements(NamedTuple):
    """Rotations of the links and of the base (the last row), and their positions p + rest (`next_pose_finely`)."""

    rotation: Float[Array, "m 3 3"]
    position: Float[Array, "m 3"]
    rest: Float[Array, "m 3"]

    def seen_from(self, link: int) -> Float[Array, "m 3"]:
        """Vectors in world axes from the origin of a link, or of the base if -1, to those of all links and of the base."""
        return (self.position - self.position[link][None]) + (self.rest - self.rest[link][None])


def placements(chain: Chain, x: Float[Array, " n"]) -> Placements:
    """Rotations and positions of the links of a chain with ordinary joints; differences of positions are accurate."""
    entries = _placement_entries(chain, x)
    base = jnp.eye(4, dtype=entries.dtype) if chain.base_pose is None else chain.base_pose.astype(entries.dtype)
    last = jnp.concatenate([base[:3, :3].reshape(-1), base[:3, 3], jnp.zeros(3, entries.dtype)])
    entries = jnp.concatenate([entries, last[None]])
    return Placements(entries[:, :9].reshape(-1, 3, 3), entries[:, 9:12], entries[:, 12:])


@by_batch(size=lambda chain: 100 + 40 * chain.n)
def _placement_entries(chain: Chain, x: PerLink) -> Float[Array, "n 15 *#lanes"]:
    def out(parent, link: Link, _):
        here = next_pose_finely(parent, link)
        return here, here

    rotation, position = start_pose(chain, x)
    nothing = tuple(jnp.zeros_like(p) for p in position)
    r, p, rest = outward(chain, x, out, (rotation, position, nothing))
    return jnp.stack([*r, *p, *rest], axis=1)


@compiled
def frame_pose(chain: Chain, q: Position, frame: str | None = None) -> Float[Array, "4 4"]:
    """Pose T_0f in the world of a link or named frame, or of the chain's tip if `frame` is None [m].

    Raises:
        ModelError: the chain has no link or frame of that name.
    """
    return pose_among(chain, forward_kinematics(chain, q), frame)


def pose_among(chain: Chain, poses: Float[Array, "n 4 4"], frame: str | None) -> Float[Array, "4 4"]:
    """Pose of a link or named frame in the world, from the poses of all links."""
    link, k = frame_index(chain, frame)
    base = jnp.eye(4, dtype=poses.dtype) if chain.base_pose is None else chain.base_pose.astype(poses.dtype)
    t = poses[link] if link >= 0 else base
    return t if k is None else t @ chain.frame_poses[k].astype(t.dtype)


Reference = Literal["body", "space", "mixed"]
AccelerationKind = Literal["spatial", "conventional"]


@compiled
def jacobian(
    chain: Chain, q: Position, frame: str | None = None, reference: Reference = "body"
) -> Float[Array, "6 nv"]:
    """Jacobian J(q) of a link or named frame, V = (w, v) = J(q) qd (Lynch & Park 2017, sec. 5.1), O(n) [rad/s, m/s].

    Args:
        frame: name of a link or frame; by default, the chain's tip.
        reference: the coordinates of the twist. "body": in the axes of the frame, where v is the velocity of its
            origin. "space": in world axes, where v is the velocity of the body-fixed point at the world's origin.
            "mixed": in world axes, where v is the velocity of the frame's origin.

    Raises:
        ModelError: the frame or reference is unknown.
    """
    _check_reference(reference)
    links, x = place(chain, q)
    placed = placements(links, x)
    link, k = frame_index(chain, frame)
    # from the joints to the point of the twist; the links' positions in the world may have too few digits for that
    own = jnp.eye(4, dtype=placed.position.dtype) if k is None else chain.frame_poses[k].astype(placed.position.dtype)
    if reference == "space":
        to_point = -(placed.position + placed.rest)
    else:
        to_point = (placed.rotation[link] @ own[:3, 3])[None] - placed.seen_from(link)
    moves = ancestor_mask(chain.topology.parents)[:, link] if link >= 0 else jnp.zeros(chain.n, bool)
    columns = screws_at(links, placed, to_point)
    columns = joints_of(chain, jnp.where(moves, columns, jnp.zeros_like(columns)))
    if reference != "body":
        return columns
    axes = placed.rotation[link] @ own[:3, :3]
    return jnp.concatenate([axes.T @ columns[:3], axes.T @ columns[3:]])


def screws_at(chain: Chain, placed: Placements, to_point: Float[Array, "m 3"]) -> Float[Array, "6 n"]:
    """The joint screws (w, v) in world axes, with v at a point; `to_point` leads from the links' origins to that point."""
    rotation, screw = placed.rotation[:-1], chain.screw.astype(placed.rotation.dtype)
    w, v = (jnp.einsum("nij,nj->ni", rotation, s) for s in (screw[:, :3], screw[:, 3:]))
    return jnp.concatenate([w, v + jnp.cross(w, to_point[:-1])], axis=1).T


@compiled
def jacobian_derivative(
    chain: Chain, q: Position, qd: Velocity, frame: str | None = None, reference: Reference = "body"
) -> Float[Array, "6 nv"]:
    """Time derivative dJ/dt of the `jacobian` along qd, with dV/dt = J(q) qdd + dJ/dt qd [rad/s^2, m/s^2]."""
    moved = lambda time: jacobian(chain, integrate(chain, q, time * qd), frame, reference)
    return jax.jvp(moved, (jnp.zeros((), qd.dtype),), (jnp.ones((), qd.dtype),))[1]


@compiled
def link_twists(chain: Chain, q: Position, qd: Velocity, reference: Reference = "body") -> Float[Array, "n 6"]:
    """Twists V_i = (w_i, v_i) = J_i(q) qd of all links, where J_i is the `jacobian`, by one sweep, O(n) [rad/s, m/s].

    The recursion is V_i = Ad_{T_ip} V_p + A_i qd_i, where p is the parent of link i (Lynch & Park 2017, sec. 8.3).

    Raises:
        ModelError: the reference is unknown.
    """
    links, x = place(chain, q)
    twists = body_twists(links, x, joint_rates(chain, qd))
    return twists if reference == "body" else _to_reference(chain, q, twists, reference)


@compiled
def link_accelerations(
    chain: Chain,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    reference: Reference = "body",
    kind: AccelerationKind = "spatial",
) -> Float[Array, "n 6"]:
    """Accelerations of all links, without gravity, O(n) [rad/s^2, m/s^2].

    The spatial acceleration dV_i/dt = J_i qdd + dJ_i/dt qd is the component-wise time derivative of `link_twists`. In
    body coordinates, it is dV_i = Ad_{T_ip} dV_p + ad_{V_i} A_i qd_i + A_i qdd_i with p the parent of i (Lynch & Park
    2017, sec. 8.3, where dV_i also includes -g).

    The conventional acceleration (dw_i/dt, d2p/dt2) contains the acceleration of a point p of the body. In body
    coordinates, p is the frame's origin, and d2p/dt2 = dv/dt + w x v in the axes of the frame. In mixed coordinates,
    d2p/dt2 is the same vector in world axes, and the two kinds of acceleration are equal. In space coordinates, p is
    the body-fixed point at the world's origin.

    Raises:
        ModelError: the reference or kind is unknown.
    """
    if kind not in ("spatial", "conventional"):
        raise ModelError(f"the kind of acceleration must be 'spatial' or 'conventional', not {kind!r}")
    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    conventional = link_motions(links, x, rates, joint_accelerations(chain, qd, qdd))[:, 3:]
    if reference == "mixed":
        return _to_reference(chain, q, conventional, reference)
    if reference == "body" and kind == "conventional":
        return conventional
    twists = body_twists(links, x, rates)
    found = conventional.at[:, 3:].add(-jnp.cross(twists[:, :3], twists[:, 3:]))
    if reference != "body":
        twists, found = (_to_reference(chain, q, y, reference) for y in (twists, found))  # d(Ad_T V)/dt = Ad_T dV
    if kind == "conventional":
        found = found.at[:, 3:].add(jnp.cross(twists[:, :3], twists[:, 3:]))
    return found


@compiled
def frame_acceleration(
    chain: Chain, q: Position, qd: Velocity, qdd: Acceleration, frame: str | None = None
) -> Float[Array, "6"]:
    """Acceleration dV/dt = J qdd + dJ/dt qd of a frame in mixed coordinates, without Jacobians, O(n) [rad/s^2, m/s^2].

    The linear part is the acceleration of the frame's origin, without gravity. `frame` is as for `jacobian`.

    Raises:
        ModelError: the frame is unknown.
    """
    link, k = frame_index(chain, frame)
    links, x = place(chain, q)
    motions = link_motions(links, x, joint_rates(chain, qd), joint_accelerations(chain, qd, qdd))
    if link < 0:
        return jnp.zeros(6, motions.dtype)
    rotation = link_poses(links, x)[link, :3, :3]
    w, dw, linear = motions[link].reshape(3, 3)
    if k is not None:
        p = chain.frame_poses[k, :3, 3].astype(motions.dtype)
        linear = linear + jnp.cross(dw, p) + jnp.cross(w, jnp.cross(w, p))
    return jnp.concatenate([rotation @ dw, rotation @ linear])


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def body_twists(chain: Chain, x: PerLink, rates: PerLink) -> Float[Array, "n 6 *#lanes"]:
    """Twists of the links of a chain with ordinary joints, in body coordinates."""

    def out(parent, link: Link, rate):
        twist = carry_twist(parent, link, rate)
        return twist, (*twist[0], *twist[1])

    zero = zeros(3, (x, rates), (chain.screw,))
    return jnp.stack(outward(chain, x, out, (zero, zero), rates), axis=1)


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def link_motions(chain: Chain, x: PerLink, rates: PerLink, accelerations: PerLink) -> Float[Array, "n 9 *#lanes"]:
    """Motion of every link in its own axes: w, dw and the conventional acceleration a of its origin (`accelerate`)."""

    def out(parent, link: Link, inputs):
        w, dw, a = motion = accelerate(parent, link, *inputs)
        return motion, (*w, *dw, *a)

    zero = zeros(3, (x, rates, accelerations), (chain.screw,))
    return jnp.stack(outward(chain, x, out, (zero, zero, zero), (rates, accelerations)), axis=1)


def reference_poses(chain: Chain, q: Position, reference: Reference) -> Float[Array, "n 4 4"]:
    """Poses of the link frames in the world ("space"), or in a frame with world axes at the origin of each link ("mixed")."""
    _check_reference(reference)
    poses = forward_kinematics(chain, q)
    return poses if reference == "space" else poses.at[:, :3, 3].set(jnp.zeros_like(poses[:, :3, 3]))


def _to_reference(chain: Chain, q: Array, motions: Float[Array, "n 6"], reference: Reference) -> Float[Array, "n 6"]:
    """Twists or accelerations of the links in the coordinates of a reference, from body coordinates."""
    return jnp.einsum("nij,nj->ni", jax.vmap(adjoint)(reference_poses(chain, q, reference)), motions)


def _check_reference(reference: str) -> None:
    if reference not in ("body", "space", "mixed"):
        raise ModelError(f"the reference must be 'body', 'space' or 'mixed', not {reference!r}")
