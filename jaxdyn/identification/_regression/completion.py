"""Completion of base parameters to full parameters, as near as possible to a given model, and chains that have them."""

import functools
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics import inverse_dynamics, resistive_force
from ...dynamics._equations.drive_regressors import DRIVE_LEAVES
from ...errors import IdentificationError, ModelError
from ...model._build import check_inertia, inertia_faults
from ...model._chain import Chain, with_leaves
from ...model._layout import is_ordinary, with_bodies
from ...spatial.inertia import pseudo_inertia
from ...spatial.pseudo_inertia import check_consistent, inertial_parameters_from_pseudo_inertia
from .._preprocessing.samples import Samples
from .base_parameters import BaseParameters
from .columns import Columns, ExtraColumns, leaf_entries, motor_terms, prior_parameters
from .prediction import filtering_of_friction
from .robot import as_float64
from .rows import by_chunks, chunk_rows


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


STAND_IN_MASS, STAND_IN_RADIUS = 2.0, 0.1
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
        q, qd, qdd: positions, velocities and accelerations of the samples.
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
    q, qd, qdd = samples.q, samples.qd, samples.qdd
    own = {e.leaf for e in columns.extra}
    known = Columns(
        () if "coulomb" in columns.drive_terms else ("coulomb",),
        tuple(e for e in motor_terms(chain, ("coulomb",)) if e.leaf not in own),
    )
    filtering = filtering_of_friction(known, chain, prior_parameters(chain, known), samples)
    return filtering + given_torque(chain, columns, q, qd, qdd)


def given_torque(chain: Chain, columns: Columns, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """As `given_samples_torque`, without filtering."""
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

    Parameters of extra columns without a leaf, of virtual links within quaternion joints, and of the drives of floating
    bases are ignored.
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


def impossible_links(chain: Chain) -> tuple[str, ...]:
    """One sentence for each physically inconsistent link of a chain, with the reason."""
    faults = []
    for name, pi in zip(chain.link_names, np.asarray(chain.inertia, float), strict=True):
        try:
            check_inertia(name, pi)
        except ModelError as error:
            faults.append(error.fault)
    return tuple(faults)
