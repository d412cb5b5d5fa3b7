"""Position and velocity servos of MJCF files: torques from controls, with their ranges."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..io.mjcf import on_plain_joint, tree_of
from ..model.chain import Chain, Position, Velocity, as_array, layout
from ..model.compiled import compiled


class Servos(eqx.Module):
    """Servos and motors, each on a revolute or prismatic joint.

    With the length l = gear q, a servo exerts gear (gain u + bias_0 + bias_1 l + bias_2 dl/dt) on its joint, where the control
    u and the force in parentheses are limited to their ranges. These are MuJoCo's actuators of the types motor, position and
    velocity, and general ones with fixed gain and affine bias.

    Attributes:
        gear: ratio of the length to the position of the joint.
        gain: force for each unit of control.
        bias: force without control [N m or N], and for each unit of length and of its rate.
        control_range: smallest and largest control, infinite if unlimited.
        force_range: smallest and largest force before the gear [N m or N].
        joint_range: smallest and largest torque of all servos of a joint [N m or N].
        joints: velocity that each servo drives.
        names: of the servos.
    """

    gear: Float[Array, " m"] = eqx.field(converter=as_array)
    gain: Float[Array, " m"] = eqx.field(converter=as_array)
    bias: Float[Array, "m 3"] = eqx.field(converter=as_array)
    control_range: Float[Array, "m 2"] = eqx.field(converter=as_array)
    force_range: Float[Array, "m 2"] = eqx.field(converter=as_array)
    joint_range: Float[Array, "nv 2"] = eqx.field(converter=as_array)
    joints: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)


class ServoTorques(NamedTuple):
    """The result of `servo_torques`, which describes it."""

    tau: Float[Array, " nv"]
    damping: Float[Array, " nv"]


def servos_from_mujoco(model: Any, chain: Chain) -> Servos:
    """The servos and motors of a compiled model (`mujoco.MjModel`), of which `chain` was made, in the order of its controls.

    Raises:
        ModelError: an actuator does not drive a single hinge or slide, has internal dynamics, or a gain that is not fixed or a
            bias that is not affine (muscles, cylinders, dampers, adhesion); or the chain is that of another model.
    """
    affine = (model.actuator_gaintype == 0) & (model.actuator_biastype <= 1) & (model.actuator_dyntype == 0)
    odd = np.flatnonzero(~(affine & on_plain_joint(model)))
    name = lambda i: model.actuator(int(i)).name or f"actuator{i}"
    if len(odd):
        listed = ", ".join(map(name, odd[:5]))
        fault = f"actuators other than motors and servos of single joints are not supported: {listed}"
        raise ModelError(fault, "compute their torques, or remove them from the model")
    dofs = [link.dof for link in tree_of(model).links]
    if len(dofs) != chain.nv:
        raise ModelError(
            f"the model has {len(dofs)} velocities, but the chain {chain.nv}", "load the chain from this model"
        )
    driven = model.jnt_dofadr[model.actuator_trnid.reshape(-1, 2)[:, 0]]
    joints = tuple(dofs.index(d) for d in driven)
    limited = lambda flags, ranges: np.where(np.asarray(flags, bool)[:, None], ranges, [-np.inf, np.inf])
    joint_range = limited(model.jnt_actfrclimited, model.jnt_actfrcrange)[model.dof_jntid][dofs]
    bias = np.where((model.actuator_biastype == 1)[:, None], model.actuator_biasprm[:, :3], 0)
    return Servos(
        model.actuator_gear[:, 0],
        model.actuator_gainprm[:, 0],
        bias,
        limited(model.actuator_ctrllimited, model.actuator_ctrlrange),
        limited(model.actuator_forcelimited, model.actuator_forcerange),
        joint_range,
        joints,
        tuple(map(name, range(model.nu))),
    )


@compiled
def servo_torques(chain: Chain, servos: Servos, q: Position, qd: Velocity, control: Float[Array, " m"]) -> ServoTorques:
    """Torques of servos (see `Servos`), and what a step needs to integrate their damping implicitly.

    Returns:
        - tau: torques at the joints, MuJoCo's `qfrc_actuator` [N m or N].
        - damping: -d tau/d qd, the argument `damping` of `contact_step` [N m s/rad]; zero at a limit of the force or joint.
    """
    joints = np.array(servos.joints, int)
    entries = layout(chain).entries_at(joints)
    u = jnp.clip(control, servos.control_range[:, 0], servos.control_range[:, 1])
    state = jnp.stack([jnp.ones_like(u), servos.gear * q[entries], servos.gear * qd[joints]], axis=1)
    force = servos.gain * u + jnp.sum(servos.bias * state, axis=1)
    low, high = servos.force_range.T
    inside = (force > low) & (force < high)
    total = lambda each: jnp.zeros_like(qd).at[joints].add(each)
    tau = total(servos.gear * jnp.clip(force, low, high))
    damping = total(jnp.where(inside, -(servos.gear**2) * servos.bias[:, 2], 0))
    least, most = servos.joint_range.T
    return ServoTorques(jnp.clip(tau, least, most), jnp.where((tau > least) & (tau < most), damping, 0))
