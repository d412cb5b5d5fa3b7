"""Robot identification from logs: preprocessing, estimators, friction, payloads, excitation trajectories and validation."""

from .._exports import publish as _publish
from .accumulate import accumulate_stream as accumulate_stream
from .base import (
    BaseParameters as BaseParameters,
    base_parameters as base_parameters,
)
from .columns import (
    Columns as Columns,
    ExtraColumns as ExtraColumns,
    coupled_drive as coupled_drive,
    joint_springs as joint_springs,
    motor_terms as motor_terms,
)
from .consistency import (
    Consistency as Consistency,
    Constraints as Constraints,
    entropic_divergence as entropic_divergence,
    known_parameters as known_parameters,
    linear_constraints as linear_constraints,
)
from .delay import estimate_delay as estimate_delay
from .diagnostics import (
    diagnose as diagnose,
    diagnose_identification as diagnose_identification,
)
from .excitation import (
    FourierSeries as FourierSeries,
    draw_trajectory as draw_trajectory,
    motion_limits as motion_limits,
    random_excitation as random_excitation,
    sample_trajectory as sample_trajectory,
    write_trajectory as write_trajectory,
)
from .excitation_design import (
    compare_with_log as compare_with_log,
    optimal_excitation as optimal_excitation,
    variance_ratio as variance_ratio,
)
from .factors import (
    BlockFactors as BlockFactors,
    load_factors as load_factors,
    merge_factors as merge_factors,
    merge_over_processes as merge_over_processes,
    save_factors as save_factors,
)
from .filters import motor_to_joint as motor_to_joint, without_delay as without_delay
from .friction_fit import (
    fit_friction as fit_friction,
)
from .friction_model import FrictionModel as FrictionModel
from .friction_terms import (
    Asymmetry as Asymmetry,
    Cable as Cable,
    Coulomb as Coulomb,
    Counterbalance as Counterbalance,
    Dahl as Dahl,
    FrictionTerm as FrictionTerm,
    GearRipple as GearRipple,
    LoadDependent as LoadDependent,
    LoadedSlip as LoadedSlip,
    LuGre as LuGre,
    MaxwellSlip as MaxwellSlip,
    Offset as Offset,
    PowerViscous as PowerViscous,
    Stribeck as Stribeck,
    TemperatureDependent as TemperatureDependent,
    Viscous as Viscous,
)
from .from_commands import (
    identify_from_commands as identify_from_commands,
)
from .knowledge import Knowledge as Knowledge, mirrored_links as mirrored_links
from .least_squares import (
    Estimate as Estimate,
    recursive_start as recursive_start,
    recursive_step as recursive_step,
    recursive_values as recursive_values,
    solve as solve,
)
from .mechanism_fit import (
    identify_elastic_joints as identify_elastic_joints,
    identify_mechanism as identify_mechanism,
)
from .mechanisms import (
    MechanismLog as MechanismLog,
    read_mechanism_log as read_mechanism_log,
    write_mechanism_log as write_mechanism_log,
)
from .payload import (
    calibrate_gains as calibrate_gains,
    identify_payload as identify_payload,
    with_gains as with_gains,
)
from .pipeline import identify as identify
from .prediction import fit_quality as fit_quality
from .preprocessing import (
    Filters as Filters,
    Samples as Samples,
    preprocess as preprocess,
    preprocess_stream as preprocess_stream,
    split as split,
)
from .result import Identification as Identification
from .selection import choose_terms as choose_terms
from .separation import Separation as Separation
from .simulated_logs import NoiseLevel as NoiseLevel, synthetic_log as synthetic_log
from .terms import Terms as Terms
from .together import identify_together as identify_together
from .torque_model import (
    TorqueModel as TorqueModel,
    load_torque_model as load_torque_model,
    save_torque_model as save_torque_model,
    write_predictor as write_predictor,
)
from .validation import (
    compare_models as compare_models,
    resimulate as resimulate,
)

_publish(__name__)
