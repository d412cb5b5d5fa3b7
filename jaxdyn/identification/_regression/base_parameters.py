"""Base parameters, the combinations of parameters that torques depend on, found numerically and named; the null space."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import turning_joints
from .accumulate import accumulate
from .columns import Columns
from .factors import QRFactors
from .robot import as_float64

# Relative to the largest column norm. Columns are compared as they are: scaling each to unit norm would lift columns that are
# zero but for the rounding of cos(pi/2) into false rank.
RANK_TOLERANCE = 1e-9
ROUNDED_TOLERANCE = 1e-6  # where the chain's own numbers are known to single precision only


@dataclasses.dataclass(frozen=True)
class BaseParameters:
    """A basis of the identifiable parameter combinations: base = matrix @ parameters, and W parameters = W[:, kept] base.

    Attributes:
        kept: columns whose parameter leads a base parameter.
        matrix: (b, p); row k holds the combination named names[k].
        names: the combinations, like "Izz1 + Ia1 + Iyy2".
        unidentifiable: parameters on which no torque depends at all.
        dropped: parameters that act only through the sums of others.
        parameters: names of all parameters, in column order.
    """

    kept: np.ndarray
    matrix: np.ndarray
    names: tuple[str, ...]
    unidentifiable: tuple[str, ...]
    dropped: tuple[str, ...]
    parameters: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of base parameters: the structural rank of the regressor."""
        return len(self.kept)

    @property
    def null_space(self) -> np.ndarray:
        """(p - b, p): changes of the parameters that no torque sees, matrix @ null_space.T = 0; a basis, one a row.

        Row k raises one parameter that is not kept by 1 and takes its share in each base parameter off the one that leads
        it. Adding any multiple of a row to the parameters leaves every torque as it was.
        """
        rest = np.setdiff1d(np.arange(self.matrix.shape[1]), self.kept)
        out = np.zeros((len(rest), self.matrix.shape[1]))
        out[np.arange(len(rest)), rest] = 1
        out[:, self.kept] = -self.matrix[:, rest].T
        return out

    @property
    def null_names(self) -> tuple[str, ...]:
        """The rows of the null space, like "m2 - 0.7 mx1 - 0.49 Izz1": +1 of m2 with -0.7 of mx1 and -0.49 of Izz1."""
        rest = np.setdiff1d(np.arange(self.matrix.shape[1]), self.kept)
        return tuple(_label(self.parameters, row, int(k)) for row, k in zip(self.null_space, rest, strict=True))


def base_parameters(chain: Chain, columns: Columns | None = None, states: int = 0, seed: int = 0) -> BaseParameters:
    """Find the base parameters of a chain from its regressor at random states, independent of any log.

    Columns are taken link by link, inertia before first moment before mass, and a column that depends on those kept so far is
    dropped and its parameter added to theirs (the numerical method of Gautier 1991, in an order that gives the sums of the
    literature). Positions are drawn within the limits, within a turn or a metre where there are none.

    Args:
        columns: what is identified besides the ten parameters a link; all drive terms where None.
        states: number of random states; enough for three rows a column where 0.
        seed: of the random states.
    """
    columns = columns or Columns()
    names = columns.names(chain.n)
    count = states or max(256, 3 * len(names))
    rng = np.random.default_rng(seed)
    lower, upper = np.asarray(chain.limits.position, float).T
    turn = np.where(turning_joints(chain), np.pi, 1.0)
    lower, upper = np.maximum(lower, -turn), np.minimum(upper, turn)
    beyond = lower >= upper  # limits that lie a turn or more away
    lower, upper = np.where(beyond, -turn, lower), np.where(beyond, turn, upper)
    q = rng.uniform(lower, upper, (count, chain.n))
    qd, qdd = rng.normal(size=(2, count, chain.n)) * 2
    with jax.enable_x64(True):
        factors = accumulate(columns, as_float64(chain), q, qd, qdd, np.zeros_like(q))
    tolerance = RANK_TOLERANCE if chain.dtype == np.float64 else ROUNDED_TOLERANCE
    return _select(stacked(factors)[:, :-1], names, columns.elimination_order(chain.n), tolerance)


def stacked(factors: QRFactors, weights: np.ndarray | None = None) -> np.ndarray:
    """One triangular factor of all joints' rows, each joint's multiplied by its weight."""
    r = factors.r if weights is None else factors.r * np.asarray(weights)[:, None, None]
    return np.asarray(np.linalg.qr(r.reshape(-1, r.shape[2]), mode="r"))


def _select(r: np.ndarray, names: tuple[str, ...], order: tuple[int, ...], tolerance: float) -> BaseParameters:
    """Choose independent columns of r in the given order, and express the rest by them."""
    norms = np.linalg.norm(r, axis=0)
    floor = tolerance * norms.max()
    if norms.max() == 0:
        raise IdentificationError("no parameter has any effect on any torque: the regressor is zero at every state")
    basis = np.zeros((r.shape[0], 0))
    kept, rest = [], []
    for k in order:
        residual = r[:, k]
        for _ in range(2):  # twice is enough against cancellation
            residual = residual - basis @ (basis.T @ residual)
        size = np.linalg.norm(residual)
        if size > floor:
            basis = np.column_stack([basis, residual / size])
            kept.append(k)
        else:
            rest.append(k)
    rank = int((np.linalg.svd(r, compute_uv=False) > floor / 10).sum())
    if rank < len(kept):
        raise IdentificationError(
            f"the regressor's rank is not clear: {rank} by singular values, {len(kept)} by columns"
        )
    kept_array = np.array(kept)
    matrix = np.zeros((len(kept), r.shape[1]))
    matrix[np.arange(len(kept)), kept_array] = 1
    if rest:
        x = np.linalg.lstsq(r[:, kept_array], r[:, rest], rcond=None)[0]
        x[np.abs(x) < 10 * tolerance * np.maximum(1, np.abs(x).max())] = 0
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


@dataclasses.dataclass(frozen=True, eq=False)
class NullDirection:
    """A change of parameters that changes no torque: `parameter` grows by one while the others change as given.

    Attributes:
        parameter: name of the one that leads it.
        vector: (p,) the change, in column order: 1 for `parameter`, and what makes up for it.
        text: the same to read: "m3 + 1: mz3 + 0.2, Ixx2 - 0.04", or "m1 + 1 alone".
    """

    parameter: str
    vector: Float[np.ndarray, " p"]
    text: str


def null_space(base: BaseParameters, names: tuple[str, ...]) -> tuple[NullDirection, ...]:
    """A basis of the null space of the regressor: W(q, qd, qdd) vector = 0 in every state, p - b directions.

    With the base parameters B p, whose columns of the kept parameters are the identity, the column k of a parameter that was
    not kept gives the direction e_k - sum_i B_ik e_kept(i). Coefficients have the units of the kept parameter over those of
    the leading one.

    Args:
        names: of all p parameters, in column order (`Identification.names`).
    """
    kept = set(base.kept.tolist())
    directions = []
    for k, name in enumerate(names):
        if k in kept:
            continue
        vector = np.zeros(len(names))
        vector[k] = 1
        vector[base.kept] = -base.matrix[:, k]
        others = [i for i in np.flatnonzero(vector) if i != k]
        changes = ", ".join(f"{names[i]} {'+' if vector[i] > 0 else '-'} {abs(vector[i]):.4g}" for i in others)
        directions.append(NullDirection(name, vector, f"{name} + 1: {changes}" if others else f"{name} + 1 alone"))
    return tuple(directions)
