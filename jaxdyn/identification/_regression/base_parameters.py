"""Base parameters, the combinations of parameters that determine the torques, found numerically and named."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import layout, turning_joints
from ...model._rounded import unrounded
from .accumulate import accumulate
from .columns import Columns, all_columns
from .factors import QRFactors
from .knowledge import Knowledge, Known
from .robot import as_float64
from .rows import by_chunks, chunk_rows

# Relative to the largest column norm. Columns are not scaled to unit norm, because those that are zero except for the
# rounding of cos(pi/2) would then increase the rank.
RANK_TOLERANCE = 1e-9
ROUNDED_TOLERANCE = 1e-6  # if the chain is in single precision
COARSER = (1, 10, 100, 1000)  # factors by which the tolerance is multiplied, tried in this order


class UndeterminedError(IdentificationError):
    """The data do not determine the parameters: there are too few, or the motion shows too little."""


@dataclasses.dataclass(frozen=True)
class BaseParameters:
    """Basis of the identifiable parameter combinations, base = matrix @ parameters.

    With the regressor W, the torques are W @ parameters = W[:, kept] @ base.

    Attributes:
        kept: (b,) column index of the leading parameter of each base parameter.
        matrix: (b, p) coefficients; row k corresponds to names[k].
        names: the base parameters as combinations, such as "Izz1 + Ia1 + Iyy2".
        unidentifiable: parameters without effect on any torque.
        dropped: parameters that affect torques, but only in combination with the leading parameters.
        parameters: names of all parameters, in column order.
        known: parameters whose values are taken from the model and assumed to be exact (`Knowledge`).
        signals: names of the columns of a friction model that were considered besides those of `parameters`.
        of_signals: (k, p) coefficients with which parameters add to those of the signals, as m3 to the torque offset of a
            vertical prismatic joint.
    """

    kept: np.ndarray
    matrix: np.ndarray
    names: tuple[str, ...]
    unidentifiable: tuple[str, ...]
    dropped: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    of_signals: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of base parameters, which is the structural rank of the regressor."""
        return len(self.kept)

    @property
    def _rest(self) -> np.ndarray:
        """Columns whose parameters are neither leading nor exactly known."""
        known = np.flatnonzero(np.isin(np.array(self.parameters), self.known)) if self.known else ()
        return np.setdiff1d(np.arange(self.matrix.shape[1]), [*self.kept, *known])

    @property
    def null_space(self) -> np.ndarray:
        """Parameter changes that do not affect any torque, one per row (p - b, p); matrix @ null_space.T is zero.

        Each row increases one non-leading parameter by 1. The leading parameter of each base parameter decreases by the
        coefficient of that non-leading parameter, so the base parameter does not change. Any multiple of a row can
        therefore be added to the parameters without changing any torque. Parameters that are assumed to be known
        exactly are zero in every row.
        """
        rest = self._rest
        out = np.zeros((len(rest), self.matrix.shape[1]))
        out[np.arange(len(rest)), rest] = 1
        out[:, self.kept] = -self.matrix[:, rest].T
        return out

    @property
    def null_names(self) -> tuple[str, ...]:
        """Names of the rows of `null_space`; "m2 - 0.7 mx1 - 0.49 Izz1" adds 1 to m2, -0.7 to mx1 and -0.49 to Izz1."""
        return tuple(_label(self.parameters, row, int(k)) for row, k in zip(self.null_space, self._rest, strict=True))


def base_parameters(
    chain: Chain,
    columns: Columns | None = None,
    states: int = 0,
    seed: int = 0,
    rows: Float[np.ndarray, " nv"] | None = None,
    knowledge: Knowledge | None = None,
) -> BaseParameters:
    """Find the base parameters of a chain from its regressor at random states, independently of any log.

    Columns are considered link by link, in the order inertia, first moments, mass. A column that depends linearly on
    the columns kept so far is dropped, and its parameter is combined with the parameters of those columns. This is the
    numerical method of Gautier (1991), and the order yields the combinations in the literature.

    If angles or axes in the robot description are rounded (1.5708 for pi/2, 0.7071 for cos(pi/4)), the base parameters are
    those of the exact ones: rounding, to the digits of the file, adds none.

    Positions are drawn within the joint limits. Where limits are missing or wider, positions are drawn within half a
    revolution or 1 m of zero.

    Args:
        chain: the robot; its inertias are not used.
        columns: columns identified in addition to the ten parameters per link; by default all drive terms, and the
            chain's motors and springs.
        states: number of random states; 0 selects three per column, but at least 256.
        seed: seed for the random states.
        rows: factors by which the rows of the regressor are multiplied, by default one. Zero excludes rows that are not
            measured, for example those of all joints if only the six rows of a floating base are fitted.
        knowledge: prior knowledge of parameters. Parameters that are known exactly are excluded from the base
            parameters, and those known with a standard deviation count as measured.

    Raises:
        IdentificationError: no parameter affects any torque, or the rank of the regressor is ambiguous.
    """
    columns = columns or all_columns(chain)
    factors = random_factors(chain, columns, states, seed)
    known = None if knowledge is None else knowledge.of(chain, columns)
    return chosen_parameters(chain, columns, stacked(factors, rows)[:, :-1], rank_tolerance(chain), known)


