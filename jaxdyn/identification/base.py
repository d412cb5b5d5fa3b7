"""Base parameters, the combinations of parameters that determine the torques, found numerically and named.

Completion of base parameters to full parameters, as near as possible to a given model, and chains that have them.

Total mass of an identified robot, and whether the fitted equations determine it."""

import dataclasses
import functools
from collections.abc import Sequence
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..dynamics import inverse_dynamics, resistive_force
from ..dynamics.regressors import DRIVE_LEAVES
from ..errors import IdentificationError, ModelError
from ..model.build import check_inertia, inertia_faults, unrounded
from ..model.chain import Chain, is_ordinary, layout, turning_joints, with_bodies, with_leaves
from ..spatial.inertia import (
    check_consistent,
    inertial_parameters_from_pseudo_inertia,
    pseudo_inertia,
)
from .accumulate import accumulate
from .columns import (
    INERTIAL_NAMES,
    Columns,
    ExtraColumns,
    all_columns,
    leaf_entries,
    motor_terms,
    prior_parameters,
)
from .defaults import STAND_IN_MASS, STAND_IN_RADIUS
from .factors import QRFactors, as_float64, by_chunks, check_one_by_one
from .friction_model import joint_positions
from .knowledge import Knowledge, Known
from .prediction import chunk_rows, filtering_of_friction
from .preprocessing import Samples

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
    """

    kept: np.ndarray
    matrix: np.ndarray
    names: tuple[str, ...]
    unidentifiable: tuple[str, ...]
    dropped: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

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

    All parameters of a friction model are leading ones. Other parameters may add to them, as the mass on a vertical
    prismatic joint adds to its torque offset: off2 - 9.81 m3.

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
        IdentificationError: no parameter affects any torque, the rank of the regressor is ambiguous, or there is a friction
            model, but joints are coupled.
    """
    columns = columns or all_columns(chain)
    factors = random_factors(chain, columns, states, seed)
    known = None if knowledge is None else knowledge.of(chain, columns)
    return chosen_parameters(chain, columns, stacked(factors, rows)[:, :-1], rank_tolerance(chain), known)


def all_of(size: int) -> BaseParameters:
    """A basis that contains every column."""
    names = tuple(f"x{k + 1}" for k in range(size))
    return BaseParameters(np.arange(size), np.eye(size), names, (), (), names)


def random_factors(chain: Chain, columns: Columns, states: int = 0, seed: int = 0) -> QRFactors:
    """Triangular factors of the regressor at random states, with zero torque; see `base_parameters` for `states`."""
    count = states or max(256, 3 * len(columns.names(chain.n)))
    q, qd, qdd = _random_states(chain, count, np.random.default_rng(seed))
    if columns.friction is None:
        friction = None
    else:
        check_one_by_one(chain, "a friction model")
        friction = columns.friction.at_states(joint_positions(chain, q), qd)
    with jax.enable_x64(True):
        return accumulate(columns, as_float64(unrounded(chain)), q, qd, qdd, np.zeros_like(qd), signals=friction)


def rank_tolerance(chain: Chain) -> float:
    """Tolerance for ranks in the chain's precision, relative to the largest column norm."""
    return RANK_TOLERANCE if chain.dtype == np.float64 else ROUNDED_TOLERANCE


