"""Robot identification from logs: preprocessing, estimators, friction, payloads, excitation trajectories and validation."""

from ._consistency.consistent import (
    ConsistentEstimate as ConsistentEstimate,
    ConsistentProblem as ConsistentProblem,
    consistent_least_squares as consistent_least_squares,
    consistent_problem as consistent_problem,
    feasible_parameters as feasible_parameters,
)
from ._consistency.constraints import (
    Consistency as Consistency,
    Constraints as Constraints,
    bounding_ellipsoid as bounding_ellipsoid,
    known_parameters as known_parameters,
    linear_equalities as linear_equalities,
    linear_inequalities as linear_inequalities,
    mass_bounds as mass_bounds,
    total_mass_constraint as total_mass_constraint,
)
from ._consistency.densities import (
    LinkBounds as LinkBounds,
    link_bounds as link_bounds,
    unusual_links as unusual_links,
)
from ._consistency.priors import (
    entropic_divergence as entropic_divergence,
    euclidean_divergence as euclidean_divergence,
    pullback_divergence as pullback_divergence,
)
from ._delay import Delay as Delay, estimate_delay as estimate_delay
from ._estimators.compare import (
    EstimatorComparison as EstimatorComparison,
    Merit as Merit,
    compare_estimators as compare_estimators,
    figures_of_merit as figures_of_merit,
)
from ._estimators.didim import estimate_didim as estimate_didim
from ._estimators.essential import (
    Elimination as Elimination,
    EssentialParameters as EssentialParameters,
    essential_parameters as essential_parameters,
)
from ._estimators.estimate import Estimate as Estimate
from ._estimators.instrumental import estimate_iv as estimate_iv
from ._estimators.least_squares import (
    estimate_ols as estimate_ols,
    estimate_wls as estimate_wls,
    ordinary_least_squares as ordinary_least_squares,
    weighted_least_squares as weighted_least_squares,
)
from ._estimators.output_error import estimate_cloe as estimate_cloe
from ._estimators.problem import EstimationProblem as EstimationProblem, estimation_problem as estimation_problem
from ._estimators.recursive import (
    RecursiveState as RecursiveState,
    estimate_recursive as estimate_recursive,
    recursive_path as recursive_path,
    recursive_start as recursive_start,
    recursive_step as recursive_step,
    recursive_values as recursive_values,
)
from ._estimators.robust import estimate_irls as estimate_irls
from ._estimators.split_half import SplitHalf as SplitHalf, split_half as split_half
from ._estimators.total import estimate_tls as estimate_tls, row_errors as row_errors
from ._excitation.basis import BSplines as BSplines, FourierSeries as FourierSeries
from ._excitation.compare import compare_with_log as compare_with_log
from ._excitation.design import (
    ExcitationDesign as ExcitationDesign,
    ExcitationSearch as ExcitationSearch,
    optimal_excitation as optimal_excitation,
)
from ._excitation.limits import MotionLimits as MotionLimits, limit_usage as limit_usage, motion_limits as motion_limits
from ._excitation.output import (
    TrajectorySamples as TrajectorySamples,
    draw_trajectory as draw_trajectory,
    sample_trajectory as sample_trajectory,
    write_trajectory as write_trajectory,
)
from ._excitation.quality import (
    ExcitationQuality as ExcitationQuality,
    excitation_quality as excitation_quality,
    variance_ratio as variance_ratio,
)
from ._excitation.trajectories import (
    FourierTrajectory as FourierTrajectory,
    JointTrajectory as JointTrajectory,
    SplineTrajectory as SplineTrajectory,
    random_excitation as random_excitation,
)
from ._friction.choice import (
    FrictionComparison as FrictionComparison,
    choose_friction as choose_friction,
    friction_candidates as friction_candidates,
)
from ._friction.fit import (
    FrictionFit as FrictionFit,
    fit_friction as fit_friction,
    with_signals as with_signals,
)
from ._friction.memory import Dahl as Dahl, LoadedSlip as LoadedSlip, LuGre as LuGre, MaxwellSlip as MaxwellSlip
from ._friction.model import FrictionModel as FrictionModel
from ._friction.nearest import chain_with_friction as chain_with_friction
from ._friction.position import Cable as Cable, Counterbalance as Counterbalance
from ._friction.temperature import TemperatureDependent as TemperatureDependent
from ._friction.terms import (
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
from ._identify import identify as identify
from ._mechanisms.elastic import (
    ElasticIdentification as ElasticIdentification,
    identify_elastic_joints as identify_elastic_joints,
)
from ._mechanisms.file import (
    read_mechanism_log as read_mechanism_log,
    write_mechanism_log as write_mechanism_log,
)
from ._mechanisms.identify import identify_mechanism as identify_mechanism
from ._mechanisms.log import (
    MechanismLog as MechanismLog,
    MechanismSamples as MechanismSamples,
    mechanism_samples as mechanism_samples,
)
from ._model.file import load_torque_model as load_torque_model, save_torque_model as save_torque_model
from ._model.source import write_predictor as write_predictor
from ._model.torque_model import TorqueModel as TorqueModel
from ._payload.gains import DriveGains as DriveGains, calibrate_gains as calibrate_gains, with_gains as with_gains
from ._payload.payload import (
    Payload as Payload,
    identify_payload as identify_payload,
    identify_payload_on as identify_payload_on,
)
from ._preprocessing.logs import motor_to_joint as motor_to_joint, without_delay as without_delay
from ._preprocessing.samples import (
    Filters as Filters,
    Samples as Samples,
    preprocess as preprocess,
    split as split,
)
from ._preprocessing.stream import preprocess_stream as preprocess_stream
from ._regression.accumulate import accumulate_stream as accumulate_stream
from ._regression.base_parameters import (
    BaseParameters as BaseParameters,
    base_parameters as base_parameters,
)
from ._regression.blocks import BlockFactors as BlockFactors, block_factors as block_factors
from ._regression.columns import (
    Columns as Columns,
    ExtraColumns as ExtraColumns,
    coupled_drive as coupled_drive,
    joint_springs as joint_springs,
    motor_terms as motor_terms,
    prior_parameters as prior_parameters,
)
from ._regression.completion import (
    model_torque as model_torque,
    nearest_parameters as nearest_parameters,
)
from ._regression.factors import (
    QRFactors as QRFactors,
    load_factors as load_factors,
    merge_factors as merge_factors,
    merge_over_processes as merge_over_processes,
    save_factors as save_factors,
)
from ._regression.knowledge import Knowledge as Knowledge
from ._regression.mirror import mirrored_links as mirrored_links
from ._regression.prediction import Fit as Fit, fit_quality as fit_quality
from ._regression.total_mass import TotalMass as TotalMass
from ._result import Evaluation as Evaluation, Identification as Identification
from ._selection.choose import choose_terms as choose_terms
from ._selection.outcome import TermChoice as TermChoice, Trial as Trial
from ._selection.read import read_terms as read_terms
from ._selection.terms import Terms as Terms
from ._simulation.closed_loop import (
    ClosedLoop as ClosedLoop,
    ClosedLoopMotion as ClosedLoopMotion,
    ComputedTorqueLaw as ComputedTorqueLaw,
    ProportionalDerivativeLaw as ProportionalDerivativeLaw,
    simulate_closed_loop as simulate_closed_loop,
)
from ._simulation.monte_carlo import (
    NOISE_LEVELS as NOISE_LEVELS,
    NoiseLevel as NoiseLevel,
    closed_loop_log as closed_loop_log,
    drive_gains as drive_gains,
    perturbed_chains as perturbed_chains,
)
from ._simulation.synthetic import synthetic_log as synthetic_log
from ._together import identify_together as identify_together
from ._validation.comparison import (
    ComparedRun as ComparedRun,
    ModelComparison as ModelComparison,
    compare_models as compare_models,
)
from ._validation.diagnostics import (
    Finding as Finding,
    diagnose as diagnose,
    diagnose_identification as diagnose_identification,
)
from ._validation.prior_scale import PriorScales as PriorScales, prior_scales as prior_scales
from ._validation.resimulation import (
    Resimulation as Resimulation,
    resimulate as resimulate,
)
from ._validation.symmetry import Symmetry as Symmetry, limb_symmetry as limb_symmetry
from ._validation.torque_band import torque_band as torque_band
