"""Approximation of a friction model by the dissipative friction of a chain, for files and simulators."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import optimize

from ...dynamics import friction_force
from ...model._chain import Chain, with_leaves
from .._preprocessing.samples import Samples
from .._regression.robot import as_float64
from .fit import FrictionFit
from .terms import Coulomb

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
    fit = dataclasses.replace(fit, model=dataclasses.replace(fit.model, cutoff=None))
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
