"""Controllers, references, observers, adaptation laws, and simulation under a controller."""

from .._exports import publish as _publish
from ..simulation.rollouts import (
    controlled_rollout as controlled_rollout,
)
from .adaptive import (
    Adaptation as Adaptation,
    AdaptiveControl as AdaptiveControl,
    DriveAdaptation as DriveAdaptation,
    EuclideanAdaptation as EuclideanAdaptation,
    LogCholeskyAdaptation as LogCholeskyAdaptation,
    NaturalAdaptation as NaturalAdaptation,
)
from .joint_space import (
    ErrorIntegral as ErrorIntegral,
    JointReference as JointReference,
    TaskReference as TaskReference,
    computed_torque as computed_torque,
    gravity_compensation as gravity_compensation,
    hold_configuration as hold_configuration,
    hold_pose as hold_pose,
    pd_gravity_control as pd_gravity_control,
)
from .observer import (
    MomentumObserver as MomentumObserver,
    ObserverState as ObserverState,
    collision_threshold as collision_threshold,
)
from .tasks import (
    TaskStatus as TaskStatus,
    TaskTorque as TaskTorque,
    impedance_control as impedance_control,
    impedance_damping as impedance_damping,
    impedance_energy as impedance_energy,
    operational_space_control as operational_space_control,
    posture_torque as posture_torque,
    stiffness_control as stiffness_control,
    task_space as task_space,
    task_spring as task_spring,
)

_publish(__name__)
