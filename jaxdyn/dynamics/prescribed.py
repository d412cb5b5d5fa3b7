"""Robots with a prescribed motion of the base or of some joints."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, Wrench, Wrenches
from ..model.compiled import compiled
from ..model.configuration import place
from ..model.mechanisms import coordinate_columns
from ..spatial.se3 import pose_inverse
from .composite_body import crba, mass_matrix_solve
from .coordinates import base_gravity, joint_accelerations, joint_rates, link_wrenches, with_drives
from .newton_euler import inverse_dynamics
from .wrenches import joint_loads


class BaseMotion(NamedTuple):
    """Motion of a robot's base, which replaces the chain's `base_pose`; `base_motion` computes it from a path.

    Attributes:
        pose: pose of the base in the world [m].
        twist: twist V_0 = (w, v) of the base, in its own frame [rad/s, m/s].
        acceleration: time derivatives dV_0/dt of the components of `twist`, without gravity [rad/s^2, m/s^2].
    """

    pose: Float[Array, "4 4"]
    twist: Float[Array, "6"]
    acceleration: Float[Array, "6"]


def base_motion(path: Callable[[Array], Array], time: float | Float[Array, ""]) -> BaseMotion:
    """Pose, twist and acceleration at `time` [s] of a base that follows a path T(t) of poses, where [V_0] = T^-1 dT/dt.

    The path is a twice differentiable function of time that returns the pose (4x4) of the base in the world [m].
    """
    time = jnp.asarray(time, jnp.result_type(time, float))

    def twist(t):
        here, rate = jax.jvp(path, (t,), (jnp.ones_like(t),))
        hat = pose_inverse(here) @ rate
        return jnp.stack([hat[2, 1], hat[0, 2], hat[1, 0], hat[0, 3], hat[1, 3], hat[2, 3]])

    v, dv = jax.jvp(twist, (time,), (jnp.ones_like(time),))
    return BaseMotion(path(time), v, dv)


@compiled
def moving_base_inverse_dynamics(
    chain: Chain,
    base: BaseMotion,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Force:
    """Joint torques that produce qdd while the base follows a prescribed motion, as on a ship, O(n) [N m or N].

    The recursion starts from the motion of the base, V_0 and dV_0 + (0, -R_0^T gravity), instead of from rest (Lynch &
    Park 2017, sec. 8.3). For a base at rest, the result is that of `inverse_dynamics`, with the same wrenches. To
    obtain the wrench that supports the base, use the first row of `dynamics.joint_wrenches` for the same robot with a
    free joint.

    Raises:
        ModelError: the robot has a free joint, so its base already moves; see `hybrid_dynamics`.
    """
    if chain.topology.is_floating:
        raise ModelError("the robot has a free joint, so its base already moves; use hybrid_dynamics")
    links, x = place(chain, q)
    w, v = base.twist[:3], base.twist[3:]
    gravity = base_gravity(dataclasses.replace(chain, base_pose=base.pose))
    at_base = jnp.concatenate([w, base.acceleration[:3], base.acceleration[3:] + jnp.cross(w, v) - gravity])
    acting = link_wrenches(chain, external_wrenches, wrench_by_tip)
    _, torques = joint_loads(links, x, joint_rates(chain, qd), joint_accelerations(chain, qd, qdd), at_base, acting)
    return with_drives(chain, torques, qdd)


@compiled
def moving_base_forward_dynamics(
    chain: Chain,
    base: BaseMotion,
    q: Position,
    qd: Velocity,
    tau: Force,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Acceleration:
    """Joint accelerations of a robot whose base has a prescribed motion, O(n^2).

    The accelerations are qdd = M(q)^-1 (tau - moving_base_inverse_dynamics(.., qdd=0)), where M is the mass matrix of
    the robot on a fixed base. Friction and springs are not included; to include them, pass tau - resistive_force(chain,
    q, qd). The errors are those of `moving_base_inverse_dynamics`.
    """
    still = jnp.zeros_like(qd)
    bias = moving_base_inverse_dynamics(chain, base, q, qd, still, external_wrenches, wrench_by_tip)
    return mass_matrix_solve(chain, q, tau - bias)


class HybridDynamics(NamedTuple):
    """The result of `hybrid_dynamics`, which describes it."""

    acceleration: Float[Array, " nv"]
    torques: Float[Array, " nv"]


@compiled
def hybrid_dynamics(
    chain: Chain,
    q: Position,
    qd: Velocity,
    prescribed: Sequence[str | int],
    prescribed_qdd: Float[Array, " k"],
    tau: Force,
    external_wrenches: Wrenches | None = None,
) -> HybridDynamics:
    """Hybrid dynamics: accelerations of the free coordinates f, and forces on the prescribed coordinates p, O(n^3):

        M_ff qdd_f = tau_f - (C qd + g)_f - M_fp qdd_p,    tau_p = M_pf qdd_f + M_pp qdd_p + (C qd + g)_p

    See Featherstone (2008, sec. 9.2). To prescribe the motion of a base, use the six columns of its free joint.
    Friction and springs are not included. To include them, pass tau - resistive_force(chain, q, qd), and add
    resistive_force to the resulting torques on the prescribed coordinates.

    Args:
        prescribed: names of joints (of coordinates if joints are coupled) or columns of v.
        prescribed_qdd: accelerations in the order of `prescribed` [rad/s^2 or m/s^2].
        tau: forces on all coordinates; entries for prescribed coordinates are ignored [N m or N].

    Returns:
        - acceleration: accelerations of all coordinates [rad/s^2 or m/s^2].
        - torques: torques on all coordinates [N m or N]: the given ones, or those that the prescribed motion requires.

    Raises:
        ModelError: a coordinate is unknown or repeated.
    """
    columns = coordinate_columns(chain, prescribed)
    free = np.setdiff1d(np.arange(chain.nv), columns)
    given = jnp.zeros_like(qd).at[columns].set(prescribed_qdd, unique_indices=True)
    if len(free):
        needed = (tau - inverse_dynamics(chain, q, qd, given, external_wrenches))[free]
        block = crba(chain, q)[np.ix_(free, free)]
        given = given.at[free].set(cho_solve(cho_factor(block, lower=True), needed), unique_indices=True)
    forces = inverse_dynamics(chain, q, qd, given, external_wrenches)
    return HybridDynamics(given, forces.at[free].set(tau[free], unique_indices=True))
