"""An estimation problem: a robot, what is identified of it, and the runs, in one object that every estimator takes."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import IdentificationError
from ...model.chain import Chain
from ..accumulate import CHUNK, Factors, accumulate, predict
from ..base_parameters import BaseParameters, as_float64, base_parameters
from ..closed_loop import ClosedLoop
from ..columns import Columns
from ..completion import given_torque, prior_parameters
from ..preprocessing import Samples


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What every estimator takes; made by `estimation_problem`.

    Attributes:
        chain: the model, in float64; its own parameters are where estimators that simulate start.
        columns: what is identified.
        base: the base parameters.
        samples: the runs.
        weights: (N, n) factors on each run's rows, zero to leave a sample out for a joint.
        independence: share of the samples that count as independent.
        loops: the closed loop of each run, for the estimators that simulate; empty where none is known.
        start: (b,) base parameters where simulating estimators start; the chain's own where None.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    samples: tuple[Samples, ...]
    weights: tuple[np.ndarray, ...]
    independence: float = 1.0
    loops: tuple[ClosedLoop, ...] = ()
    start: np.ndarray | None = None

    @functools.cached_property
    def prior(self) -> np.ndarray:
        """(p,) the chain's own parameters in column order."""
        return prior_parameters(self.chain, self.columns)

    @functools.cached_property
    def torques(self) -> tuple[np.ndarray, ...]:
        """(N, n) of each run: measured torques less those of drive terms that are not identified [N m]."""
        return tuple(s.tau - given_torque(self.chain, self.columns, s.qd, s.qdd) for s in self.samples)

    @functools.cached_property
    def run_factors(self) -> tuple[Factors, ...]:
        """The triangular factors of each run."""
        with jax.enable_x64(True):
            return tuple(
                accumulate(self.columns, self.chain, s.q, s.qd, s.qdd, tau, w)
                for s, tau, w in zip(self.samples, self.torques, self.weights, strict=True)
            )

    @property
    def factors(self) -> Factors:
        """The factors of all runs one after another, (runs n, p + 1, p + 1): a run's joint is weighed by itself."""
        return Factors(*(np.concatenate(x) for x in zip(*self.run_factors, strict=True)))

    @functools.cached_property
    def pooled(self) -> Factors:
        """The factors of each joint, all runs together."""
        first, *rest = self.run_factors
        if not rest:
            return first
        r = np.concatenate([f.r for f in self.run_factors], axis=1)
        return Factors(np.linalg.qr(r, mode="r"), sum(f.counts for f in self.run_factors))

    def full(self, values: np.ndarray) -> np.ndarray:
        """(p,) the full parameters nearest the chain's own that have these base parameters."""
        return self.prior + self.completion @ (values - self.base.matrix @ self.prior)

    @functools.cached_property
    def completion(self) -> np.ndarray:
        """(p, b), B^T (B B^T)^-1."""
        return np.linalg.pinv(self.base.matrix)

    @functools.cached_property
    def initial(self) -> np.ndarray:
        """(b,) where simulating estimators start.

        Raises:
            IdentificationError: the chain has links without a body, so that it cannot be simulated, and no start is given.
        """
        if self.start is not None:
            return np.asarray(self.start, float)
        empty = np.all(np.asarray(self.chain.inertia) == 0, axis=1)
        if empty.any():
            raise IdentificationError(
                f"link {self.chain.link_names[int(np.argmax(empty))]!r} has no inertia, so that the model cannot be simulated; "
                "give start=estimate_wls(problem).values, or a model with inertials"
            )
        return self.base.matrix @ self.prior

    def predictions(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """(N, n) of each run: torques of the identified terms, W base [N m]."""
        spread = np.zeros(len(self.prior))
        spread[self.base.kept] = values
        with jax.enable_x64(True):
            return tuple(predict(self.columns, self.chain, spread, s.q, s.qd, s.qdd) for s in self.samples)

    def rows(self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray) -> Float[np.ndarray, "N n b"]:
        """The base regressor of every sample, held in memory: 8 N n b bytes."""
        out = np.empty((*q.shape, self.base.size))
        with jax.enable_x64(True):
            kept = jnp.asarray(self.base.kept)
            for at in range(0, len(q), CHUNK):  # one compiled shape for runs of every length
                parts = [np.asarray(x[at : at + CHUNK], float) for x in (q, qd, qdd)]
                size = len(parts[0])
                parts = [jnp.asarray(np.concatenate([x, np.zeros((CHUNK - size, q.shape[1]))])) for x in parts]
                out[at : at + size] = np.asarray(_rows(self.columns, self.chain, kept, *parts))[:size]
        return out


@functools.partial(jax.jit, static_argnums=0)
def _rows(columns: Columns, chain: Chain, kept: Array, q: Array, qd: Array, qdd: Array) -> Array:
    return jax.vmap(lambda *x: columns.matrix(chain, *x)[:, kept])(q, qd, qdd)


def estimation_problem(
    chain: Chain,
    samples: Samples | Sequence[Samples],
    columns: Columns | None = None,
    *,
    base: BaseParameters | None = None,
    weights: Sequence[Float[np.ndarray, "_ n"]] | None = None,
    dead_zone: float = 0.0,
    independence: float | None = None,
    loops: ClosedLoop | Sequence[ClosedLoop] = (),
    start: Float[np.ndarray, " b"] | None = None,
) -> Problem:
    """The problem that estimators take.

    Args:
        chain: the robot; its numbers are the start of estimators that simulate.
        samples: the runs.
        columns: what is identified; all drive terms where None.
        base: the base parameters; found where None.
        weights: factors on the rows of each run; one where None.
        dead_zone: leave samples with |qd_j| below this out of joint j's equations [rad/s].
        independence: share of independent samples; 2 * 0.9 * torque cutoff / rate, at most 1, where None.
        loops: the closed loop of each run: needed by `estimate_iv`, `estimate_didim` and `estimate_cloe`.
        start: base parameters to start simulations from; the chain's where None.

    Raises:
        IdentificationError: there is no run, a run has another number of joints, or there are not as many loops or weights as
            runs.
    """
    runs = (samples,) if isinstance(samples, Samples) else tuple(samples)
    closed = (loops,) if isinstance(loops, ClosedLoop) else tuple(loops)
    columns = columns or Columns()
    if not runs:
        raise IdentificationError("there are no samples to estimate from")
    for k, s in enumerate(runs):
        if s.n != chain.n:
            raise IdentificationError(f"run {k + 1} has {s.n} joints, but the model has {chain.n}")
    for name, given in (("loops", closed), ("weights", weights)):
        if given is not None and len(given) not in ((0, len(runs)) if name == "loops" else (len(runs),)):
            raise IdentificationError(f"there are {len(given)} {name} for {len(runs)} runs; give one a run")
    masks = [(np.abs(s.qd) >= dead_zone).astype(float) for s in runs]
    if weights is not None:
        masks = [m * np.asarray(w, float) for m, w in zip(masks, weights, strict=True)]
    if independence is None:
        independence = min(1.0, *(2 * 0.9 * s.torque_cutoff / s.rate for s in runs))
    with jax.enable_x64(True):
        model = as_float64(chain)
        base = base or base_parameters(chain, columns)
    return Problem(model, columns, base, runs, tuple(masks), float(independence), closed, start)
