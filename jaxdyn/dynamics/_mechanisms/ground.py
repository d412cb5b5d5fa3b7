"""The wrench of the ground on the robot, and the zero moment point."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import checked, compiled
from ...model._joints import Link
from ...spatial._components import move_wrench, sub, zeros
from .._kinematics.coordinates import base_gravity, joint_accelerations, joint_rates, place
from .._recursions.newton_euler import accelerate, body_wrench
from .._recursions.poses import start_pose, walk
from .._recursions.sweep import outward
from .._recursions.wrench import wrench_columns


@compiled
def ground_reaction(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
) -> Float[Array, "6"]:
    """Wrench F = (n, f) of the ground on the robot, in world axes and about the world's origin, O(n) [N m, N].

    F is the rate of the robot's momentum (l, p) minus the wrench of gravity and the external wrenches. It is computed by one
    outward sweep as the sum of the links' Newton-Euler wrenches about the world's origin. Without external wrenches, the force
    is f = sum_i m_i (acceleration of c_i - gravity), where c_i is the centre of mass of link i.

    For a fixed base, F is the wrench of the base on the first links. The mass of the base is not part of the model, so its
    weight must be added. For a robot with a free joint, F is the external wrench that the motion requires. It equals
    Ad_{T^-1}^T F_0, where F_0 contains the first six entries of inverse_dynamics, and T is the pose of the free body. Rotors
    and armature act internally and do not change F.

    Args:
        chain: the robot.
        q: joint positions [rad or m].
        v: joint velocities [rad/s or m/s].
        a: joint accelerations [rad/s^2 or m/s^2].
        external_wrenches: wrenches on each link other than those of the ground, in the link's frame [N m, N].
    """

    def out(parent, link: Link, x):
        world, motion = parent
        rate, acceleration, acting = x
        motion = accelerate(motion, link, rate, acceleration)
        moment, force = body_wrench(link.inertia, *motion)
        if acting is not None:
            moment, force = sub(moment, acting[:3]), sub(force, acting[3:])
        r, p = walk(world, link)
        return ((r, p), motion), move_wrench(r, p, (*moment, *force))

    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, v), joint_accelerations(chain, v, a)
    acting = wrench_columns(external_wrenches)
    gravity = base_gravity(links)
    zero = zeros(3, (x, rates, accelerations, gravity), (chain.inertia,))
    if acting is not None:
        zero = tuple(z + 0 * acting[0][0] for z in zero)
    lifted = tuple(z - g for z, g in zip(zero, (gravity[0], gravity[1], gravity[2]), strict=True))
    start = (start_pose(links, x, rates, accelerations), (zero, zero, lifted))
    wrenches = outward(links, x, out, start, (rates, accelerations, acting))
    return jnp.stack(wrenches).sum(1)


@checked
def zero_moment_point(wrench: Float[Array, "6"], height: float | Float[Array, ""] = 0.0) -> Float[Array, "2"]:
    """Zero moment point (x, y) at z = height, about which the wrench has no horizontal moment (Vukobratovic) [m].

    For a wrench (n, f) [N m, N] about the world's origin, in world axes with z up, and a height [m]:

        x = (height f_x - n_y) / f_z,  y = (height f_y + n_x) / f_z.

    For the wrench from `ground_reaction` and flat ground at this height, the point is the centre of pressure, which lies inside
    the sole unless the foot tips. At rest, it is the vertical projection of the centre of mass. The result does not depend on
    the sign of the wrench; if f_z = 0, it is NaN or infinite.
    """
    return jnp.stack([height * wrench[3] - wrench[1], height * wrench[4] + wrench[0]]) / wrench[5]