def chosen_parameters(
    chain: Chain,
    columns: Columns,
    r: Float[np.ndarray, "_ p"],
    tolerance: float,
    known: Known | None = None,
    origin: Int[np.ndarray, " p"] | None = None,
    names: Sequence[str] | None = None,
) -> BaseParameters:
    """Select base parameters from the triangular factor r of the regressor, given prior knowledge.

    Args:
        origin: index of each parameter's column, if some columns have several parameters; those of friction are the last.
        names: names of the parameters, by default those of the columns.
    """
    names, p = tuple(names or columns.names(chain.n)), r.shape[1]
    origin = np.arange(p) if origin is None else origin
    absent = columns.absent(chain)[origin]
    order = np.argsort(columns.elimination_order(chain.n))  # place of each column
    last = p - int((origin >= len(columns.of_state.names(chain.n))).sum())
    fixed = np.zeros(p, bool) if known is None else known.fixed & ~absent
    if known is not None:
        r = np.concatenate([np.where(fixed, 0.0, r), np.linalg.norm(r, axis=0).max() * known.directions])
    found = _select(r, names, tuple(np.argsort(order[origin], kind="stable").tolist()), tolerance)
    if columns.friction is not None:
        found = _with_all_of_friction(found, last)
    nowhere = {name for name, gone in zip(names, absent | fixed, strict=True) if gone}
    return dataclasses.replace(
        found,
        unidentifiable=tuple(x for x in found.unidentifiable if x not in nowhere),
        known=tuple(np.array(names)[fixed].tolist()),
    )