def base_parameters_beside(
    chain: Chain,
    columns: Columns,
    signals: Callable[[np.ndarray, np.ndarray], Float[np.ndarray, "N nv k"]],
    names: Sequence[str],
    knowledge: Knowledge | None = None,
) -> BaseParameters:
    """Find the base parameters of columns that are fitted together with the k columns of a friction model.

    A column that depends linearly on those of friction is dropped, as those that depend on other columns are: the gravity
    of a vertical prismatic joint is a torque offset. Its parameter then adds to that of friction (`of_signals`).

    Args:
        signals: function of positions and velocities that returns the columns of the friction model.
        names: names of their parameters.
        knowledge: as for `base_parameters`.
    """
    count = max(256, 3 * len(columns.names(chain.n)))
    q, qd, qdd = _random_states(chain, count, np.random.default_rng(0))
    with jax.enable_x64(True):
        model = as_float64(unrounded(chain))
        rows = by_chunks(lambda *x: chunk_rows(columns, model, *x), q, qd, qdd)
    whole = np.concatenate([rows, signals(q, qd)], axis=2)
    r = np.asarray(np.linalg.qr(whole.reshape(-1, whole.shape[2]), mode="r"))
    known = None if knowledge is None else knowledge.of(chain, columns)
    return chosen_parameters(chain, columns, r, rank_tolerance(chain), known, tuple(names))


def random_factors(chain: Chain, columns: Columns, states: int = 0, seed: int = 0) -> QRFactors:
    """Triangular factors of the regressor at random states, with zero torque; see `base_parameters` for `states`."""
    count = states or max(256, 3 * len(columns.names(chain.n)))
    q, qd, qdd = _random_states(chain, count, np.random.default_rng(seed))
    with jax.enable_x64(True):
        return accumulate(columns, as_float64(unrounded(chain)), q, qd, qdd, np.zeros_like(qd))


def rank_tolerance(chain: Chain) -> float:
    """Tolerance for ranks in the chain's precision, relative to the largest column norm."""
    return RANK_TOLERANCE if chain.dtype == np.float64 else ROUNDED_TOLERANCE


def chosen_parameters(
    chain: Chain,
    columns: Columns,
    r: Float[np.ndarray, "_ p"],
    tolerance: float,
    known: Known | None = None,
    signals: tuple[str, ...] = (),
) -> BaseParameters:
    """Select base parameters from the triangular factor r of the regressor, given prior knowledge.

    Args:
        signals: names of the last columns of r, which are those of a friction model.
    """
    names, absent = columns.names(chain.n), columns.absent(chain)
    p = len(names)
    fixed = np.zeros(p, bool) if known is None else known.fixed & ~absent
    if known is not None:
        none = np.zeros(len(signals))
        directions = np.pad(known.directions, [(0, 0), (0, len(signals))])
        r = np.concatenate([np.where([*fixed, *none], 0.0, r), np.linalg.norm(r, axis=0).max() * directions])
    order = (*range(p, p + len(signals)), *columns.elimination_order(chain.n))
    found = _rigid(_select(r, (*names, *signals), order, tolerance), p)
    nowhere = {name for name, gone in zip(names, absent | fixed, strict=True) if gone}
    return dataclasses.replace(
        found,
        unidentifiable=tuple(x for x in found.unidentifiable if x not in nowhere),
        known=tuple(np.array(names)[fixed].tolist()),
    )


def _rigid(found: BaseParameters, p: int) -> BaseParameters:
    """The base parameters among the first p columns, with the coefficients of these columns in the others."""
    signals = found.parameters[p:]
    if not signals:
        return found
    rigid = found.kept < p
    of_signals = np.zeros((len(signals), p))
    of_signals[found.kept[~rigid] - p] = found.matrix[~rigid, :p]
    return dataclasses.replace(
        found,
        kept=found.kept[rigid],
        matrix=found.matrix[rigid, :p],
        names=tuple(name for name, own in zip(found.names, rigid, strict=True) if own),
        parameters=found.parameters[:p],
        dropped=tuple(name for name in found.dropped if name not in signals),
        unidentifiable=tuple(name for name in found.unidentifiable if name not in signals),
        signals=signals,
        of_signals=of_signals,
    )


