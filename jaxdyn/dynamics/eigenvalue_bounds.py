"""Bounds on the eigenvalues of the mass matrix over all configurations: estimates by search, and proved bounds."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import ModelError
from ..model.chain import Chain, is_ordinary, layout
from ..model.configuration import integrate, random_configuration
from .composite_body import crba

STARTS = 8  # number of samples that are refined for each bound
STEPS = 2.0 ** -np.arange(12)  # step lengths that are tried along the gradient
MOST = 7  # maximum number of joints on which M may depend, which requires 5^7 samples


class MassMatrixBounds(NamedTuple):
    """The result of `mass_matrix_bounds`, which describes it."""

    lowest: Float[Array, ""]
    highest: Float[Array, ""]
    q_lowest: Float[Array, " nq"]
    q_highest: Float[Array, " nq"]


def mass_matrix_bounds(chain: Chain, key: PRNGKeyArray, count: int = 256, refinements: int = 20) -> MassMatrixBounds:
    """Estimate the smallest and largest eigenvalues lambda_m and lambda_M of M(q) by a search over the joint ranges.

    The best of `count` random configurations are refined by `refinements` steps along the gradient u^T dM/dq u of the
    eigenvalue with the unit eigenvector u. For the bounds, see Spong, Hutchinson & Vidyasagar (2020, sec. 6.5). A
    search does not prove bounds: lambda_m may be smaller than the estimate `lowest`, and lambda_M larger than
    `highest`.

    The ranges are those of `random_configuration`: the joint limits, +-pi for joints without limits, and +-1 for
    coupled coordinates. If a prismatic joint has no limits, M may be unbounded; with revolute and prismatic joints, the
    eigenvalues mix units. Derivatives of the eigenvalues with respect to the robot are taken at fixed configurations.

    Returns:
        - lowest: smallest eigenvalue found, an estimate of lambda_m [kg m^2 or kg].
        - highest: largest eigenvalue found, an estimate of lambda_M [kg m^2 or kg].
        - q_lowest: configuration with the eigenvalue `lowest` [rad or m].
        - q_highest: configuration with the eigenvalue `highest` [rad or m].
    """
    robot = jax.lax.stop_gradient(chain)
    samples = jax.vmap(lambda k: random_configuration(robot, k))(jax.random.split(key, count))
    values = jax.vmap(lambda q: jnp.linalg.eigvalsh(crba(robot, q))[jnp.asarray([0, -1])])(samples)
    starts = jnp.concatenate([jnp.argsort(values[:, 0])[:STARTS], jnp.argsort(-values[:, 1])[:STARTS]])
    tops = jnp.arange(len(starts)) >= len(starts) // 2
    ends = jax.vmap(lambda q, top: _climb(robot, q, top, refinements))(samples[starts], tops)
    reached = jax.vmap(lambda q: _ends(jnp.linalg.eigvalsh(crba(robot, q))))(ends)
    found = jnp.stack([jnp.argmin(reached[:, 0]), jnp.argmax(reached[:, 1])])
    vectors = jax.vmap(lambda q: _ends(jnp.linalg.eigh(crba(robot, q))[1].T))(ends[found])
    # u^T M u and the eigenvalue have the same derivative with respect to the robot
    values = jax.vmap(lambda q, u: u @ crba(chain, q) @ u)(ends[found], vectors[jnp.arange(2), jnp.arange(2)])
    return MassMatrixBounds(values[0], values[1], ends[found[0]], ends[found[1]])


def _ends(x: Array) -> Array:
    """The first and the last entry."""
    return jnp.stack([x[0], x[-1]])


def _climb(chain: Chain, q: Array, top: Array, refinements: int) -> Float[Array, " nq"]:
    """Configuration reached from q by monotonic ascent of the largest eigenvalue (`top`) or descent of the smallest."""
    low, high = _range(chain)
    steps = jnp.asarray(STEPS, q.dtype)
    sign = jnp.where(top, jnp.ones_like(q[0]), -jnp.ones_like(q[0]))
    chosen = lambda pair: jnp.where(top, pair[1], pair[0])
    entries = layout(chain).entries

    def within(q, dq):
        moved = integrate(chain, q, dq)
        return moved.at[entries].set(jnp.clip(moved[entries], low, high))

    def better(q, _):
        u = chosen(_ends(jnp.linalg.eigh(crba(chain, q))[1].T))
        slope = jax.grad(lambda dq: sign * (u @ crba(chain, integrate(chain, q, dq)) @ u))(jnp.zeros(chain.nv, q.dtype))
        length = jnp.sqrt(slope @ slope)
        unit = slope / jnp.where(length > 0, length, jnp.ones_like(length))
        tried = jnp.concatenate([q[None], jax.vmap(lambda s: within(q, s * unit))(steps)])
        values = jax.vmap(lambda x: sign * chosen(_ends(jnp.linalg.eigvalsh(crba(chain, x)))))(tried)
        return tried[jnp.argmax(values)], None

    return jax.lax.scan(better, q, None, length=refinements)[0]


def _range(chain: Chain) -> tuple[Array, Array]:
    """Lower and upper ends of the range of the ordinary coordinates, as in `random_configuration`."""
    if chain.coupling is not None:
        one = jnp.ones(len(layout(chain).columns), chain.dtype)
        return -one, one
    limits = chain.limits.position[layout(chain).columns]
    finite = jnp.isfinite(limits).all(1)
    return jnp.where(finite, limits[:, 0], -jnp.pi), jnp.where(finite, limits[:, 1], jnp.pi)


# proved bounds


class CertifiedBounds(NamedTuple):
    """The result of `certified_mass_matrix_bounds`, which describes it."""

    below: float
    above: float
    lowest: float
    highest: float
    boxes: int


def certified_mass_matrix_bounds(chain: Chain, boxes: int = 20_000, tolerance: float = 1e-3) -> CertifiedBounds:
    """Proved bounds on the eigenvalues of the mass matrix M(q) of a robot with revolute joints, for all q [kg m^2].

    These are the bounds of Spong, Hutchinson & Vidyasagar (2020, sec. 6.5). Positions range over the joint limits, or
    over the full circle for a joint without limits. With two or three joints beyond the first, the tolerance is reached
    in seconds; with six, the bounds may remain loose.

    M is a trigonometric polynomial of degree two in each joint angle, M(q) = sum_m C_m exp(i m . q) with m_k in -2..2,
    and a discrete Fourier transform of five samples per joint yields all C_m exactly. (M does not depend on the angle
    of a first joint that carries all links.) On a box q = c + d with half widths h, M(q) = A(d) + E, where A(d) is the
    Taylor polynomial of degree one about c, and |E_ij| <= R_ij = sum_kl h_k h_l sum_m |C_m| |m_k m_l| / 2. The smallest
    eigenvalue of A(d) is concave and the largest is convex, so the extremes are attained at corners of the box. By
    Weyl's inequality, the eigenvalues of M differ from those of A by no more than the spectral radius of R.

    The boxes with the worst bounds are halved until the bounds are within the tolerance of the extreme eigenvalues
    found, or until the maximum number of boxes is reached; the bounds are valid in either case. For rounding errors,
    they are widened by 10^4 eps times the largest entry of M.

    Args:
        boxes: maximum number of boxes for each of the two bounds.
        tolerance: maximum distance between a bound and the extreme eigenvalue found, relative to that eigenvalue. If
            this tolerance is not reached, the lower bound may be negative.

    Returns:
        - below: proved lower bound, below <= lambda_min <= lowest [kg m^2].
        - above: proved upper bound, highest <= lambda_max <= above [kg m^2].
        - lowest: smallest eigenvalue among the configurations evaluated [kg m^2].
        - highest: largest eigenvalue among the configurations evaluated [kg m^2].
        - boxes: number of boxes of configurations examined in the proof.

    Raises:
        ModelError: the robot has joints that are not revolute, coupled joints or a transmission, or M depends on more
            than seven joints; see `mass_matrix_bounds`.
    """
    screws, parents = np.asarray(chain.screw, float), np.array(chain.topology.parents)
    revolute = (np.abs(np.sum(screws[:, :3] * screws[:, 3:], axis=1)) < 1e-12) & (np.abs(screws[:, :3]).sum(1) > 0)
    if not is_ordinary(chain) or chain.transmission is not None or not revolute.all():
        raise ModelError(
            "certified bounds require revolute joints without couplings or transmissions; use mass_matrix_bounds"
        )
    moving = np.flatnonzero(parents >= 0)
    if len(moving) > MOST:
        raise ModelError(
            f"M depends on {len(moving)} joints; certified bounds support up to {MOST}; use mass_matrix_bounds"
        )
    limits = np.array(chain.limits.position, float)[moving]
    limits[~np.isfinite(limits).all(1)] = -np.pi, np.pi
    series = _Series(chain, moving)
    below, lowest, first = _search(series, limits, boxes, tolerance, -1)
    above, highest, second = _search(series, limits, boxes, tolerance, 1)
    margin = 1e4 * float(jnp.finfo(chain.dtype).eps) * float(series.size)
    return CertifiedBounds(-below - margin, above + margin, -lowest, highest, first + second)


class _Series:
    """M(q) = sum_m C_m exp(i m . q) in the joint angles on which M depends."""

    def __init__(self, chain: Chain, moving: np.ndarray):
        d, n = len(moving), chain.n
        angles = 2 * np.pi / 5 * np.arange(5)
        grid = np.stack(np.meshgrid(*[angles] * d, indexing="ij"), axis=-1).reshape(-1, d) if d else np.zeros((1, 0))
        q = np.zeros((len(grid), n))
        q[:, moving] = grid
        samples = np.asarray(jax.lax.map(lambda x: crba(chain, x), jnp.asarray(q, chain.dtype), batch_size=256), float)
        self.size = np.abs(samples).max()
        coefficients = samples if not d else np.fft.fftn(samples.reshape(*[5] * d, n, n), axes=range(d)) / 5**d
        grid = np.meshgrid(*[np.fft.fftfreq(5, 1 / 5)] * d, indexing="ij") if d else []
        self._m = np.stack([x.ravel() for x in grid], axis=1) if d else np.zeros((1, 0))
        self._c = coefficients.reshape(-1, n * n)
        large = np.abs(self._c)
        self.second = np.einsum("mk,ml,me->kle", np.abs(self._m), np.abs(self._m), large).reshape(d, d, n, n)

    def affine(self, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """M (b, n, n) and its derivatives (b, d, n, n) at the centres (b, d) of boxes."""
        n = round(self._c.shape[1] ** 0.5)
        waves = np.exp(1j * centres @ self._m.T)
        value = np.real(waves @ self._c).reshape(-1, n, n)
        slopes = [np.real((waves * (1j * m)) @ self._c).reshape(-1, n, n) for m in self._m.T]
        return value, np.stack(slopes, axis=1) if slopes else np.zeros((len(value), 0, n, n))


def _bounds(series: _Series, boxes: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Upper bound on the eigenvalues of sign * M over each box (b, d, 2), and the largest eigenvalue at its centre."""
    centres, half = boxes.mean(2), (boxes[:, :, 1] - boxes[:, :, 0]) / 2
    value, slopes = series.affine(centres)
    rest = np.linalg.eigvalsh(np.einsum("bk,bl,klij->bij", half, half, series.second) / 2)[:, -1]
    inner = (sign * np.linalg.eigvalsh(value)).max(1)
    worst = np.full(len(boxes), -np.inf)
    for corner in itertools.product((-1.0, 1.0), repeat=boxes.shape[1]):
        at = value + np.einsum("bk,bkij->bij", half * np.array(corner), slopes)
        worst = np.maximum(worst, (sign * np.linalg.eigvalsh(at)).max(1))
    return worst + rest, inner


