"""Controllers, references, observers, adaptation laws, and simulation under a controller."""

from ._adaptation import (
    Adaptation as Adaptation,
    EuclideanAdaptation as EuclideanAdaptation,
    LogCholeskyAdaptation as LogCholeskyAdaptation,
    NaturalAdaptation as NaturalAdaptation,
)
from ._adaptive import AdaptiveControl as AdaptiveControl, AdaptiveState as AdaptiveState, Sliding as Sliding
from ._computed_torque import ErrorIntegral as ErrorIntegral, computed_torque as computed_torque
from ._drive_adaptation import DriveAdaptation as DriveAdaptation
from ._impedance import (
    Spring as Spring,
    impedance_control as impedance_control,
    impedance_damping as impedance_damping,
    impedance_energy as impedance_energy,
    stiffness_control as stiffness_control,
    task_spring as task_spring,
)
from ._joint_pd import gravity_compensation as gravity_compensation, pd_gravity_control as pd_gravity_control
from ._momentum_observer import (
    Collision as Collision,
    MomentumObserver as MomentumObserver,
    ObserverState as ObserverState,
    collision_threshold as collision_threshold,
)
from ._operational_space import operational_space_control as operational_space_control, posture_torque as posture_torque
from ._reference import (
    JointReference as JointReference,
    TaskReference as TaskReference,
    hold_configuration as hold_configuration,
    hold_pose as hold_pose,
)
from ._simulate import ControlledMotion as ControlledMotion, controlled_rollout as controlled_rollout
from ._task_space import (
    TaskSpace as TaskSpace,
    TaskStatus as TaskStatus,
    TaskTorque as TaskTorque,
    task_space as task_space,
)
