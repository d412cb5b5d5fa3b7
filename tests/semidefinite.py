"""Physically consistent estimation as a semidefinite program, by cvxpy and Clarabel: another route to the optimum."""

import warnings

import cvxpy as cp
import numpy as np

from jaxdyn.identification import BaseParameters
from jaxdyn.identification.consistency import LINEAR, ConsistentProblem, prior_factors
from jaxdyn.identification.consistent import ConsistentEstimate, parameter_bounds


def semidefinite_least_squares(problem: ConsistentProblem, base: BaseParameters) -> ConsistentEstimate:
    """The optimum of a consistent estimation with J(pi_i) >= 0 as linear matrix inequalities (Wensing, Kim & Slotine 2017).

    Each pseudo-inertia is seen in coordinates in which the prior's is the identity, J_i = U0 S_i U0^T with S_i the unknown, for
    the solver's sake. The covariance is not computed: NaN.
    """
    n, p, inner = problem.links, len(problem.prior), 10 * problem.links
    u0 = prior_factors(problem.prior, n)
    # unknowns of like sizes: S_i about 1, the rest in units of what the data see of them
    information = np.sqrt((problem.matrix[:, inner:] ** 2).sum(0))
    unit = np.maximum(np.abs(problem.start[inner:]), 1 / np.where(information > 0, information, 1.0))
    white = [cp.Variable((4, 4), PSD=True) for _ in range(n)]
    rest = cp.Variable(p - inner) if p > inner else None
    maps = [np.einsum("lij,ia,jb->lab", LINEAR, u, u).reshape(10, 16) for u in u0]
    x = cp.hstack(
        [maps[i] @ cp.vec(s, order="C") for i, s in enumerate(white)]
        + ([] if rest is None else [cp.multiply(unit, rest)])
    )
    size = max(problem.floor, 0.5 * len(problem.values))
    terms = [0.5 * cp.sum_squares(problem.matrix @ x - problem.values)]
    terms += [problem.weight * (cp.trace(s) - cp.log_det(s) - 4) for s in white]
    if rest is not None:
        weights = np.sqrt(problem.ridge[inner:])
        terms.append(0.5 * cp.sum_squares(cp.multiply(weights * unit, rest) - weights * problem.prior[inner:]))
    known = problem.constraints
    conditions: list = [rest[problem.positive[inner:]] >= 0] if rest is not None and problem.positive.any() else []
    for rows, sides, least in ((known.equal, known.equal_to, False), (known.least, known.least_of, True)):
        if len(sides):
            scale = 1 / np.maximum(np.abs(rows) @ np.abs(problem.start) + np.abs(sides), 1e-300)
            left, right = (scale[:, None] * rows) @ x, scale * sides
            conditions.append(left >= right if least else left == right)
    program = cp.Problem(cp.Minimize(sum(terms) / size), conditions)
    with warnings.catch_warnings():  # `converged` reports an inaccurate solution
        warnings.simplefilter("ignore")
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    if program.status not in ("optimal", "optimal_inaccurate"):
        raise ValueError(f"the semidefinite program is {program.status}")
    values = np.asarray(x.value)
    return ConsistentEstimate(
        parameters=values,
        values=base.matrix @ values,
        covariance=np.full((base.size, base.size), np.nan),
        pull=np.full(base.size, np.nan),
        bounds=parameter_bounds(problem),
        cost=problem.cost(values),
        misfit=problem.misfit(values),
        least_misfit=problem.floor,
        steps=int(program.solver_stats.num_iters or 0),
        converged=program.status == "optimal",
    )