def _random_states(chain: Chain, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random states: positions within the limits, arbitrary orientations, and velocities and accelerations of order one."""
    where = layout(chain)
    turn = np.where(turning_joints(chain), np.pi, 1.0)
    if chain.coupling is None:
        lower, upper = np.asarray(chain.limits.position, float).T
        lower, upper = np.maximum(lower, -turn), np.minimum(upper, turn)
        beyond = lower >= upper  # the joint limits do not overlap this range
        lower, upper = np.where(beyond, -turn, lower), np.where(beyond, turn, upper)
    else:  # limits apply to joints, not to coordinates
        reach = np.abs(np.asarray(chain.coupling.matrix, float)) / turn[:, None]
        upper = 1 / np.maximum(reach.max(axis=0), 1e-9)
        lower = -upper
    q = np.zeros((count, chain.nq))
    q[:, where.entries] = rng.uniform(lower, upper, (count, chain.nv))[:, where.columns]
    qd, qdd = rng.normal(size=(2, count, chain.nv)) * 2
    for joint in where.quaternions:
        x = rng.normal(size=(count, 4))
        q[:, joint.quaternion] = x / np.linalg.norm(x, axis=1, keepdims=True)
    return q, qd, qdd


def stacked(factors: QRFactors, weights: np.ndarray | None = None) -> np.ndarray:
    """Combine the factors of all joints into one triangular factor, with a weight per joint."""
    r = factors.r if weights is None else factors.r * np.asarray(weights)[:, None, None]
    rows = r.reshape(-1, r.shape[2])
    filled = rows.any(axis=1)
    return np.asarray(np.linalg.qr(rows[filled] if filled.sum() > rows.shape[1] else rows, mode="r"))


def _select(r: np.ndarray, names: tuple[str, ...], order: tuple[int, ...], tolerance: float) -> BaseParameters:
    """Choose linearly independent columns of r in the given order, and express the other columns in terms of them.

    If the model's axes are parallel only to seven digits, some columns differ only slightly from linear combinations of
    others. A basis that contains such columns magnifies rounding errors, so the number of columns that seem independent
    exceeds the rank of r. The threshold for independence is then increased until both numbers agree; the basis still
    spans the same space.

    Raises:
        IdentificationError: r is zero, or no threshold yields as many columns as the rank.
    """
    norms = np.linalg.norm(r, axis=0)
    if norms.max() == 0:
        raise IdentificationError("no parameter has any effect on any torque: the regressor is zero at every state")
    rank = int((np.linalg.svd(r, compute_uv=False) > tolerance * norms.max() / 10).sum())
    counts = []
    for wider in COARSER:
        kept, rest = _independent(r, order, wider * tolerance * norms.max())
        counts.append(len(kept))
        if len(kept) == rank or (wider == 1 and len(kept) < rank):
            return _expressed(r, names, kept, rest, wider * tolerance)
    raise IdentificationError(f"the regressor's rank is ambiguous: {rank} by singular values, {counts[0]} by columns")


def _independent(r: np.ndarray, order: tuple[int, ...], floor: float) -> tuple[list[int], list[int]]:
    """Indices of the columns whose component orthogonal to the kept columns exceeds the floor, and those of the others."""
    basis = np.zeros((r.shape[0], 0))
    kept, rest = [], []
    for k in order:
        residual = r[:, k]
        for _ in range(2):  # twice, against cancellation
            residual = residual - basis @ (basis.T @ residual)
        size = np.linalg.norm(residual)
        if size > floor:
            basis = np.column_stack([basis, residual / size])
            kept.append(k)
        else:
            rest.append(k)
    return kept, rest


def _expressed(
    r: np.ndarray, names: tuple[str, ...], kept: list[int], rest: list[int], tolerance: float
) -> BaseParameters:
    """The base parameters whose leading parameters correspond to the kept columns."""
    kept_array = np.array(kept)
    matrix = np.zeros((len(kept), r.shape[1]))
    matrix[np.arange(len(kept)), kept_array] = 1
    if rest:
        x = np.linalg.lstsq(r[:, kept_array], r[:, rest], rcond=None)[0]
        x[np.abs(x) < 10 * tolerance * np.maximum(1, np.abs(x).max(axis=0))] = 0
        nearest = np.round(x)
        x = np.where(np.abs(x - nearest) < 10 * tolerance, nearest, x)
        matrix[:, rest] = x
    unidentifiable = tuple(names[k] for k in rest if not matrix[:, k].any())
    dropped = tuple(names[k] for k in rest if matrix[:, k].any())
    labels = tuple(_label(names, matrix[row], k) for row, k in enumerate(kept))
    return BaseParameters(kept_array, matrix, labels, unidentifiable, dropped, names)


def _label(names: tuple[str, ...], row: np.ndarray, lead: int) -> str:
    text = names[lead]
    for k in np.flatnonzero(row):
        if k != lead:
            size = abs(row[k])
            text += f" {'+' if row[k] > 0 else '-'} {'' if size == 1 else f'{size:.6g} '}{names[k]}"
    return text
