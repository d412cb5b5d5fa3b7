"""Rigid-body regressor for friction fits, computed in chunks, and its triangular factors with friction columns.

The regressor of a run is stored between evaluations if it takes at most `HELD` bytes; otherwise, it is recomputed. For
long runs, memory use therefore grows only with the size of the friction columns.

Combined fit of friction and the rigid body: linear parameters by least squares, others by Gauss-Newton steps.

The problem is linear in all parameters except a few widths, velocity scales and exponents, so it is separable (Golub &
Pereyra 1973). For given nonlinear parameters a, the linear parameters c of the friction columns F are computed exactly.
The columns D = (dF/da) c, which describe changes of a, are appended to the other columns in each joint's triangular
factor. A least-squares solution for all columns together then gives the variable-projection step. Rows of the
regressor are processed in chunks.

Approximation of a friction model by the dissipative friction of a chain, for files and simulators."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize

from .._summary import data_frame
from ..dynamics import friction_force
from ..errors import IdentificationError
from ..model.chain import Chain, with_leaves
from .base import BaseParameters, UndeterminedError, base_parameters, nearest_parameters
from .columns import Columns, prior_parameters
from .defaults import BLOCKS
from .factors import (
    SHORT,
    BlockFactors,
    RowBlocks,
    as_float64,
    check_one_by_one,
    contiguous,
    filled,
    least_squares_covariance,
    triangle_of,
)
from .friction_model import FrictionModel, along_joints, nonlinear_values, shifted
from .friction_terms import Coulomb
from .prediction import chunk_rows, dry_rows, predict_samples
from .preprocessing import Samples, repeated_motion

HELD = 1 << 28  # largest size of a cached regressor in bytes: 130 000 samples of 6 joints and 40 parameters


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run prepared for fitting: friction uses all samples, but the regressor has rows only for some of them.

    Attributes:
        chain: the robot, in float64.
        columns: the columns.
        base: base parameters of the columns of the state.
        prior: the chain's values of the parameters of the state's columns.
        samples: samples at the log's rate.
        kept: indices of the samples that are rows of the regressor.
        dry: columns of dry friction among those of the state, low-pass filtered like the torques, at all samples.
        held: chunks of the regressor, if it is cached; otherwise empty.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    prior: Float[np.ndarray, " p"]
    samples: Samples
    kept: Int[np.ndarray, " M"]
    dry: Float[np.ndarray, "N n d"]
    held: tuple[np.ndarray, ...] = ()

    @property
    def tau(self) -> Float[np.ndarray, "M n"]:
        """Measured torques of the rows, zero where they were not measured [N m or N]."""
        return np.nan_to_num(self.samples.tau[self.kept])

    @property
    def measured(self) -> Bool[np.ndarray, "M n"]:
        """Mask of the rows with a measured torque."""
        return np.isfinite(self.samples.tau[self.kept])

    @property
    def joints(self) -> Samples:
        """The samples, with positions by joint, along which friction is computed."""
        return along_joints(self.chain, self.samples)

    def completed(self, values: Float[np.ndarray, " b"]) -> Float[np.ndarray, " p"]:
        """The parameters nearest to the prior that have given base parameters.

        Base parameters of the columns of the state alone would do for the torques, but not for the load, without friction: if
        masses add to the torque offset of a vertical prismatic joint, they also determine its load.
        """
        return nearest_parameters(self.base, values, self.prior)

    def load(self, values: Float[np.ndarray, " b"]) -> Float[np.ndarray, "N n"]:
        """Rigid-body torques at all samples, excluding friction, computed from base parameters [N m or N]."""
        return load_of(self.chain, self.columns, self.completed(values), self.samples)

    def chunks(self) -> Iterator[tuple[slice, Float[np.ndarray, "m n b"]]]:
        """Iterate over chunks of the base regressor: the slice of row indices, and the regressor of these rows."""
        for k, at in enumerate(range(0, len(self.kept), SHORT)):
            part = slice(at, min(at + SHORT, len(self.kept)))
            yield part, self.held[k] if self.held else self._regressor(self.kept[part])

    def _regressor(self, rows: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m n b"]:
        states = [filled(x[rows]) for x in (self.samples.q, self.samples.qd, self.samples.qdd)]
        with jax.enable_x64(True):
            whole = chunk_rows(self.columns, self.chain, *states)[: len(rows)]
        whole[:, :, self.columns.dry(self.chain.n)[1]] = self.dry[rows]
        return whole[:, :, self.base.kept]


def load_of(
    chain: Chain, columns: Columns, parameters: Float[np.ndarray, " p"], samples: Samples
) -> Float[np.ndarray, "N n"]:
    """Torques at the samples by the columns of the state that are not friction [N m or N]; further parameters are ignored."""
    columns = columns.of_state
    rigid = np.where(columns.of_friction(chain.n), 0.0, parameters[: len(columns.names(chain.n))])
    with jax.enable_x64(True):
        return predict_samples(columns, as_float64(chain), rigid, samples)


def prepare(chain: Chain, columns: Columns, base: BaseParameters, samples: Samples, stride: int = 1) -> Run:
    """Prepare a run whose rows are every stride-th sample of each segment.

    The regressor of M rows takes 8 M n b bytes; it is stored if this is at most `HELD`, and recomputed otherwise.
    """
    with jax.enable_x64(True):
        model = as_float64(chain)
    kept = np.concatenate([np.arange(a, b, stride) for a, b in samples.segments])
    prior = prior_parameters(model, columns.of_state)
    own = base.kept < len(prior)
    base = dataclasses.replace(base, kept=base.kept[own], matrix=base.matrix[own, : len(prior)])
    run = Run(model, columns, base, prior, samples, kept, dry_rows(columns.dry(chain.n)[0], chain, samples))
    if 8 * len(kept) * chain.n * base.size > HELD:
        return run
    return dataclasses.replace(run, held=tuple(rows for _, rows in run.chunks()))


def factors_with(
    runs: Sequence[Run],
    known: Sequence[np.ndarray],
    blocks: Sequence[np.ndarray],
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """Triangular factors of [W_j, F_j, tau_j] for each joint and each block of all runs.

    Args:
        known: for each run, the mask (M, n) of the rows to use.
        blocks: for each run, the friction columns (M, n, k) of each joint.
        groups: for each run, the stretch of a repeated motion that each row shows.
    """
    n, size = runs[0].samples.n, runs[0].base.size + blocks[0].shape[2] + 1
    labels = contiguous([len(run.kept) for run in runs]) if groups is None else groups
    found = RowBlocks(labels, n, size, groups is not None)
    for k, (run, mask, columns) in enumerate(zip(runs, known, blocks, strict=True)):
        tau = run.tau
        for part, rows in run.chunks():
            whole = np.concatenate([rows, columns[part], tau[part][:, :, None]], axis=2)
            found.absorb(k, part.start, whole, mask[part].astype(float))
    return found.factors


# -- fit

SPREAD = 1.0  # prior standard deviation of the logarithm of a nonlinear parameter, about its initial value
LONGEST_STEP = 1.0  # largest change of the logarithm of a nonlinear parameter in one iteration
CONVERGED = 0.01  # gain in log-likelihood below which the iterations end
DAMPINGS = (1e-3, 1.0, 30.0, 1e3)  # damping factors, tried in this order until a step decreases the cost


@dataclasses.dataclass(frozen=True, eq=False)
class FrictionFit:
    """Friction model and rigid body fitted to runs.

    Attributes:
        chain: the robot.
        columns: the columns, with the fitted nonlinear parameters of each joint in their friction model.
        base: base parameters of the columns, of which the last ones are those of friction.
        parameters: full parameters of the columns, in SI units, of which the last ones are the linear friction parameters.
            `fit_friction` determines only base parameters, and completes them to the parameters nearest to the chain's.
        covariance: (b, b) covariance of `values` for fixed nonlinear parameters, from a block jackknife as in
            `Estimate.covariance`.
        noise: (n,) standard deviation of each joint's residual torque [N m or N].
        nonlinear: (n, p) nonlinear parameters, in the order of `model.nonlinear_names`.
        nonlinear_deviations: (n, p) standard deviations of the logarithms of the nonlinear parameters; infinite if the
            data do not determine them.
        likelihood: concentrated log-likelihood minus the regularisation, for comparison of fits to the same data.
        iterations: number of Gauss-Newton steps taken.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    parameters: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "b b"]
    noise: Float[np.ndarray, " n"]
    nonlinear: Float[np.ndarray, "n w"]
    nonlinear_deviations: Float[np.ndarray, "n w"]
    likelihood: float
    iterations: int

    @property
    def model(self) -> FrictionModel:
        """The friction model, with the fitted nonlinear parameters of each joint."""
        assert self.columns.friction is not None
        return self.columns.friction

    @property
    def values(self) -> Float[np.ndarray, " b"]:
        """Values of the base parameters, in SI units."""
        return self.base.matrix @ self.parameters

    @property
    def names(self) -> tuple[str, ...]:
        """Names of `values`."""
        return self.base.names

    @property
    def coefficients(self) -> Float[np.ndarray, "n k"]:
        """Linear friction parameters by joint, in the order of `FrictionModel.blocks`; zero for absent terms."""
        return self.model.by_joint(self.parameters, self.chain.n)

    def load(self, samples: Samples) -> Float[np.ndarray, "N n"]:
        """Rigid-body torques at the samples, excluding friction [N m or N]."""
        return load_of(self.chain, self.columns, self.parameters, samples)

    def signals(self, samples: Samples) -> Float[np.ndarray, "N n f"]:
        """Columns of the friction model for samples at the log's rate, for `accumulate` and `predict`."""
        return self.model.signals(along_joints(self.chain, samples), self.load(samples))

    def predict(self, samples: Samples) -> Float[np.ndarray, "N n"]:
        """Torques for samples at the log's rate, including friction [N m or N]."""
        with jax.enable_x64(True):
            model, signals = as_float64(self.chain), self.signals(samples)
            return predict_samples(self.columns, model, self.parameters, samples, signals)

    def friction(self, samples: Samples) -> Float[np.ndarray, "N n"]:
        """Friction torques for samples at the log's rate [N m or N]."""
        blocks = self.model.blocks(along_joints(self.chain, samples), self.load(samples))
        return np.einsum("tjk,jk->tj", blocks, self.coefficients)

    def rows(self) -> tuple[list[str], list[float], list[float], list[str]]:
        """Names, values, standard deviations and units of the friction parameters, with the nonlinear parameters last."""
        names = list(self.columns.friction_names(self.chain.n))
        last = lambda x: list(x[len(x) - len(names) :])
        units, values = last(self.columns.units(self.chain)), last(self.parameters.tolist())
        deviations = last(np.sqrt(np.diag(self.covariance)).tolist())
        for name, _, value, deviation in self.determined():
            names.append(name)
            values.append(value)
            deviations.append(value * deviation)
            units.append("")
        return names, values, deviations, units

    def determined(self) -> list[tuple[str, int, float, float]]:
        """Name, joint (from 0), value, and standard deviation of its logarithm of each determined nonlinear parameter."""
        return [
            (f"{name} of joint {j + 1}", j, float(self.nonlinear[j, k]), float(self.nonlinear_deviations[j, k]))
            for k, name in enumerate(self.model.nonlinear_names())
            for j in np.flatnonzero(np.isfinite(self.nonlinear_deviations[:, k])).tolist()
        ]

    def to_pandas(self) -> Any:
        """Friction parameters as a `pandas.DataFrame` with one row per parameter.

        The columns are value, standard_deviation and unit.

        Raises:
            ImportError: pandas is not installed.
        """
        names, *columns = self.rows()
        return data_frame(dict(zip(("value", "standard_deviation", "unit"), columns, strict=True)), names, "parameter")


