"""Mechanisms beyond open chains of rigid links: closed loops, contacts, elastic joints, motors and moving bases."""

from .dynamics._mechanisms.closure import (
    Projection as Projection,
    project_configuration as project_configuration,
    project_velocity as project_velocity,
)
from .dynamics._mechanisms.constrained import (
    ConstrainedDynamics as ConstrainedDynamics,
    ConstrainedTorques as ConstrainedTorques,
    constrained_forward_dynamics as constrained_forward_dynamics,
    constrained_inverse_dynamics as constrained_inverse_dynamics,
)
from .dynamics._mechanisms.constraint import (
    constraint_bias as constraint_bias,
    constraint_jacobian as constraint_jacobian,
    constraint_residual as constraint_residual,
)
from .dynamics._mechanisms.elastic import (
    elastic_energy as elastic_energy,
    elastic_forward_dynamics as elastic_forward_dynamics,
    elastic_inverse_dynamics as elastic_inverse_dynamics,
    elastic_torque as elastic_torque,
)
from .dynamics._mechanisms.ground import ground_reaction as ground_reaction, zero_moment_point as zero_moment_point
from .dynamics._mechanisms.motors import (
    joint_torques_from_motors as joint_torques_from_motors,
    motor_rates as motor_rates,
    motor_torques as motor_torques,
)
from .dynamics._mechanisms.prescribed import (
    BaseMotion as BaseMotion,
    HybridDynamics as HybridDynamics,
    base_motion as base_motion,
    hybrid_dynamics as hybrid_dynamics,
    moving_base_forward_dynamics as moving_base_forward_dynamics,
    moving_base_inverse_dynamics as moving_base_inverse_dynamics,
)
from .dynamics._mechanisms.reduction import (
    ReducedDynamics as ReducedDynamics,
    independent_coordinates as independent_coordinates,
    reduced_coriolis_matrix as reduced_coriolis_matrix,
    reduced_dynamics as reduced_dynamics,
    reduced_forward_dynamics as reduced_forward_dynamics,
    reduced_gravity_force as reduced_gravity_force,
    reduced_regressor as reduced_regressor,
)
from .model._examples import linkages as linkages, nonholonomic as nonholonomic
from .model._mechanisms.base_point import with_moving_base_point as with_moving_base_point
from .model._mechanisms.constraint import (
    FrameConstraint as FrameConstraint,
    FunctionConstraint as FunctionConstraint,
    PfaffianConstraint as PfaffianConstraint,
    point_constraint as point_constraint,
    pose_constraint as pose_constraint,
)
from .model._mechanisms.elastic import (
    ElasticJoints as ElasticJoints,
    elastic_chain as elastic_chain,
    elastic_joints as elastic_joints,
)
from .simulation._constrained import constrained_rollout as constrained_rollout, constrained_step as constrained_step
from .simulation._prescribed import hybrid_rollout as hybrid_rollout, moving_base_rollout as moving_base_rollout
