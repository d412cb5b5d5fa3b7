"""Optimal control, linear-quadratic control, inverse kinematics, time-optimal paths, and policy optimisation."""

from ._descent.gradient import solve_by_gradient as solve_by_gradient
from ._descent.optimiser import clipped_adam as clipped_adam
from ._descent.policy import (
    PolicyOptimisation as PolicyOptimisation,
    PolicySettings as PolicySettings,
    optimise_policy as optimise_policy,
    policy_costs as policy_costs,
    policy_trajectory as policy_trajectory,
)
from ._interior_point.solve import InteriorPointResult as InteriorPointResult, interior_point as interior_point
from ._kinematics.inverse_kinematics import (
    InverseKinematics as InverseKinematics,
    coordinate_limits as coordinate_limits,
    inverse_kinematics as inverse_kinematics,
)
from ._linear_quadratic.box_qp import box_qp as box_qp
from ._linear_quadratic.problem import (
    LinearQuadratic as LinearQuadratic,
    LQPolicy as LQPolicy,
    LQSolution as LQSolution,
    linear_quadratic as linear_quadratic,
)
from ._linear_quadratic.riccati import lq_rollout as lq_rollout, riccati as riccati
from ._linear_quadratic.riccati_scan import (
    lq_rollout_scan as lq_rollout_scan,
    riccati_scan as riccati_scan,
    solve_lq as solve_lq,
)
from ._paths.path import (
    PathDynamics as PathDynamics,
    SplinePath as SplinePath,
    path_dynamics as path_dynamics,
    spline_path as spline_path,
    straight_path as straight_path,
)
from ._paths.scaling import (
    JointMotion as JointMotion,
    PoseMotion as PoseMotion,
    cartesian_motion as cartesian_motion,
    cubic_scaling as cubic_scaling,
    joint_motion as joint_motion,
    quintic_scaling as quintic_scaling,
    scaled_time as scaled_time,
    screw_motion as screw_motion,
    shortest_duration as shortest_duration,
    shortest_trapezoid as shortest_trapezoid,
    trapezoidal_scaling as trapezoidal_scaling,
)
from ._paths.timing import (
    PathTiming as PathTiming,
    motion_along as motion_along,
    time_optimal_path as time_optimal_path,
)
from ._problem.constraints import (
    Clearance as Clearance,
    Constraint as Constraint,
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
from ._problem.contact import ContactWrenchCone as ContactWrenchCone
from ._problem.costs import (
    CentreOfMassCost as CentreOfMassCost,
    Cost as Cost,
    PointCost as PointCost,
    PoseCost as PoseCost,
    ScalarCost as ScalarCost,
    StateCost as StateCost,
    TorqueCost as TorqueCost,
    TorqueRateCost as TorqueRateCost,
    UserCost as UserCost,
)
from ._problem.guess import shift_guess as shift_guess, stationary_guess as stationary_guess
from ._problem.knot import Knot as Knot
from ._problem.problem import (
    OptimalControlProblem as OptimalControlProblem,
    simulate_controls as simulate_controls,
    total_cost as total_cost,
)
from ._problem.solution import (
    Guess as Guess,
    Residuals as Residuals,
    Solution as Solution,
    Status as Status,
    Trajectory as Trajectory,
)
from ._shooting.solve import solve_by_shooting as solve_by_shooting
from ._transcription.collocation import solve_by_collocation as solve_by_collocation
from ._transcription.inverse_dynamics import solve_by_inverse_dynamics as solve_by_inverse_dynamics