def _with_all_of_friction(found: BaseParameters, p: int) -> BaseParameters:
    """The base parameters, with all columns from number p as leading ones: random states do not show memory or loads."""
    size, k = int((found.kept < p).sum()), len(found.parameters) - p
    matrix = np.zeros((size + k, p + k))
    matrix[:size] = found.matrix[found.kept < p]
    matrix[size + found.kept[found.kept >= p] - p, :p] = found.matrix[found.kept >= p, :p]
    matrix[size:, p:] = np.eye(k)
    kept = np.concatenate([found.kept[found.kept < p], p + np.arange(k)])
    own = found.parameters[p:]
    return dataclasses.replace(
        found,
        kept=kept,
        matrix=matrix,
        names=tuple(_label(found.parameters, row, lead) for row, lead in zip(matrix, kept.tolist(), strict=True)),
        dropped=tuple(name for name in found.dropped if name not in own),
        unidentifiable=tuple(name for name in found.unidentifiable if name not in own),
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
    for joint in where.curved:
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


# -- completion


def nearest_parameters(base: BaseParameters, values: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Compute the full parameters p that are nearest the prior and satisfy base.matrix @ p = values.

    The result is p = prior + B^T (B B^T)^-1 (values - B prior), with B = base.matrix, which minimises |p - prior|. It
    predicts the same torques as the base parameters. Components of p that the data do not determine remain as in the
    prior.

    Args:
        base: the base parameters.
        values: (b,) values of the base parameters, in SI units.
        prior: (p,) full parameters of the prior, in SI units.
    """
    b = base.matrix
    return prior + b.T @ np.linalg.solve(b @ b.T, values - b @ prior)


NOTHING = 1e-9  # inertia of a virtual link, as a fraction of the default body's


def with_stand_ins(chain: Chain) -> tuple[Chain, tuple[str, ...]]:
    """Give every link without a body a default one; return the chain and the names of these links.

    The default body is a solid sphere of 2 kg with a radius of 0.1 m, centred at the link's origin. Kinematics-only
    models need such bodies because parameters that do not affect torques need a prior, and because massless links
    cannot be written to model files. Virtual links within quaternion joints get a mass of 2 ug, which `with_parameters`
    does not copy to the identified chain.
    """
    inertia = np.array(chain.inertia, float)
    bodies = with_bodies(chain.topology)
    empty = np.all(inertia == 0, axis=1)
    moment = 0.4 * STAND_IN_MASS * STAND_IN_RADIUS**2
    inertia[empty] = [STAND_IN_MASS, 0, 0, 0, moment, 0, moment, 0, 0, moment]
    inertia[empty & ~bodies] *= NOTHING
    names = tuple(chain.link_names[i] for i in np.flatnonzero(empty & bodies))
    return eqx.tree_at(lambda c: c.inertia, chain, jnp.asarray(inertia, chain.dtype)), names


THINNEST = 0.1  # minimum thickness of a body, as a fraction of its size


def with_thickness(chain: Chain) -> tuple[Chain, tuple[str, ...]]:
    """Give every body a minimum thickness; return the chain and the names of the links that changed.

    The inertias of point masses, thin rods and flat plates lie on the boundary of physical consistency, and
    inconsistent inertias lie beyond this boundary. Let m s^2 be the principal second moments of mass about the centre
    of mass. Each s is increased to at least 0.1 times the body's size, which is the largest s or, if larger, the
    distance of the centre of mass from the link's origin. The result is the nearest such inertia in the Frobenius norm
    of the second moments. The mass and the centre of mass do not change.

    Raises:
        IdentificationError: a mass is not positive, or an inertial parameter is not finite.
    """
    inertia, thin = np.array(chain.inertia, float), []
    for i, name in enumerate(chain.link_names):
        pi = inertia[i]
        try:
            check_consistent(name, pi)
            continue
        except ModelError as error:
            if not (pi[0] > 0 and np.all(np.isfinite(pi))):
                raise IdentificationError(
                    str(error),
                    "Correct the inertia, remove the link's inertial (a default body is then its prior), use only the "
                    "kinematics with {ignore_inertials}, or identify with {consistent}",
                    ignore_inertials="True",
                    consistent="None",
                ) from None
        second = np.array(pseudo_inertia(jnp.asarray(pi)), float)
        centre = second[:3, 3] / pi[0]
        moments, axes = np.linalg.eigh(second[:3, :3] - pi[0] * np.outer(centre, centre))
        size = max(np.sqrt(max(moments[-1], 0) / pi[0]), np.linalg.norm(centre)) or STAND_IN_RADIUS
        moments = np.maximum(moments, pi[0] * (THINNEST * size) ** 2)
        second[:3, :3] = axes @ np.diag(moments) @ axes.T + pi[0] * np.outer(centre, centre)
        inertia[i] = np.asarray(inertial_parameters_from_pseudo_inertia(jnp.asarray(second)))
        thin.append(name)
    return eqx.tree_at(lambda c: c.inertia, chain, jnp.asarray(inertia, chain.dtype)), tuple(thin)


def with_possible_links(chain: Chain) -> tuple[Chain, tuple[str, ...]]:
    """Make inconsistent inertias consistent by the smallest change; return the chain and the names of these links.

    Raises:
        IdentificationError: as for `with_thickness`.
    """
    faults = inertia_faults(dict(zip(chain.link_names, np.asarray(chain.inertia, float), strict=True)))
    wrong = np.array([name in faults for name in chain.link_names])
    rows = jnp.where(jnp.asarray(wrong)[:, None], chain.inertia, 0.0)
    nearest = with_thickness(with_stand_ins(eqx.tree_at(lambda c: c.inertia, chain, rows))[0])[0].inertia
    return eqx.tree_at(
        lambda c: c.inertia, chain, jnp.where(jnp.asarray(wrong)[:, None], nearest, chain.inertia)
    ), tuple(faults)


def rigid_torque(
    chain: Chain,
    q: Float[np.ndarray, "N nq"],
    qd: Float[np.ndarray, "N nv"],
    qdd: Float[np.ndarray, "N nv"],
    extra: tuple[ExtraColumns, ...] = (),
    values: Float[np.ndarray, " m"] | None = None,
) -> Float[np.ndarray, "N nv"]:
    """Inverse dynamics at the samples, without friction and springs [N m or N]; call under `jax.enable_x64(True)`.

    For uncoupled joints, the torques are computed as regressor times parameters, by a compiled program that the rest of
    the identification also uses.

    Args:
        chain: the robot.
        q: positions of the samples.
        qd: velocities of the samples.
        qdd: accelerations of the samples.
        extra: further columns to include if joints are uncoupled. Columns with a leaf in the chain come first.
        values: parameters of the columns without a leaf.
    """
    if not is_ordinary(chain):
        return by_chunks(functools.partial(_inverse_dynamics, chain), q, qd, qdd)
    columns = Columns(("armature",), (*motor_terms(chain, ("inertia",)), *extra))
    known = prior_parameters(chain, columns)
    if values is not None:
        known[len(known) - len(values) :] = values
    return by_chunks(lambda *x: chunk_rows(columns, chain, *x) @ known, q, qd, qdd)


@jax.jit
def _inverse_dynamics(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
    return jax.vmap(inverse_dynamics, (None, 0, 0, 0))(chain, q, qd, qdd)


def model_torque(chain: Chain, samples: Samples) -> Float[np.ndarray, "N nv"]:
    """Predict a chain's torques for a sampled motion, including friction and springs [N m or N].

    The torques are the sum of `inverse_dynamics` and `resistive_force`. They are computed in float64, in chunks of
    equal size.

    Args:
        chain: the robot.
        samples: samples of the motion.
    """
    with jax.enable_x64(True):
        return motion_torque(as_float64(chain), samples.q, samples.qd, samples.qdd)


def motion_torque(
    chain: Chain,
    q: Float[np.ndarray, "N nq"],
    qd: Float[np.ndarray, "N nv"],
    qdd: Float[np.ndarray, "N nv"],
    extra: tuple[ExtraColumns, ...] = (),
    values: Float[np.ndarray, " m"] | None = None,
) -> Float[np.ndarray, "N nv"]:
    """`rigid_torque` plus the torques of the chain's friction and springs [N m or N]; call under `jax.enable_x64(True)`."""
    resistance = by_chunks(functools.partial(_resistance, chain), q, qd)
    return rigid_torque(chain, q, qd, qdd, extra, values) + resistance


@jax.jit
def _resistance(chain: Chain, q, qd):
    return jax.vmap(resistive_force, (None, 0, 0))(chain, q, qd)


def given_samples_torque(chain: Chain, columns: Columns, samples: Samples) -> np.ndarray:
    """Torques (N, nv) of the drives, motors and springs that are not identified, from the chain's parameters [N m or N].

    Dry friction among them is low-pass filtered like the measured torques.
    """
    q, qd, qdd, columns = samples.q, samples.qd, samples.qdd, columns.with_drives
    own = {e.leaf for e in columns.extra}
    known = Columns(
        () if "coulomb" in columns.drive_terms else ("coulomb",),
        tuple(e for e in motor_terms(chain, ("coulomb",)) if e.leaf not in own),
    )
    filtering = filtering_of_friction(known, chain, prior_parameters(chain, known), samples)
    return filtering + given_torque(chain, columns, q, qd, qdd)


def given_torque(chain: Chain, columns: Columns, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """As `given_samples_torque`, without filtering."""
    columns = columns.with_drives
    if not is_ordinary(chain) or chain.transmission is not None or np.any(np.asarray(chain.springs.stiffness)):
        with jax.enable_x64(True):
            model = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
            rest = with_parameters(model, columns, np.zeros(len(columns.names(chain.n))))
            rest = with_leaves(rest, {"friction.stribeck": jnp.zeros_like(rest.armature)})
            return by_chunks(functools.partial(_drive_torques, rest), q, qd, qdd)
    terms = {
        "armature": (chain.armature, qdd),
        "viscous": (chain.friction.viscous, qd),
        "coulomb": (chain.friction.coulomb, np.tanh(qd / np.asarray(chain.friction.coulomb_velocity, float))),
        "offset": (chain.friction.offset, 1.0),
    }
    given = [
        np.asarray(size, float) * motion for term, (size, motion) in terms.items() if term not in columns.drive_terms
    ]
    return np.zeros_like(qd) + sum(given)


@jax.jit
def _drive_torques(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
    links = jax.vmap(inverse_dynamics, (None, 0, 0, 0))(chain, q, qd, qdd)
    return links + jax.vmap(resistive_force, (None, 0, 0))(chain, q, qd)


def with_parameters(chain: Chain, columns: Columns, parameters: np.ndarray | Array) -> Chain:
    """The chain with its leaves set to the given parameters, one per column.

    Parameters of extra columns without a leaf, of friction models, of virtual links within quaternion joints, and of the
    drives of floating bases are ignored.
    """
    n = chain.n
    if (absent := columns.absent(chain)).any():
        parameters = jnp.where(absent, prior_parameters(chain, columns), parameters)
    drive = parameters[10 * n : 10 * n + len(columns.drive_terms) * n].reshape(n, -1)
    found = {DRIVE_LEAVES[t]: jnp.asarray(drive[:, k], chain.dtype) for k, t in enumerate(columns.drive_terms)}
    found["inertia"] = jnp.asarray(parameters[: 10 * n].reshape(n, 10), chain.dtype)
    chain = with_leaves(chain, found)
    at = 10 * n + len(columns.drive_terms) * n
    for extra in columns.extra:
        found = jnp.asarray(parameters[at : at + len(extra.names)], chain.dtype)
        at += len(extra.names)
        if extra.leaf is not None:
            held = attrgetter(extra.leaf)(chain).at[leaf_entries(extra)].set(found)
            chain = with_leaves(chain, {extra.leaf: held})
    return chain


def without_friction(chain: Chain) -> Chain:
    """A copy of the chain with zero friction and offsets, which a friction model replaces."""
    none = jnp.zeros(chain.n, chain.dtype)
    friction = dataclasses.replace(chain.friction, viscous=none, coulomb=none, stribeck=none, offset=none)
    return dataclasses.replace(chain, friction=friction)


def impossible_links(chain: Chain) -> tuple[str, ...]:
    """One sentence for each physically inconsistent link of a chain, with the reason."""
    faults = []
    for name, pi in zip(chain.link_names, np.asarray(chain.inertia, float), strict=True):
        try:
            check_inertia(name, pi)
        except ModelError as error:
            faults.append(error.fault)
    return tuple(faults)


# -- total mass

CLOSE = 1e-4  # relative tolerance, which must cover the noise with which logged positions satisfy the constraints


@dataclasses.dataclass(frozen=True)
class TotalMass:
    """Total mass of the moving links.

    Attributes:
        value: total mass of the identified robot [kg].
        deviation: standard deviation of the weighted least-squares estimate, from a jackknife [kg]. It is None if the
            fitted equations do not determine the total mass, so that `value` depends on the given model. The equations
            never determine the total mass of a robot with a fixed base, and may not do so if unmeasured forces act at
            fixed frames.
        prior: total mass of the given model [kg].
    """

    value: float
    deviation: float | None
    prior: float

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.value:.4g} kg, not determined by the data ({self.prior:.4g} kg in the given model)"
        return f"{self.value:.4g} kg, standard deviation {self.deviation:.2g} kg"


def total_mass_of(
    base: BaseParameters,
    covariance: Float[np.ndarray, "b b"],
    parameters: Float[np.ndarray, " p"],
    prior: Float[np.ndarray, " p"],
    bodies: Bool[np.ndarray, " n"],
) -> TotalMass:
    """Sum of the links' masses, with a standard deviation if the sum is a combination of base parameters.

    Args:
        covariance: covariance of the base parameters.
        parameters: the identified full parameters.
        prior: the full parameters of the prior model.
        bodies: mask of the links that can have a mass (`with_bodies`).
    """
    masses = np.zeros(base.matrix.shape[1])
    masses[: len(INERTIAL_NAMES) * len(bodies) : len(INERTIAL_NAMES)] = bodies
    unknown = np.where(np.isin(np.array(base.parameters), base.known), 0.0, masses) if base.known else masses
    weights = np.linalg.lstsq(base.matrix.T, unknown, rcond=None)[0]
    missed = np.linalg.norm(base.matrix.T @ weights - unknown)
    determined = missed <= CLOSE * max(float(np.linalg.norm(unknown)), 1.0)
    deviation = float(np.sqrt(weights @ covariance @ weights)) if determined else None
    return TotalMass(float(masses @ parameters), deviation, float(masses @ prior))