def fit_friction(
    chain: Chain,
    runs: Sequence[Samples],
    model: FrictionModel,
    *,
    iterations: int = 10,
    stride: int = 1,
    base: BaseParameters | None = None,
    columns: Columns | None = None,
    free: Sequence[int] | None = None,
) -> FrictionFit:
    """Fit a friction model, including its nonlinear parameters, together with the rigid-body parameters and rotor inertias.

    The fit minimises

        sum_j N_j log |tau_j - W_j x - F_j(a) c|

    For joint j, W_j is the regressor of the base parameters x, F_j(a) contains the friction columns, and N_j is the
    number of rows. The vectors c and a are the linear and the nonlinear parameters of friction. The logarithm weights
    each joint by its noise.

    Load-dependent terms use the loads from the rigid-body parameters of the previous iteration. Samples at which the
    friction memory is not yet known (`FrictionModel.known`) are excluded.

    Args:
        chain: the robot, with uncoupled joints; its inertias and armature serve only to complete the parameters.
        runs: samples at the log's rate (`preprocess` with stride 1).
        model: the friction model, with initial nonlinear parameters.
        iterations: maximum number of Gauss-Newton steps; 0 keeps the initial nonlinear parameters.
        stride: decimation of the regressor's rows. Friction columns are computed at the log's rate before they are
            decimated.
        base: base parameters of the columns with `model` as their friction model; by default they are computed.
        columns: the other columns; by default `Columns(("armature",))`.
        free: numbers of the joints whose nonlinear parameters are fitted, counted from 1; the others keep their initial
            values. By default, those of all joints are fitted.

    Raises:
        IdentificationError: no runs were given, joints are coupled, or there are too few samples to determine the parameters.

    Cost: about 0.5 s per iteration for 6 joints and 10 000 samples after decimation by `stride`.

    Memory: the rigid-body regressor is processed in chunks, but the friction columns of whole runs are stored. For N
    samples of n joints, with k columns and p nonlinear parameters per joint, they take 8 N n k (p + 1) bytes, for
    example 0.6 GiB for a million samples of 6 joints with two Maxwell-slip terms. If memory is insufficient, pass
    shorter or fewer runs.
    """
    if not runs:
        raise IdentificationError("no run was given for the friction fit; pass at least one")
    check_one_by_one(chain, "a friction model")
    columns = dataclasses.replace(columns or Columns(("armature",)), friction=model.for_joints(chain.n))
    base = base_parameters(chain, columns) if base is None else base
    if base.matrix.shape[1] != (count := len(columns.names(chain.n))):
        raise IdentificationError(
            f"the base parameters are those of {base.matrix.shape[1]} parameters, but there are {count} with those of friction",
            "Use {base}",
            base="base_parameters(chain, dataclasses.replace(columns, friction=model))",
        )
    return _fit(chain, columns, base, [prepare(chain, columns, base, s, stride) for s in runs], iterations, free)


