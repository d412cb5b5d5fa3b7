"""Estimators of base parameters, one a file: a `EstimationProblem` in, an `Estimate` out."""

from .compare import (
    EstimatorComparison as EstimatorComparison,
    Merit as Merit,
    compare_estimators as compare_estimators,
    figures_of_merit as figures_of_merit,
)
from .didim import estimate_didim as estimate_didim
from .estimate import Estimate as Estimate
from .instrumental import estimate_iv as estimate_iv
from .least_squares import (
    estimate_ols as estimate_ols,
    estimate_wls as estimate_wls,
    ordinary_least_squares as ordinary_least_squares,
    weighted_least_squares as weighted_least_squares,
)
from .output_error import estimate_cloe as estimate_cloe
from .problem import (
    EstimationProblem as EstimationProblem,
    estimation_problem as estimation_problem,
)
from .recursive import (
    RecursiveState as RecursiveState,
    estimate_recursive as estimate_recursive,
    recursive_path as recursive_path,
    recursive_start as recursive_start,
    recursive_step as recursive_step,
    recursive_values as recursive_values,
)
from .robust import estimate_irls as estimate_irls
from .total import (
    estimate_tls as estimate_tls,
    row_errors as row_errors,
)
from .whole_runs import align_torques as align_torques
