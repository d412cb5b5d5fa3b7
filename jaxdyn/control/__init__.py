"""Controllers, their references and observers, adaptation laws, and rollouts under a controller."""

from .adaptation import (
    Adaptation as Adaptation,
    EuclideanAdaptation as EuclideanAdaptation,
    LogCholeskyAdaptation as LogCholeskyAdaptation,
    NaturalAdaptation as NaturalAdaptation,
)
from .adaptive import AdaptiveControl as AdaptiveControl, AdaptiveState as AdaptiveState, Sliding as Sliding
from .computed_torque import ErrorIntegral as ErrorIntegral, computed_torque as computed_torque
from .drive_adaptation import DriveAdaptation as DriveAdaptation
from .impedance import (
    Spring as Spring,
    impedance_control as impedance_control,
    impedance_damping as impedance_damping,
    impedance_energy as impedance_energy,
    stiffness_control as stiffness_control,
    task_spring as task_spring,
)
from .joint_pd import gravity_compensation as gravity_compensation, pd_gravity_control as pd_gravity_control
from .momentum_observer import (
    Collision as Collision,
    MomentumObserver as MomentumObserver,
    ObserverState as ObserverState,
    collision_threshold as collision_threshold,
)
from .operational_space import operational_space_control as operational_space_control, posture_torque as posture_torque
from .reference import (
    JointReference as JointReference,
    TaskReference as TaskReference,
    hold_configuration as hold_configuration,
    hold_pose as hold_pose,
)
from .simulate import ControlledMotion as ControlledMotion, controlled_rollout as controlled_rollout
from .task_space import (
    TaskSpace as TaskSpace,
    TaskStatus as TaskStatus,
    TaskTorque as TaskTorque,
    task_space as task_space,
)