def unfitted(chain: Chain, columns: Columns, base: BaseParameters, parameters: Float[np.ndarray, " p"]) -> FrictionFit:
    """A friction model with its initial nonlinear parameters, under the loads of given parameters."""
    model = columns.friction
    assert model is not None
    columns, nonlinear = (
        dataclasses.replace(columns, friction=model.for_joints(chain.n)),
        nonlinear_values(model, chain.n),
    )
    unknown = np.full((base.size, base.size), np.nan), np.full(chain.n, np.nan)
    return FrictionFit(
        chain, columns, base, parameters, *unknown, nonlinear, np.full(nonlinear.shape, np.inf), np.nan, 0
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Solution:
    model: FrictionModel
    values: np.ndarray  # base parameters, then linear friction parameters
    covariance: np.ndarray
    noise: np.ndarray
    cost: float
    blocks: list[np.ndarray]
    factors: BlockFactors


def _fit(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    runs: Sequence[Run],
    iterations: int,
    free: Sequence[int] | None,
) -> FrictionFit:
    """`fit_friction` for prepared runs and columns with the initial friction model."""
    n, size, start = chain.n, runs[0].base.size, columns.friction
    assert start is not None
    known = [start.known(run.joints)[run.kept] & run.measured for run in runs]
    chosen = start.chosen(n)
    independence = np.mean([run.samples.independence for run in runs])
    share = float(independence) * (len(runs[0].samples) / len(runs[0].kept))
    share = min(1.0, share)
    counts = np.sum([mask.sum(0) for mask in known], axis=0)
    if (counts * share).sum() <= base.size:
        raise UndeterminedError(
            f"{int(counts.sum())} rows of samples cannot determine {base.size} parameters; log a longer run"
        )

    def evaluate(model: FrictionModel, rigid: np.ndarray, shift: np.ndarray) -> _Solution:
        blocks = [model.blocks(run.joints, run.load(rigid))[run.kept] for run in runs]
        factors = factors_with(runs, known, blocks)
        values, covariance, noise = _solve(factors.total.r, counts, share, size, chosen)
        cost = share * float(counts @ np.log(noise)) + 0.5 * ((shift / SPREAD) ** 2).sum()
        return _Solution(model, values, covariance, noise, cost, blocks, factors)

    width = nonlinear_values(start, n).shape[1]
    shift = np.zeros((n, width))
    now = evaluate(start, _first_guess(runs), shift)
    for _ in range(2 if start.needs_load else 0):
        now = evaluate(start, now.values[:size], shift)
    deviations, taken = np.full((n, width), np.inf), 0
    damping = 0
    fitted = np.ones(n, bool) if free is None else np.isin(np.arange(1, n + 1), free)
    for _ in range(iterations if width and fitted.any() else 0):
        factors = factors_with(runs, known, _with_slopes(now, runs, size, chosen, fitted)).total.r
        better = None
        while better is None and damping < len(DAMPINGS):
            step, deviations = _step(factors, now.noise, share, size, chosen, shift, DAMPINGS[damping])
            trial = shift + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
            with jax.enable_x64(True):
                moved = shifted(start, trial)
            found = evaluate(moved, now.values[:size], trial)
            better = found if found.cost < now.cost else None
            damping += 0 if better is not None else 1
        if better is None:
            break
        gain, now, shift = now.cost - better.cost, better, trial
        taken, damping = taken + 1, max(0, damping - 1)
        if gain < CONVERGED:
            break
    rigid = runs[0].completed(now.values[:size])
    linear = now.values[size:] - base.matrix[size:, : len(rigid)] @ rigid
    return FrictionFit(
        chain=chain,
        columns=dataclasses.replace(columns, friction=now.model),
        base=base,
        parameters=np.concatenate([rigid, linear]),
        covariance=_left_out(now, _in_motion(now, runs, known), size, chosen),
        noise=now.noise,
        nonlinear=nonlinear_values(now.model, n),
        nonlinear_deviations=deviations,
        likelihood=-now.cost,
        iterations=taken,
    )


def _first_guess(runs: Sequence[Run]) -> np.ndarray:
    """Rigid-body parameters from a fit with viscous, Coulomb and constant friction, for the initial loads."""
    speeds = [run.samples.qd[run.kept] for run in runs]
    plain = [np.stack([qd, np.tanh(qd / 0.02), np.ones_like(qd)], axis=2) for qd in speeds]
    factors, size = factors_with(runs, [run.measured for run in runs], plain).total, runs[0].base.size
    a, y, _ = _stack(factors.r, size, [np.ones((len(factors.r), 3), bool)], np.ones(len(factors.r)))
    return _least_squares(a, y)[0][:size]


def _in_motion(now: _Solution, runs: Sequence[Run], known: Sequence[np.ndarray]) -> BlockFactors:
    """The factors of a solution, in blocks of the motion if the runs repeat it."""
    motion = repeated_motion([run.samples for run in runs])
    if motion is None:
        return now.factors
    groups = [motion.groups(k, run.samples.t[run.kept], BLOCKS) for k, run in enumerate(runs)]
    return factors_with(runs, known, now.blocks, groups)


def _left_out(now: _Solution, factors: BlockFactors, size: int, chosen: np.ndarray) -> np.ndarray:
    """Jackknife covariance of the linear parameters."""
    stacks = [_stack(r, size, [chosen], now.noise) for r in factors.left_out.r]
    parts = [triangle_of(np.column_stack([a, y])) for a, y, _ in stacks]
    return least_squares_covariance(parts, now.values, now.covariance)


def _with_slopes(
    now: _Solution, runs: Sequence[Run], size: int, chosen: np.ndarray, fitted: np.ndarray
) -> list[np.ndarray]:
    """Friction columns of each run, and derivatives of the friction torques with respect to the nonlinear parameters.

    The derivatives are zero at joints whose nonlinear parameters are not fitted.
    """
    coefficients = now.model.by_joint(now.values, len(chosen)) * fitted[:, None]
    beside = []
    for run, block in zip(runs, now.blocks, strict=True):
        slopes = now.model.slopes(run.joints, run.load(now.values[:size]))[run.kept]
        beside.append(np.concatenate([block, np.einsum("tjkp,jk->tjp", slopes, coefficients)], axis=2))
    return beside


def _stack(
    factors: Float[np.ndarray, "n c c"], size: int, groups: Sequence[np.ndarray], noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[slice]]:
    """Stack the weighted factors of all joints as one system: common columns, then each group's columns by joint."""
    total = size + sum(int(group.sum()) for group in groups)
    matrix, right, rows = [], [], []
    at = 0
    for j, r in enumerate(factors):
        a = np.zeros((len(r), total))
        a[:, :size] = r[:, :size]
        source, target = size, size
        for group in groups:
            own = np.flatnonzero(group[j])
            first = target + int(group[:j].sum())
            a[:, first : first + len(own)] = r[:, source + own]
            source, target = source + group.shape[1], target + int(group.sum())
        matrix.append(a / noise[j])
        right.append(r[:, -1] / noise[j])
        rows.append(slice(at, at + len(r)))
        at += len(r)
    return np.concatenate(matrix), np.concatenate(right), rows


def _least_squares(a: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least-squares solution and (A^T A)^-1, computed with columns of unit norm; zero in directions without excitation."""
    norms = np.linalg.norm(a, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    u, s, vt = np.linalg.svd(a / norms, full_matrices=False)
    inverse = np.where(s > 1e-10 * s[0], 1 / np.where(s > 0, s, 1), 0.0)
    half = vt.T * inverse / norms[:, None]
    return half @ (u.T @ y), half @ half.T


def _solve(factors, counts, share, size, chosen, rounds=4):
    noise = np.ones(len(factors))
    values, inverse = np.zeros(0), np.zeros((0, 0))
    for _ in range(rounds):
        a, y, rows = _stack(factors, size, [chosen], noise)
        values, inverse = _least_squares(a, y)
        residual = y - a @ values
        rms = np.array([np.linalg.norm(residual[part]) * noise[j] for j, part in enumerate(rows)])
        noise = np.maximum(rms / np.sqrt(np.maximum(counts, 1)), 1e-12)
    return values, inverse / share, noise


def _step(factors, noise, share, size, chosen, shift, damping):
    """Gauss-Newton step in the logarithms of the nonlinear parameters, and their standard deviations without the prior."""
    moving = np.array(
        [[np.linalg.norm(r[:, size + chosen.shape[1] + p]) > 0 for p in range(shift.shape[1])] for r in factors]
    )
    a, y, _ = _stack(factors, size, [chosen, moving], noise)
    a, y = a * np.sqrt(share), y * np.sqrt(share)
    count = int(moving.sum())
    own = np.zeros((count, a.shape[1]))
    own[:, a.shape[1] - count :] = np.eye(count)
    held = np.concatenate([a, own / SPREAD, own * np.sqrt(damping)])
    target = np.concatenate([y, -shift[moving] / SPREAD, np.zeros(count)])
    solution, _ = _least_squares(held, target)
    _, inverse = _least_squares(a, y)
    step, deviations = np.zeros(shift.shape), np.full(shift.shape, np.inf)
    step[moving] = solution[a.shape[1] - count :]
    deviations[moving] = np.sqrt(np.diag(inverse)[a.shape[1] - count :])
    return step, deviations


# -- nearest

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1)  # candidate widths of the smooth sign function [rad/s or m/s]
_LAW = ("friction.viscous", "friction.coulomb", "friction.offset", "friction.stribeck")


def chain_with_friction(fit: FrictionFit, runs: Sequence[Samples], width: float | None = None) -> Chain:
    """Return the chain with the viscous, Coulomb and constant friction that best fits a friction model on given runs.

    The friction of a chain cannot have memory or depend on the load. For simulation and files, the friction of each
    joint is therefore approximated by f = fv qd + fc tanh(qd / width) + off with fv >= 0 and fc >= 0, fitted to the
    torques of the friction model by least squares.

    Args:
        fit: the fitted friction model.
        runs: samples at the log's rate.
        width: width of the smooth sign function [rad/s or m/s]. By default, the width with the best fit is selected for each
            joint. The candidates are five widths from 0.005 to 0.1, and the width of the Coulomb term, or that of the
            chain if there is no Coulomb term. If the fit has extra columns, which may depend on the chain's width, the
            default is the chain's width.
    """
    # use unfiltered friction, which acts on the joints
    columns = dataclasses.replace(fit.columns, friction=dataclasses.replace(fit.model, cutoff=None))
    fit = dataclasses.replace(fit, columns=columns)
    friction = np.concatenate([fit.friction(s) for s in runs])
    chain, tried = fit.chain, () if fit.columns.extra else WIDTHS
    dry = [term for term in fit.model.terms if type(term) is Coulomb and term.joints is None]
    if dry and tried:
        own = jnp.broadcast_to(jnp.asarray(dry[0].width, chain.dtype), (chain.n,))
        chain = dataclasses.replace(chain, friction=dataclasses.replace(chain.friction, coulomb_velocity=own))
    return with_nearest_friction(chain, np.concatenate([s.qd for s in runs]), friction, tried, width)


def with_nearest_friction(
    chain: Chain,
    qd: Float[np.ndarray, "N n"],
    friction: Float[np.ndarray, "N n"],
    widths: Sequence[float] = (),
    width: float | None = None,
) -> Chain:
    """Return the chain with the dissipative friction that best fits given torques, as in `chain_with_friction`.

    Args:
        widths: candidate widths of the smooth sign function, in addition to that of the chain.
        width: the only candidate width, if not None.
    """
    found = []
    for j, own in enumerate(np.asarray(chain.friction.coulomb_velocity, float).tolist()):
        laws = []
        for w in (own, *widths) if width is None else (width,):
            columns = np.stack([qd[:, j], np.tanh(qd[:, j] / w), np.ones(len(qd))], axis=1)
            law = _dissipative(columns, friction[:, j])
            laws.append((float(np.linalg.norm(friction[:, j] - columns @ law)), w, *law))
        found.append(min(laws)[1:])
    like = lambda x: jnp.asarray(np.array(x), chain.dtype)
    w, viscous, coulomb, offset = map(like, zip(*found, strict=True))
    law = dataclasses.replace(
        chain.friction,
        viscous=viscous,
        coulomb=coulomb,
        offset=offset,
        coulomb_velocity=w,
        stribeck=like(np.zeros(chain.n)),
    )
    return dataclasses.replace(chain, friction=law)


def _dissipative(columns: Float[np.ndarray, "N 3"], torque: Float[np.ndarray, " N"]) -> Float[np.ndarray, "3"]:
    """Least-squares coefficients of a viscous, a Coulomb and a constant column; the first two are non-negative."""
    found = np.linalg.lstsq(columns, torque, rcond=None)[0]
    if found[:2].min() >= 0:
        return found
    return optimize.lsq_linear(columns, torque, (np.array([0, 0, -np.inf]), np.inf), method="bvls").x


def dissipative_chain(chain: Chain, runs: Sequence[Samples]) -> tuple[Chain, tuple[str, ...]]:
    """Replace negative friction and armature of a chain; return the new chain and the names of the modified joints.

    If viscous or Coulomb friction of a joint is negative, its friction is replaced by fv qd + fc tanh(qd / width) + off
    with fv >= 0 and fc >= 0, fitted to the original friction at the velocities of the runs by least squares. A negative
    armature is replaced by zero. All other parameters are unchanged.
    """
    law = chain.friction
    viscous, coulomb, armature = (np.asarray(x, float) for x in (law.viscous, law.coulomb, chain.armature))
    driven = (viscous < 0) | (coulomb < 0)
    changed = driven | (armature < 0)
    if not changed.any():
        return chain, ()
    leaves = {"armature": jnp.maximum(chain.armature, 0)}
    if driven.any():
        qd = np.concatenate([s.qd for s in runs])
        with jax.enable_x64(True):
            force = np.asarray(jax.vmap(lambda v: friction_force(as_float64(chain), v))(jnp.asarray(qd)))
        found = with_nearest_friction(chain, qd, force)
        for name in _LAW:
            leaf = name.partition(".")[2]
            leaves[name] = jnp.where(jnp.asarray(driven), getattr(found.friction, leaf), getattr(law, leaf))
    return with_leaves(chain, leaves), tuple(chain.joint_names[j] for j in np.flatnonzero(changed))
