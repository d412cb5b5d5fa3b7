"""Columns of the identification's regressor without any regressor, and the arm that the tests of identification know."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from helpers import linear_friction, random_chain
from jaxdyn import Chain, inverse_dynamics, with_inertial_parameters
from jaxdyn.identification.factors import BlockFactors


def known_arm() -> Chain:
    """Three revolute joints in general position, with friction, armature and offsets, standing upright."""
    arm = linear_friction(random_chain(3, seed=1, joints="revolute"))
    return dataclasses.replace(arm, gravity=jnp.asarray([0.0, 0.0, -9.81]))


@jax.jit
def _unit_torques(chain, q, qd, qdd):
    bare = eqx.tree_at(lambda c: c.armature, chain, jnp.zeros(chain.n))
    torque = lambda unit, *x: inverse_dynamics(with_inertial_parameters(bare, unit), *x)
    return jax.vmap(jax.vmap(torque, in_axes=(0, None, None, None)), in_axes=(None, 0, 0, 0))(
        jnp.eye(10 * chain.n), q, qd, qdd
    )


def dense(chain: Chain, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> np.ndarray:
    """(N, n, p): all columns by inverse dynamics of unit parameters and by the friction's formula, without a regressor."""
    inertial = np.asarray(_unit_torques(chain, *map(jnp.asarray, (q, qd, qdd)))).transpose(0, 2, 1)
    terms = np.stack([qdd, qd, np.tanh(qd / np.asarray(chain.friction.coulomb_velocity)), np.ones_like(qd)], axis=2)
    drive = np.eye(chain.n)[None, :, :, None] * terms[:, None]
    return np.concatenate([inertial, drive.reshape(*qd.shape, -1)], axis=2)


def dense_blocks(runs: list[np.ndarray]) -> BlockFactors:
    """Factors of about sixteen blocks of the rows [W, tau] of each run, (N, n, w), by one QR decomposition each."""
    total = sum(map(len, runs))
    parts = [(k, x) for k, run in enumerate(runs) for x in np.array_split(run, max(1, round(16 * len(run) / total)))]
    padded = (
        np.concatenate([x, np.zeros((x.shape[2], *x.shape[1:]))]) for _, x in parts
    )  # not fewer rows than columns
    r = np.stack([np.linalg.qr(x.transpose(1, 0, 2), mode="r") for x in padded])
    counts = np.array([[len(x)] * x.shape[1] for _, x in parts])
    return BlockFactors(r, counts, np.array([k for k, _ in parts]))


def states(count: int, n: int = 3, seed: int = 0) -> np.ndarray:
    """Random q, qd, qdd: (3, count, n)."""
    return np.random.default_rng(seed).normal(size=(3, count, n))


def worse(plain, found, blocks=10):
    """By how much a second evaluation of unseen motion is worse at each joint of moving samples: (share, standard errors).

    The share is that of the error relative to the torques as logged. Its standard error is that over the blocks of the motion.
    """
    squares = []
    for one in (plain, found):
        torques, predicted = one.logged
        moving = np.abs(one.samples.qd) > 0.02
        each = np.where(moving, (torques - predicted) ** 2, 0.0)
        squares.append(np.stack([x.sum(0) for x in np.array_split(each, blocks)]))
    rises = (squares[1] - squares[0]) / np.maximum(squares[0] + squares[1], 1e-300)
    error = np.maximum(rises.std(axis=0, ddof=1) / np.sqrt(blocks), 1e-9)
    return np.array([found.raw.relative_moving / plain.raw.relative_moving - 1, rises.mean(0) / error])
