"""Mechanisms beyond open chains of rigid links: closed loops, contacts, elastic joints, motors and moving bases."""

from ._exports import publish as _publish
from .dynamics.constraints import (
    constrained_forward_dynamics as constrained_forward_dynamics,
    constrained_inverse_dynamics as constrained_inverse_dynamics,
    constraint_bias as constraint_bias,
    constraint_jacobian as constraint_jacobian,
    constraint_residual as constraint_residual,
    independent_coordinates as independent_coordinates,
    project_configuration as project_configuration,
    project_velocity as project_velocity,
    reduced_coriolis_matrix as reduced_coriolis_matrix,
    reduced_dynamics as reduced_dynamics,
    reduced_forward_dynamics as reduced_forward_dynamics,
    reduced_gravity_force as reduced_gravity_force,
    reduced_regressor as reduced_regressor,
)
from .dynamics.elastic import (
    elastic_energy as elastic_energy,
    elastic_forward_dynamics as elastic_forward_dynamics,
    elastic_inverse_dynamics as elastic_inverse_dynamics,
    elastic_torque as elastic_torque,
    joint_torques_from_motors as joint_torques_from_motors,
    motor_rates as motor_rates,
    motor_torques as motor_torques,
)
from .dynamics.prescribed import (
    BaseMotion as BaseMotion,
    base_motion as base_motion,
    hybrid_dynamics as hybrid_dynamics,
    moving_base_forward_dynamics as moving_base_forward_dynamics,
    moving_base_inverse_dynamics as moving_base_inverse_dynamics,
)
from .dynamics.wrenches import (
    ground_reaction as ground_reaction,
    zero_moment_point as zero_moment_point,
)
from .model.drives import (
    ElasticJoints as ElasticJoints,
    elastic_chain as elastic_chain,
    elastic_joints as elastic_joints,
)
from .model.mechanisms import (
    FrameConstraint as FrameConstraint,
    FunctionConstraint as FunctionConstraint,
    PfaffianConstraint as PfaffianConstraint,
    point_constraint as point_constraint,
    pose_constraint as pose_constraint,
    with_moving_base_point as with_moving_base_point,
)
from .simulation.constrained import (
    constrained_rollout as constrained_rollout,
    constrained_step as constrained_step,
    hybrid_rollout as hybrid_rollout,
    moving_base_rollout as moving_base_rollout,
)
from .textbook import linkages as linkages, nonholonomic as nonholonomic

_publish(__name__, "linkages", "nonholonomic")