def _search(series: _Series, limits: np.ndarray, most: int, tolerance: float, sign: int) -> tuple[float, float, int]:
    """Upper bound on the eigenvalues of sign * M, the largest eigenvalue found, and the number of boxes examined."""
    boxes, found, closed, count = limits[None], -np.inf, -np.inf, 0
    weight = np.einsum("kkij->k", series.second)
    while True:
        bounds, inner = [
            np.concatenate(x) for x in zip(*(_bounds(series, b, sign) for b in _parts(boxes)), strict=True)
        ]
        count += len(boxes)
        found = max(found, inner.max())
        good = bounds <= found + tolerance * abs(found)
        closed = max(closed, bounds[good].max(initial=-np.inf))
        if good.all() or count + 2 > most:
            return float(max(closed, bounds.max())), float(found), count
        boxes, bounds = boxes[~good], bounds[~good]
        worst = np.argsort(-bounds)
        halved, left = worst[: max(1, (most - count) // 2)], worst[max(1, (most - count) // 2) :]
        closed = max(closed, bounds[left].max(initial=-np.inf))
        boxes = _halves(boxes[halved], weight)


def _parts(boxes: np.ndarray) -> list[np.ndarray]:
    return np.array_split(boxes, -(-len(boxes) // 512))


def _halves(boxes: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The two halves of every box, divided along the side that contributes most to the Taylor remainder."""
    at, k = np.arange(len(boxes)), np.argmax((boxes[:, :, 1] - boxes[:, :, 0]) ** 2 * weight, axis=1)
    middle = boxes[at, k].mean(1)
    left, right = boxes.copy(), boxes.copy()
    left[at, k, 1] = right[at, k, 0] = middle
    return np.concatenate([left, right])
