"""Wrenches at joints and on the ground, and the zero moment point."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Acceleration, Chain, Position, Velocity, Wrench, Wrenches
from ..model.compiled import checked, compiled
from ..model.configuration import place
from ..spatial.components import add, rotate, zeros
from ..spatial.se3 import adjoint, pose_inverse
from .composite_body import wrench_from
from .coordinates import base_at_rest, base_gravity, joint_accelerations, joint_rates, link_wrenches
from .engine.lanes import BaseGravity, LinkWrenches, PerLink, by_batch
from .engine.sweep import Link, inward, next_pose, outward, start_pose
from .kinematics import Reference, reference_poses
from .newton_euler import accelerate, body_wrench, remaining_wrench, transmit, wrench_columns


@compiled
def joint_wrenches(
    chain: Chain,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
    reference: Reference = "body",
) -> Float[Array, "n 6"]:
    """Wrenches F_i = (n_i, f_i) that each link's parent exerts on it through its joint, for a given motion, O(n) [N m, N].

        F_i = sum_j Ad_{T_ji}^T F_j + G_i dV_i - ad_{V_i}^T G_i V_i - (external wrench on i),

    where j are the children of link i, V_i is its twist and G_i its spatial inertia (Lynch & Park 2017, sec. 8.3;
    Spong, Hutchinson & Vidyasagar 2020, sec. 6.6).

    A force sensor at the joint measures F_i. A_i . F_i with the joint screw A_i is the torque of `inverse_dynamics`
    without armature and rotors. On a fixed base, the wrench on the first link is the reaction of the foundation. The
    wrench of a joint of several degrees of freedom is in the row of its last link.

    Args:
        external_wrenches: as for `inverse_dynamics`.
        wrench_by_tip: as for `inverse_dynamics`.
        reference: coordinates of the wrenches. "body": in the axes of link i, about the origin of its frame; "mixed":
            in world axes, about the origin of the link frame; "space": in world axes, about the world's origin.

    Raises:
        ModelError: the reference is unknown.
    """
    links, x = place(chain, q)
    gravity = base_gravity(links)
    at_base = jnp.concatenate([jnp.zeros(6, gravity.dtype), -gravity])
    acting = link_wrenches(chain, external_wrenches, wrench_by_tip)
    found, _ = joint_loads(links, x, joint_rates(chain, qd), joint_accelerations(chain, qd, qdd), at_base, acting)
    if reference == "body":
        return found
    back = jax.vmap(lambda t: adjoint(pose_inverse(t)).T)(reference_poses(chain, q, reference))
    return jnp.einsum("nij,nj->ni", back, found)


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def joint_loads(
    chain: Chain,
    x: PerLink,
    rates: PerLink,
    accelerations: PerLink,
    at_base: Float[Array, "9 *#lanes"],
    wrenches: LinkWrenches | None,
) -> tuple[Float[Array, "n 6 *#lanes"], Float[Array, "n *#lanes"]]:
    """Wrench of each joint on its link, in the link's frame, and its component along the screw; see `base_at_rest`."""

    def required(parent, link: Link, inputs):
        motion = accelerate(parent, link, *inputs[:2])
        return motion, remaining_wrench(body_wrench(link.inertia, *motion), inputs[2])

    def passed_on(children, link: Link, wrench):
        handed, torque = transmit(children, link, wrench)
        return handed, (add(children, wrench), torque)

    columns = wrench_columns(wrenches)
    zero = zeros(9, (x, rates, accelerations, at_base), (chain.inertia,))
    start = tuple(z + at_base[i] for i, z in enumerate(zero))
    needed = outward(chain, x, required, (start[:3], start[3:6], start[6:]), (rates, accelerations, columns))
    found, torques = inward(chain, x, passed_on, zero[:6], needed)
    return jnp.stack(found, axis=1), torques


@compiled
def ground_reaction(
    chain: Chain, q: Position, qd: Velocity, qdd: Acceleration, external_wrenches: Wrenches | None = None
) -> Float[Array, "6"]:
    """Wrench F = (n, f) of the ground on the robot, in world axes and about the world's origin, O(n) [N m, N].

    F is the rate of the robot's momentum minus the wrench of gravity and `external_wrenches`, which are in the link
    frames. Without the latter, f = sum_i m_i (acceleration of c_i - gravity), with the centre of mass c_i of link i.

    For a fixed base, F is the wrench of the base on the first links; the weight of the base must be added. For a robot
    with a free joint, F is the external wrench that the motion requires. It equals Ad_{T^-1}^T F_0, where F_0 contains
    the first six entries of inverse_dynamics, and T is the pose of the free body. Rotors and armature do not change F.
    """
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    return _ground_wrenches(links, x, rates, accelerations, base_gravity(links), external_wrenches).sum(1)


@by_batch
def _ground_wrenches(
    chain: Chain,
    x: PerLink,
    rates: PerLink,
    accelerations: PerLink,
    gravity: BaseGravity,
    wrenches: LinkWrenches | None,
) -> Float[Array, "6 n *#lanes"]:
    """The wrenches that the links' motions require, about the world's origin."""
    position, needed = world_wrenches(chain, x, rates, accelerations, gravity, wrenches)
    return jnp.stack(wrench_from(position, needed))


def world_wrenches(chain: Chain, x: Array, rates: Array, accelerations: Array, gravity: Array | None, wrenches):
    """Positions of the links and the wrenches that their motions require, in world axes about the links' origins."""

    def out(parent, link: Link, inputs):
        world, motion = parent
        r, p = world = next_pose(world, link)
        motion = accelerate(motion, link, *inputs[:2])
        needed = remaining_wrench(body_wrench(link.inertia, *motion), inputs[2])
        return (world, motion), (p, (*rotate(r, needed[:3]), *rotate(r, needed[3:])))

    columns = wrench_columns(wrenches)
    inputs = (x, rates, accelerations, *(() if columns is None else columns))
    zero = zeros(3, (*inputs, x if gravity is None else gravity), (chain.inertia,))
    motion = (zero,) * 3 if gravity is None else base_at_rest(gravity, zero)
    return outward(chain, x, out, (start_pose(chain, *inputs), motion), (rates, accelerations, columns))


@checked
def zero_moment_point(wrench: Wrench, height: float | Float[Array, ""] = 0.0) -> Float[Array, "2"]:
    """Zero moment point (x, y) at z = height, about which the wrench has no horizontal moment (Vukobratovic) [m].

    For a wrench (n, f) [N m, N] about the world's origin, in world axes with z up, and a height [m]:

        x = (height f_x - n_y) / f_z,  y = (height f_y + n_x) / f_z.

    For the wrench from `ground_reaction` and flat ground at this height, the point is the centre of pressure, which
    lies inside the sole unless the foot tips. The result does not depend on the sign of the wrench; if f_z = 0, it is
    NaN or infinite.
    """
    return jnp.stack([height * wrench[3] - wrench[1], height * wrench[4] + wrench[0]]) / wrench[5]
