"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters."""

from .control.adaptation import (
    Adaptation as Adaptation,
    EuclideanAdaptation as EuclideanAdaptation,
    LogCholeskyAdaptation as LogCholeskyAdaptation,
    NaturalAdaptation as NaturalAdaptation,
)
from .control.adaptive import (
    AdaptiveControl as AdaptiveControl,
    AdaptiveState as AdaptiveState,
    Sliding as Sliding,
)
from .control.computed_torque import (
    ErrorIntegral as ErrorIntegral,
    computed_torque as computed_torque,
)
from .control.drive_adaptation import (
    DriveAdaptation as DriveAdaptation,
)
from .control.impedance import (
    Spring as Spring,
    impedance_control as impedance_control,
    impedance_damping as impedance_damping,
    impedance_energy as impedance_energy,
    stiffness_control as stiffness_control,
    task_spring as task_spring,
)
from .control.joint_pd import (
    gravity_compensation as gravity_compensation,
    pd_gravity_control as pd_gravity_control,
)
from .control.momentum_observer import (
    Collision as Collision,
    MomentumObserver as MomentumObserver,
    ObserverState as ObserverState,
    collision_threshold as collision_threshold,
)
from .control.operational_space import (
    operational_space_control as operational_space_control,
    posture_torque as posture_torque,
)
from .control.reference import (
    JointReference as JointReference,
    TaskReference as TaskReference,
    hold_configuration as hold_configuration,
    hold_pose as hold_pose,
)
from .control.simulate import (
    ControlledMotion as ControlledMotion,
    controlled_rollout as controlled_rollout,
)
from .control.task_space import (
    TaskSpace as TaskSpace,
    TaskStatus as TaskStatus,
    TaskTorque as TaskTorque,
    task_space as task_space,
)
from .deployment.export import (
    export_function as export_function,
)
from .deployment.load import (
    ExportedFunction as ExportedFunction,
    load_exported as load_exported,
)
from .dynamics.centroidal import (
    centre_of_mass as centre_of_mass,
    centre_of_mass_jacobian as centre_of_mass_jacobian,
    centroidal_momentum as centroidal_momentum,
    centroidal_momentum_bias as centroidal_momentum_bias,
    centroidal_momentum_matrix as centroidal_momentum_matrix,
    total_mass as total_mass,
    total_momentum as total_momentum,
)
from .dynamics.closure import (
    Projection as Projection,
    project_configuration as project_configuration,
    project_velocity as project_velocity,
)
from .dynamics.constrained import (
    ConstrainedDynamics as ConstrainedDynamics,
    ConstrainedTorques as ConstrainedTorques,
    constrained_forward_dynamics as constrained_forward_dynamics,
    constrained_inverse_dynamics as constrained_inverse_dynamics,
)
from .dynamics.constraint import (
    constraint_bias as constraint_bias,
    constraint_jacobian as constraint_jacobian,
    constraint_residual as constraint_residual,
)
from .dynamics.coriolis import (
    christoffel_symbols as christoffel_symbols,
    coriolis_matrix as coriolis_matrix,
)
from .dynamics.derivatives import (
    ForwardDynamicsDerivatives as ForwardDynamicsDerivatives,
    InverseDynamicsDerivatives as InverseDynamicsDerivatives,
    forward_dynamics_derivatives as forward_dynamics_derivatives,
    inverse_dynamics_derivatives as inverse_dynamics_derivatives,
)
from .dynamics.elastic import (
    elastic_energy as elastic_energy,
    elastic_forward_dynamics as elastic_forward_dynamics,
    elastic_inverse_dynamics as elastic_inverse_dynamics,
    elastic_torque as elastic_torque,
)
from .dynamics.energy import (
    euler_lagrange_torque as euler_lagrange_torque,
    kinetic_energy as kinetic_energy,
    lagrangian as lagrangian,
    potential_energy as potential_energy,
    total_energy as total_energy,
)
from .dynamics.energy_regressors import (
    kinetic_energy_regressor as kinetic_energy_regressor,
    momentum_regressor as momentum_regressor,
    passivity_regressor as passivity_regressor,
    passivity_regressor_product as passivity_regressor_product,
    potential_energy_regressor as potential_energy_regressor,
)
from .dynamics.forward import (
    aba as aba,
    forward_dynamics as forward_dynamics,
    mass_matrix_solve as mass_matrix_solve,
)
from .dynamics.frame_acceleration import (
    frame_acceleration as frame_acceleration,
)
from .dynamics.friction import (
    friction_force as friction_force,
    passive_force as passive_force,
    spring_energy as spring_energy,
    spring_force as spring_force,
)
from .dynamics.ground import (
    ground_reaction as ground_reaction,
    zero_moment_point as zero_moment_point,
)
from .dynamics.hamiltonian import (
    generalised_momentum as generalised_momentum,
    hamiltonian as hamiltonian,
    hamiltonian_flow as hamiltonian_flow,
    momentum_drift as momentum_drift,
)
from .dynamics.inverse import (
    bias_force as bias_force,
    coriolis_force as coriolis_force,
    gravity_force as gravity_force,
    inverse_dynamics as inverse_dynamics,
)
from .dynamics.jacobian import (
    jacobian as jacobian,
    jacobian_derivative as jacobian_derivative,
)
from .dynamics.kinematics import (
    forward_kinematics as forward_kinematics,
    frame_pose as frame_pose,
)
from .dynamics.mass_matrix import (
    crba as crba,
    mass_matrix as mass_matrix,
)
from .dynamics.mass_matrix_bounds import (
    MassMatrixBounds as MassMatrixBounds,
    mass_matrix_bounds as mass_matrix_bounds,
)
from .dynamics.mass_matrix_inverse import (
    mass_matrix_inverse as mass_matrix_inverse,
)
from .dynamics.motors import (
    joint_torques_from_motors as joint_torques_from_motors,
    motor_rates as motor_rates,
    motor_torques as motor_torques,
)
from .dynamics.operational_space import (
    OperationalSpace as OperationalSpace,
    dynamically_consistent_inverse as dynamically_consistent_inverse,
    operational_space as operational_space,
    operational_space_bias as operational_space_bias,
    operational_space_inertia as operational_space_inertia,
)
from .dynamics.passivity import (
    passivity_integral as passivity_integral,
    passivity_inverse_dynamics as passivity_inverse_dynamics,
)
from .dynamics.reduction import (
    ReducedDynamics as ReducedDynamics,
    independent_coordinates as independent_coordinates,
    reduced_dynamics as reduced_dynamics,
    reduced_forward_dynamics as reduced_forward_dynamics,
)
from .dynamics.regressor import (
    drive_regressor as drive_regressor,
    regressor as regressor,
)
from .errors import (
    ControlError as ControlError,
    DeploymentError as DeploymentError,
    IdentificationError as IdentificationError,
    JaxdynError as JaxdynError,
    LogError as LogError,
    ModelError as ModelError,
    ModelWarning as ModelWarning,
    OutputError as OutputError,
    TrajectoryError as TrajectoryError,
)
from .identification.base_parameters import (
    BaseParameters as BaseParameters,
    base_parameters as base_parameters,
)
from .identification.closed_loop import (
    ClosedLoop as ClosedLoop,
    ClosedLoopMotion as ClosedLoopMotion,
    ComputedTorque as ComputedTorque,
    ProportionalDerivative as ProportionalDerivative,
    following as following,
    replaying as replaying,
    simulate_closed_loop as simulate_closed_loop,
    tracking as tracking,
)
from .identification.columns import (
    Columns as Columns,
    ExtraColumns as ExtraColumns,
    coupled_drive as coupled_drive,
    joint_springs as joint_springs,
)
from .identification.comparison import (
    ComparedRun as ComparedRun,
    compare_models as compare_models,
)
from .identification.completion import (
    nearest_parameters as nearest_parameters,
    prior_parameters as prior_parameters,
)
from .identification.consistent import (
    ConsistentEstimate as ConsistentEstimate,
    ConsistentProblem as ConsistentProblem,
    consistent_least_squares as consistent_least_squares,
    consistent_problem as consistent_problem,
    feasible_parameters as feasible_parameters,
)
from .identification.constraints import (
    Constraints as Constraints,
    bounding_ellipsoid as bounding_ellipsoid,
    known_parameters as known_parameters,
    linear_equalities as linear_equalities,
    linear_inequalities as linear_inequalities,
    mass_bounds as mass_bounds,
    total_mass_constraint as total_mass_constraint,
)
from .identification.convex import (
    semidefinite_least_squares as semidefinite_least_squares,
)
from .identification.delay import (
    Delay as Delay,
    estimate_delay as estimate_delay,
    without_delay as without_delay,
)
from .identification.diagnostics import (
    Finding as Finding,
    diagnose as diagnose,
    diagnose_identification as diagnose_identification,
)
from .identification.essential import (
    Elimination as Elimination,
    EssentialParameters as EssentialParameters,
    essential_parameters as essential_parameters,
)
from .identification.estimators import (
    Comparison as Comparison,
    Estimate as Estimate,
    Merit as Merit,
    Problem as Problem,
    RecursiveState as RecursiveState,
    align_torques as align_torques,
    compare_estimators as compare_estimators,
    estimate_cloe as estimate_cloe,
    estimate_didim as estimate_didim,
    estimate_irls as estimate_irls,
    estimate_iv as estimate_iv,
    estimate_ols as estimate_ols,
    estimate_recursive as estimate_recursive,
    estimate_tls as estimate_tls,
    estimate_wls as estimate_wls,
    estimation_problem as estimation_problem,
    figures_of_merit as figures_of_merit,
    ordinary_least_squares as ordinary_least_squares,
    recursive_path as recursive_path,
    recursive_start as recursive_start,
    recursive_step as recursive_step,
    recursive_values as recursive_values,
    row_errors as row_errors,
    weighted_least_squares as weighted_least_squares,
)
from .identification.excitation import (
    FourierTrajectory as FourierTrajectory,
    JointTrajectory as JointTrajectory,
    random_excitation as random_excitation,
)
from .identification.excitation_basis import (
    BSplines as BSplines,
    FourierSeries as FourierSeries,
)
from .identification.excitation_compare import (
    compare_with_log as compare_with_log,
)
from .identification.excitation_design import (
    ExcitationDesign as ExcitationDesign,
    optimal_excitation as optimal_excitation,
)
from .identification.excitation_limits import (
    MotionLimits as MotionLimits,
    limit_usage as limit_usage,
    motion_limits as motion_limits,
)
from .identification.excitation_output import (
    TrajectorySamples as TrajectorySamples,
    draw_trajectory as draw_trajectory,
    sample_trajectory as sample_trajectory,
    write_trajectory as write_trajectory,
)
from .identification.excitation_quality import (
    ExcitationQuality as ExcitationQuality,
    excitation_quality as excitation_quality,
    variance_ratio as variance_ratio,
)
from .identification.excitation_spline import (
    SplineTrajectory as SplineTrajectory,
)
from .identification.factors import (
    Factors as Factors,
    load_factors as load_factors,
    merge_factors as merge_factors,
    merge_over_processes as merge_over_processes,
    save_factors as save_factors,
)
from .identification.friction import (
    Asymmetry as Asymmetry,
    Coulomb as Coulomb,
    FrictionTerm as FrictionTerm,
    GearRipple as GearRipple,
    LoadDependent as LoadDependent,
    Offset as Offset,
    PowerViscous as PowerViscous,
    Stribeck as Stribeck,
    Viscous as Viscous,
)
from .identification.friction_choice import (
    FrictionComparison as FrictionComparison,
    choose_friction as choose_friction,
    friction_candidates as friction_candidates,
)
from .identification.friction_fit import (
    FrictionFit as FrictionFit,
    chain_with_friction as chain_with_friction,
    fit_friction as fit_friction,
    with_signals as with_signals,
)
from .identification.friction_model import (
    FrictionModel as FrictionModel,
)
from .identification.gains import (
    DriveGains as DriveGains,
    calibrate_gains as calibrate_gains,
    with_gains as with_gains,
)
from .identification.identify import (
    identify as identify,
)
from .identification.memory_friction import (
    Dahl as Dahl,
    LoadedSlip as LoadedSlip,
    LuGre as LuGre,
    MaxwellSlip as MaxwellSlip,
)
from .identification.monte_carlo import (
    NOISE_LEVELS as NOISE_LEVELS,
    NoiseLevel as NoiseLevel,
    closed_loop_log as closed_loop_log,
    drive_gains as drive_gains,
    perturbed_chains as perturbed_chains,
    tx40_like as tx40_like,
)
from .identification.null_space import (
    NullDirection as NullDirection,
    null_space as null_space,
)
from .identification.payload import (
    Payload as Payload,
    identify_payload as identify_payload,
    identify_payload_on as identify_payload_on,
)
from .identification.preprocess_stream import (
    preprocess_stream as preprocess_stream,
)
from .identification.preprocessing import (
    Samples as Samples,
    motor_to_joint as motor_to_joint,
    preprocess as preprocess,
    split as split,
)
from .identification.prior_scale import (
    PriorScales as PriorScales,
    prior_scales as prior_scales,
)
from .identification.priors import (
    entropic_divergence as entropic_divergence,
    euclidean_divergence as euclidean_divergence,
    pullback_divergence as pullback_divergence,
)
from .identification.refine import (
    refine as refine,
)
from .identification.resimulation import (
    Resimulation as Resimulation,
    model_torque as model_torque,
    resimulate as resimulate,
)
from .identification.result import (
    Evaluation as Evaluation,
    Identification as Identification,
)
from .identification.settings import (
    Settings as Settings,
    choose_settings as choose_settings,
)
from .identification.stream import (
    accumulate_stream as accumulate_stream,
)
from .identification.synthetic import (
    synthetic_log as synthetic_log,
)
from .identification.torque_band import (
    torque_band as torque_band,
)
from .identification.validation import (
    Fit as Fit,
    fit_quality as fit_quality,
)
from .io.geometry import Geometry as Geometry
from .io.load import (
    load as load,
    loads as loads,
    read_geometry as read_geometry,
)
from .io.log import (
    Log as Log,
    check_log as check_log,
    read_log as read_log,
)
from .io.log_chunks import (
    read_log_chunks as read_log_chunks,
)
from .io.mjcf import (
    from_mujoco as from_mujoco,
    load_mjcf as load_mjcf,
    loads_mjcf as loads_mjcf,
)
from .io.mjcf_geometry import geometry_from_mujoco as geometry_from_mujoco
from .io.mjcf_write import (
    to_mjcf as to_mjcf,
    write_mjcf as write_mjcf,
)
from .io.model_file import (
    load_model as load_model,
    model_about as model_about,
    save_model as save_model,
)
from .io.motion import (
    Motion as Motion,
    read_motion as read_motion,
)
from .io.urdf_update import (
    update_urdf as update_urdf,
)
from .io.urdf_write import (
    save_urdf as save_urdf,
    to_urdf as to_urdf,
)
from .model import (
    layouts as layouts,
    linkages as linkages,
    robots as robots,
    textbook as textbook,
)
from .model.base_point import (
    with_moving_base_point as with_moving_base_point,
)
from .model.build import (
    make_chain as make_chain,
)
from .model.chain import (
    Chain as Chain,
    Coupling as Coupling,
    Transmission as Transmission,
    inertial_parameters as inertial_parameters,
    with_inertial_parameters as with_inertial_parameters,
)
from .model.configuration import (
    difference as difference,
    integrate as integrate,
    neutral_configuration as neutral_configuration,
    normalize_configuration as normalize_configuration,
    random_configuration as random_configuration,
)
from .model.constraint import (
    FrameConstraint as FrameConstraint,
    FunctionConstraint as FunctionConstraint,
    point_constraint as point_constraint,
    pose_constraint as pose_constraint,
)
from .model.dh import (
    from_dh as from_dh,
)
from .model.drives import (
    with_coupling as with_coupling,
    with_transmission as with_transmission,
)
from .model.elastic import (
    ElasticJoints as ElasticJoints,
    elastic_chain as elastic_chain,
    elastic_joints as elastic_joints,
)
from .model.screws import (
    from_screws as from_screws,
)
from .parallel import (
    local_rows as local_rows,
    shard_batch as shard_batch,
    spread as spread,
    spread_sum as spread_sum,
)
from .report.comparison_page import (
    print_comparison as print_comparison,
    write_comparison as write_comparison,
)
from .report.ellipsoids import (
    Ellipsoid as Ellipsoid,
    equivalent_ellipsoid as equivalent_ellipsoid,
)
from .report.html import (
    write_report as write_report,
)
from .report.output import (
    write_all as write_all,
)
from .report.provenance import (
    InputFile as InputFile,
    Provenance as Provenance,
    collect_provenance as collect_provenance,
)
from .report.summary import (
    print_summary as print_summary,
)
from .report.tables import (
    write_parameters as write_parameters,
)
from .report.verdict import (
    ErrorLimit as ErrorLimit,
    Verdict as Verdict,
    VerdictCheck as VerdictCheck,
    parse_limit as parse_limit,
    verdict as verdict,
)
from .simulation.adaptive import (
    AdaptiveRollout as AdaptiveRollout,
    adaptive_rollout as adaptive_rollout,
)
from .simulation.constrained import (
    constrained_rollout as constrained_rollout,
    constrained_step as constrained_step,
)
from .simulation.integrate import (
    step as step,
)
from .simulation.rollout import (
    rollout as rollout,
)
from .spatial import (
    inertia as inertia,
    pseudo_inertia as pseudo_inertia,
    se3 as se3,
    so3 as so3,
    solids as solids,
)
from .trajectory.box_qp import (
    box_qp as box_qp,
)
from .trajectory.collocation import (
    solve_by_collocation as solve_by_collocation,
)
from .trajectory.constraints import (
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
from .trajectory.contact import ContactWrenchCone as ContactWrenchCone
from .trajectory.costs import (
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
from .trajectory.gradient import (
    solve_by_gradient as solve_by_gradient,
)
from .trajectory.interior_point import (
    InteriorPointResult as InteriorPointResult,
    interior_point as interior_point,
)
from .trajectory.inverse_kinematics import (
    InverseKinematics as InverseKinematics,
    coordinate_limits as coordinate_limits,
    inverse_kinematics as inverse_kinematics,
)
from .trajectory.inverse_transcription import (
    solve_by_inverse_dynamics as solve_by_inverse_dynamics,
)
from .trajectory.knot import (
    Knot as Knot,
)
from .trajectory.lq import (
    LinearQuadratic as LinearQuadratic,
    LQPolicy as LQPolicy,
    LQSolution as LQSolution,
    linear_quadratic as linear_quadratic,
)
from .trajectory.path import (
    PathDynamics as PathDynamics,
    SplinePath as SplinePath,
    path_dynamics as path_dynamics,
    spline_path as spline_path,
    straight_path as straight_path,
)
from .trajectory.path_timing import (
    PathTiming as PathTiming,
    motion_along as motion_along,
    time_optimal_path as time_optimal_path,
)
from .trajectory.policy_gradient import (
    PolicyOptimisation as PolicyOptimisation,
    optimise_policy as optimise_policy,
    policy_costs as policy_costs,
    policy_trajectory as policy_trajectory,
)
from .trajectory.problem import (
    OptimalControlProblem as OptimalControlProblem,
    rolled_out as rolled_out,
    stationary_guess as stationary_guess,
    total_cost as total_cost,
)
from .trajectory.riccati import (
    lq_rollout as lq_rollout,
    riccati as riccati,
)
from .trajectory.riccati_scan import (
    lq_rollout_scan as lq_rollout_scan,
    riccati_scan as riccati_scan,
    solve_lq as solve_lq,
)
from .trajectory.shift import (
    shift_guess as shift_guess,
)
from .trajectory.shooting import (
    solve_by_shooting as solve_by_shooting,
)
from .trajectory.solution import (
    Guess as Guess,
    Residuals as Residuals,
    Solution as Solution,
    Status as Status,
    Trajectory as Trajectory,
)
from .trajectory.time_scaling import (
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
from .view.film import (
    animate as animate,
)
from .view.pictures import (
    plot_positions as plot_positions,
    plot_torques as plot_torques,
)
from .view.scene import (
    Part as Part,
    Scene as Scene,
    build_scene as build_scene,
)
from .view.server import (
    Viewer as Viewer,
    open_viewer as open_viewer,
)
