"""The gravity that the torques of a run show, and whether all torques have the opposite sign."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...model._chain import Chain
from ...model._layout import leading_joints
from .._payload.loaded_runs import RIGID
from .._preprocessing.samples import Samples
from .._regression.completion import prior_parameters
from .._regression.robot import as_float64
from .._regression.rows import by_chunks, link_rows

ROWS = 1000  # samples used, evenly spaced; the effects sought are large
OWN = 4  # columns of each joint: acceleration, velocity, its sign, and one
WEIGHED = 4  # of ten parameters of a link, the mass and the first moments act through gravity
RIDGE = 1e-10  # added to the diagonal of the normal equations after scaling columns to unit norm
STEPS, CONVERGED = 10, 1e-3  # Gauss-Newton steps, and the change of the mean log error at which they stop
EARTH = 9.81  # [m/s^2]


@dataclasses.dataclass(frozen=True, eq=False)
class GravityFit:
    """How well a rigid-body model with free parameters explains torques under several gravities.

    Errors are geometric means of the joints' RMS errors, relative to that under the given gravity.

    Attributes:
        found: (3,) the gravity with the least error, in the axes of the chain's gravity [m/s^2].
        found_error: relative error under `found`.
        none_error: relative error without gravity.
        weight: (n,) RMS torque of the given model's weight, without its constant part and what friction can explain
            [N m or N].
        expected: (n,) `weight` relative to the RMS error without gravity.
        motion: correlation of acceleration and identified inertial torque, summed over the joints. The inertia of a
            robot is positive definite, so it is positive, unless all torques have the opposite sign.
        dissipation: correlation of velocity and identified friction, summed over the joints; positive as well.
    """

    found: Float[np.ndarray, "3"]
    found_error: float
    none_error: float
    weight: Float[np.ndarray, " n"]
    expected: Float[np.ndarray, " n"]
    motion: float
    dissipation: float


def fit_gravity(chain: Chain, samples: Sequence[Samples]) -> GravityFit:
    """Fit the parameters of all links under the given gravity, without gravity, and with gravity as a further unknown.

    The regressor is affine in gravity, Y(q, qd, qdd; g) = Y_0 + g_x Y_x + g_y Y_y + g_z Y_z, so inner products of these
    four parts, of each joint's friction and rotor inertia, and of the torques suffice for a weighted least-squares fit
    under any gravity. The gravity is found by Gauss-Newton steps in g and the parameters together, from the best of the
    given gravity and the six directions of the axes. No inertias of the chain are used for this; its masses only serve to
    tell how large the weight should be.

    Call this function under `jax.enable_x64(True)`.
    """
    fit, given = _Products(chain, samples), np.asarray(chain.gravity, float)
    values, noise = fit.solved(given)
    size = float(np.linalg.norm(given)) or EARTH
    error = lambda g: float(np.log(fit.solved(g)[1]).mean())
    here = float(np.log(noise).mean())
    axes = [size * sign * axis for axis in np.eye(3) for sign in (1.0, -1.0)]
    starts = sorted([(here, *given), *((error(g), *g) for g in axes)])
    found, least = fit.descended(np.array(starts[0][1:]), starts[0][0])
    none = fit.solved(np.zeros(3))[1]
    motion, dissipation = fit.powers(given, values)
    weight = fit.weight(given, prior_parameters(chain, RIGID))
    return GravityFit(
        found=found,
        found_error=float(np.exp(least - here)),
        none_error=float(np.exp(np.log(none).mean() - here)),
        weight=weight,
        expected=weight / none,
        motion=motion,
        dissipation=dissipation,
    )


class _Products:
    """Inner products of the columns [own, Y_0, Y_x, Y_y, Y_z, tau] of each joint."""

    def __init__(self, chain: Chain, samples: Sequence[Samples]):
        model, total = as_float64(chain), sum(len(s) for s in samples)
        under = lambda g: dataclasses.replace(model, gravity=jnp.asarray(g, float))
        width = np.asarray(chain.friction.coulomb_velocity, float)[leading_joints(chain)]
        heavy = np.flatnonzero(np.arange(10 * chain.n) % 10 < WEIGHED)
        columns = OWN + 10 * chain.n + 3 * len(heavy) + 1
        self.all: Float[np.ndarray, "n c c"] = np.zeros((chain.nv, columns, columns))
        self.count = 0
        for s in samples:
            count = max(1, min(len(s), round(ROWS * len(s) / total)))
            some = np.linspace(0, len(s) - 1, count).astype(int)
            q, qd, qdd, tau = (x[some] for x in (s.q, s.qd, s.qdd, s.tau))
            still = np.zeros_like(qd)
            own = np.stack([qdd, qd, np.tanh(qd / width), np.ones_like(qd)], axis=2)
            moving = by_chunks(lambda *x: link_rows(under(np.zeros(3)), *x), q, qd, qdd)
            weights = [
                by_chunks(lambda *x, g=g: link_rows(under(g), *x), q, still, still)[:, :, heavy] for g in np.eye(3)
            ]
            rows = np.moveaxis(np.concatenate([own, moving, *weights, tau[:, :, None]], axis=2), 1, 0)
            self.all = self.all + np.swapaxes(rows, 1, 2) @ rows
            self.count += count
        self.p, self.heavy = 10 * chain.n, heavy
        self.own = [_regressed(m) for m in self.all]  # (n, OWN, ...): what the own columns explain of all others
        clear = [m[OWN:, OWN:] - m[OWN:, :OWN] @ x for m, x in zip(self.all, self.own, strict=True)]
        self.clear = np.stack(clear)

    def mixed(self, g: Float[np.ndarray, "3"]) -> Float[np.ndarray, "c p"]:
        """The matrix that combines the columns [Y_0, Y_x, Y_y, Y_z] into those under a gravity."""
        out = np.zeros((self.p + 3 * len(self.heavy), self.p))
        out[: self.p] = np.eye(self.p)
        for k in range(3):
            out[self.p + k * len(self.heavy) + np.arange(len(self.heavy)), self.heavy] = g[k]
        return out

    def solved(self, g: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " n"]]:
        """Parameters of the links from a weighted fit, and the RMS error of each joint."""
        return self._weighted(self.mixed(g))

    def _weighted(self, mixed: Float[np.ndarray, "c m"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]:
        a = mixed.T @ self.clear[:, :-1, :-1] @ mixed
        c, y = self.clear[:, :-1, -1] @ mixed, self.clear[:, -1, -1]
        floor = 1e-6 * np.sqrt(np.maximum(self.all[:, -1, -1], 1e-300) / self.count)
        noise = np.maximum(np.sqrt(np.maximum(y, 0) / self.count), floor)
        x = np.zeros(mixed.shape[1])
        for _ in range(6):
            x = _solution(np.einsum("j,jab->ab", noise**-2, a), noise**-2 @ c)
            squares = y - 2 * c @ x + np.einsum("a,jab,b->j", x, a, x)
            noise = np.maximum(np.sqrt(np.maximum(squares, 0) / self.count), floor)
        return x, noise

    def descended(self, g: Float[np.ndarray, "3"], error: float) -> tuple[Float[np.ndarray, "3"], float]:
        """The gravity after Gauss-Newton steps from g, and its mean log error."""
        for _ in range(STEPS):
            x = self.solved(g)[0]
            beside = np.zeros((len(self.mixed(g)), 3))
            for k in range(3):
                beside[self.p + k * len(self.heavy) + np.arange(len(self.heavy)), k] = x[self.heavy]
            step = self._weighted(np.concatenate([self.mixed(g), beside], axis=1))[0][-3:]
            trials = [g + 0.5**k * step for k in range(4)]
            errors = [float(np.log(self.solved(trial)[1]).mean()) for trial in trials]
            best = int(np.argmin(errors))
            gained = error - errors[best]
            if gained > 0:
                g, error = trials[best], errors[best]
            if gained < CONVERGED:
                break
        return g, error

    def weight(self, g: Float[np.ndarray, "3"], prior: Float[np.ndarray, " p"]) -> Float[np.ndarray, " n"]:
        """RMS torque of the weight of links with given parameters, after elimination of each joint's own columns."""
        x = (self.mixed(g) - self.mixed(np.zeros(3))) @ prior[: self.p]
        return np.sqrt(np.maximum(np.einsum("a,jab,b->j", x, self.clear[:, :-1, :-1], x), 0) / self.count)

    def powers(self, g: Float[np.ndarray, "3"], values: Float[np.ndarray, " p"]) -> tuple[float, float]:
        """Correlation of accelerations with inertial torques, and of velocities with friction, over all joints."""
        links = np.concatenate([self.mixed(g) @ values, [0.0]])
        moving = np.concatenate([values, np.zeros(len(links) - self.p)])
        inertial, friction = np.zeros(3), np.zeros(3)
        for m, own in zip(self.all, self.own, strict=True):
            coefficients = own[:, -1] - own @ links
            size = 1 / max(m[-1, -1], 1e-300)  # joints count by their torque
            torque = np.zeros((len(m), 2))
            torque[0, 0], torque[OWN:, 0], torque[1:3, 1] = coefficients[0], moving, coefficients[1:3]
            for found, k, rate in ((inertial, 0, 0), (friction, 1, 1)):
                scale = np.sqrt(size / max(m[rate, rate], 1e-300))
                found += [scale * m[rate] @ torque[:, k], 1.0, size * torque[:, k] @ m @ torque[:, k]]
        return tuple(float(x[0] / np.sqrt(max(x[1] * x[2], 1e-300))) for x in (inertial, friction))  # type: ignore[return-value]


def _regressed(m: Float[np.ndarray, "c c"]) -> Float[np.ndarray, "o d"]:
    """Coefficients of a joint's own columns in the regression of all other columns on them."""
    size = np.sqrt(np.maximum(np.diag(m), 1e-300))
    scaled = m / size[:, None] / size
    return np.linalg.lstsq(scaled[:OWN, :OWN], scaled[:OWN, OWN:], rcond=1e-10)[0] / size[:OWN, None] * size[OWN:]


def _solution(h: Float[np.ndarray, "m m"], right: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Solve normal equations of any rank; the parameters of negligible columns are zero."""
    norms = np.sqrt(np.maximum(np.diag(h), 0))
    norms = np.where(norms > 1e-9 * max(norms.max(), 1e-300), norms, np.inf)
    return np.linalg.solve(h / norms[:, None] / norms + RIDGE * np.eye(len(h)), right / norms) / norms
