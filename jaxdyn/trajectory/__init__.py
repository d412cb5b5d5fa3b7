"""Optimal control, linear-quadratic control, inverse kinematics, time-optimal paths, and policy optimisation."""

from .._exports import publish as _publish
from .check import MotionCheck as MotionCheck, Usage as Usage, check_motion as check_motion
from .collocation import solve_by_collocation as solve_by_collocation
from .constraints import (
    Clearance as Clearance,
    Constraint as Constraint,
    ContactWrenchCone as ContactWrenchCone,
    PointConstraint as PointConstraint,
    PoseConstraint as PoseConstraint,
    PositionLimits as PositionLimits,
    StateConstraint as StateConstraint,
    UserConstraint as UserConstraint,
    VelocityLimits as VelocityLimits,
    position_limits as position_limits,
    torque_limits as torque_limits,
    velocity_limits as velocity_limits,
)
from .costs import (
    CentreOfMassCost as CentreOfMassCost,
    ClearanceCost as ClearanceCost,
    Cost as Cost,
    Knot as Knot,
    PointCost as PointCost,
    PoseCost as PoseCost,
    ScalarCost as ScalarCost,
    StateCost as StateCost,
    TorqueCost as TorqueCost,
    TorqueRateCost as TorqueRateCost,
    UserCost as UserCost,
)
from .ik import (
    coordinate_limits as coordinate_limits,
    inverse_kinematics as inverse_kinematics,
)
from .lq import (
    LinearQuadratic as LinearQuadratic,
    linear_quadratic as linear_quadratic,
    riccati as riccati,
    solve_lq as solve_lq,
)
from .paths import (
    cartesian_motion as cartesian_motion,
    cubic_scaling as cubic_scaling,
    joint_motion as joint_motion,
    motion_along as motion_along,
    path_dynamics as path_dynamics,
    quintic_scaling as quintic_scaling,
    screw_motion as screw_motion,
    shortest_duration as shortest_duration,
    shortest_trapezoid as shortest_trapezoid,
    spline_path as spline_path,
    straight_path as straight_path,
    time_optimal_path as time_optimal_path,
    trapezoidal_scaling as trapezoidal_scaling,
)
from .policy import (
    PolicySettings as PolicySettings,
    clipped_adam as clipped_adam,
    optimise_policy as optimise_policy,
    policy_costs as policy_costs,
    policy_trajectory as policy_trajectory,
)
from .primal_dual import (
    interior_point as interior_point,
)
from .problem import (
    OptimalControlProblem as OptimalControlProblem,
    Solution as Solution,
    Status as Status,
    Trajectory as Trajectory,
    shift_guess as shift_guess,
    simulate_controls as simulate_controls,
    stationary_guess as stationary_guess,
    total_cost as total_cost,
)
from .shooting import solve_by_shooting as solve_by_shooting
from .splines import solve_by_inverse_dynamics as solve_by_inverse_dynamics

_publish(__name__)
