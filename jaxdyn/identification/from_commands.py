"""Identification from commands alone: servo gains, delays, biases, armature and friction, without torques.

Closed-loop output error: the robot and its position servos are simulated over the logged commands, and the simulated
positions are fitted to the measured ones. The sensitivities are exact derivatives of the simulation.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import optimize

from .._summary import Summary, data_frame, lines
from ..dynamics import forward_dynamics, resistive_force
from ..dynamics.derivatives import derivatives_at_qdd
from ..errors import IdentificationError
from ..io.logs import Log, check_log
from ..io.tables import segments
from ..model.chain import Chain
from .base import motion_torque
from .defaults import BLOCKS
from .factors import as_float64, block_degrees, check_identifiable, check_one_by_one, equal_blocks, left_out_covariance
from .filters import differentiate, low_pass

UNITS = {
    "kp": "N m/rad",
    "kd": "N m s/rad",
    "delay": "s",
    "bias": "rad",
    "armature": "kg m^2",
    "viscous": "N m s/rad",
    "coulomb": "N m",
    "coulomb_velocity": "rad/s",
    "offset": "N m",
}
PARAMETERS = tuple(UNITS)
LONGEST = 0.1  # longest delay among the start values [s]
CUTOFF = 10.0  # of the filter for the start values [Hz]
STAGES = 3  # of each step of the simulation
NEAR = 1e-2  # difference below which a mean is the value in the middle
TOGETHER = 16  # windows that are simulated together
ROUNDS = 60  # of the Levenberg-Marquardt iteration
RESTED = 0.03  # square of the remaining step, in standard deviations, at which the iteration ends
LEAST = {"coulomb_velocity": 1e-3}  # below, the simulation's steps are too long [rad/s]
IDLE = 6  # trial steps without a better fit, at which it ends
USELESS = {"bias": 1.0, "delay": 1.0}  # a parameter with a larger standard deviation is not determined [rad, s]
TINY = 1e-30
SINGULAR = 1e-10  # least eigenvalue of the normal matrix with unit diagonal, if all parameters are determined


# -- simulation


@jax.custom_jvp
def _acceleration(chain: Chain, armature: Array, q: Array, qd: Array, tau: Array) -> Array:
    """Accelerations of a chain with this armature, whose derivatives share the Jacobians of the state."""
    return forward_dynamics(dataclasses.replace(chain, armature=armature), q, qd, tau)


@_acceleration.defjvp
def _acceleration_jvp(primals, tangents):
    chain, armature, q, qd, _ = primals
    _, more, dq, dqd, dtau = tangents
    qdd = _acceleration(*primals)
    by = derivatives_at_qdd(dataclasses.replace(chain, armature=armature), q, qd, qdd)
    return qdd, by.q @ dq + by.qd @ dqd + by.tau @ (dtau - more * qdd)


class _Windows(NamedTuple):
    """Stretches of the logs that are simulated from initial states of their own.

    Attributes:
        t: times of the rows, from the window's first row [s]; rows without a measurement continue the times evenly.
        q: measured positions; `there` is False for rows that are none.
        knots: times at which the command changes, from well before the window to well after it [s].
        command: the command from each knot on, and `travel`, its integral over time up to the knot [rad s].
        run: the log of each window, and `begin`, its first time in the log [s].
    """

    t: Float[np.ndarray, "W R"]
    q: Float[np.ndarray, "W R n"]
    there: Bool[np.ndarray, "W R"]
    knots: Float[np.ndarray, "W K"]
    command: Float[np.ndarray, "W K n"]
    travel: Float[np.ndarray, "W K n"]
    run: Int[np.ndarray, " W"]
    begin: Float[np.ndarray, " W"]

    def of(self, chosen: Any) -> "_Windows":
        return _Windows(*(x[chosen] for x in self))


class _Plan(eqx.Module):
    """What is simulated, and with which parameters.

    Attributes:
        chain: the robot.
        table: (n, 8) all parameters; those at `free` are replaced by the vector of identified ones.
        substeps: integration steps per row.
        hold: the commands are held between rows, not interpolated.
    """

    chain: Chain
    table: Float[np.ndarray, "n k"]
    free: Int[np.ndarray, "2 p"]
    substeps: int = eqx.field(static=True)
    hold: bool = eqx.field(static=True)

    def full(self, values: Any) -> Any:
        """The table of all parameters."""
        return jnp.asarray(self.table).at[tuple(self.free)].set(values)


def servo_chain(chain: Chain, table: Any) -> Chain:
    """The chain with the armature and the friction of a table of parameters."""
    column = {name: table[:, k] for k, name in enumerate(PARAMETERS)}
    friction = dataclasses.replace(
        chain.friction, **{x: column[x] for x in ("viscous", "coulomb", "coulomb_velocity", "offset")}
    )
    return dataclasses.replace(chain, armature=column["armature"], friction=friction)


def _sign_between(before: Array, after: Array) -> tuple[Array, Array]:
    """Mean of tanh on the way from one number to another, and its derivative by the second."""
    way, middle = after - before, (after + before) / 2
    near = jnp.abs(way) < NEAR
    way = jnp.where(near, 1.0, way)
    area = lambda x: jnp.logaddexp(x, -x)  # log(2 cosh x), whose derivative is tanh x
    mean = jnp.where(near, jnp.tanh(middle), (area(after) - area(before)) / way)
    return mean, jnp.where(near, (1 - jnp.tanh(middle) ** 2) / 2, (jnp.tanh(after) - mean) / way)


def _simulated(plan: _Plan, window: _Windows, values: Array, start: Array) -> Float[Array, "R n"]:
    """Positions that the encoders would show at the rows of a window that starts at `start`, (q, qd) as measured.

    A step of length h with the acceleration a, which is constant during the step, solves

        M a + C qd + g = kp (u - q - bias) - F,  F = damping qd + coulomb mean(tanh(qd / v_c)) + other resistance,

    where M, C, g, q and qd are those of the middle of the step, and the mean of dry friction is taken over the velocities
    that the step passes. The scheme is of second order. It is implicit in friction, which may be steep, and reversals
    within a step are exact in this sense. Each of the `STAGES` improves a by a Newton step for F and a fixed-point step
    for all else, starting from the acceleration of the step before.

    The command u is its mean over the step. Where commands are held, this is the difference of their integral, which is a
    continuous, piecewise linear function of the delay, with exact derivatives.
    """
    table = plan.full(values)
    column = {name: table[:, k] for k, name in enumerate(PARAMETERS)}
    kp, delay, bias, width, coulomb = (column[x] for x in ("kp", "delay", "bias", "coulomb_velocity", "coulomb"))
    damping = column["kd"] + column["viscous"]
    rest = servo_chain(plan.chain, table.at[:, [PARAMETERS.index(x) for x in ("viscous", "coulomb")]].set(0.0))
    m, n = plan.substeps, plan.chain.n
    edges = jnp.interp(jnp.arange((len(window.t) - 1) * m + 1) / m, jnp.arange(1.0 * len(window.t)), window.t)
    lengths = jnp.diff(edges)
    if plan.hold:
        travelled = jax.vmap(lambda d, x: jnp.interp(edges - d, window.knots, x), (0, 1), 1)(delay, window.travel)
        command = jnp.diff(travelled, axis=0) / lengths[:, None]
    else:
        middle = (edges[1:] + edges[:-1]) / 2
        command = jax.vmap(lambda d, x: jnp.interp(middle - d, window.knots, x), (0, 1), 1)(delay, window.command)

    def step(state, x):
        (q, qd, before), (u, h) = state, x

        def stage(a, _):  # a scan, which compiles one stage instead of several
            x, xd = q + h / 2 * qd + h**2 / 4 * a, qd + h / 2 * a
            sign, slope = _sign_between(qd / width, (qd + h * a) / width)
            stiff = h * (damping / 2 + coulomb / width * slope)
            force = kp * (u - x - bias) - damping * xd - coulomb * sign - resistive_force(rest, x, xd) + stiff * a
            return _acceleration(plan.chain, rest.armature + stiff, x, xd, force), None

        a, _ = jax.lax.scan(stage, before, length=STAGES)
        return (q + h * qd + h**2 / 2 * a, qd + h * a, a), None

    def row(state, x):
        state, _ = jax.lax.scan(step, state, x)
        return state, state[0]

    rows = command.reshape(-1, m, n), lengths.reshape(-1, m)
    first = (start[:n] - bias, start[n:], jnp.zeros(n))
    _, q = jax.lax.scan(row, first, rows)
    return jnp.concatenate([first[0][None], q]) + bias[None]


@jax.jit
def _normal(plan: _Plan, windows: _Windows, values: Array, starts: Array) -> tuple[Array, Array, Array]:
    """J^T J (W, n, d, d), J^T r (W, n, d) and r^T r (W, n) of each window and joint, by values and initial states."""

    def of_window(window, start):
        def positions(x):
            q = _simulated(plan, window, x[: len(values)], x[len(values) :])
            return q, q

        jacobian, q = jax.jacfwd(positions, has_aux=True)(jnp.concatenate([values, start]))
        jacobian = jnp.where(window.there[:, None, None], jacobian, 0.0)
        off = jnp.where(window.there[:, None], window.q - q, 0.0)
        return (
            jnp.einsum("rja,rjb->jab", jacobian, jacobian),
            jnp.einsum("rja,rj->ja", jacobian, off),
            (off**2).sum(0),
        )

    return jax.vmap(of_window)(windows, starts)


@jax.jit
def _positions(plan: _Plan, windows: _Windows, values: Array, starts: Array) -> Array:
    return jax.vmap(lambda window, start: _simulated(plan, window, values, start))(windows, starts)


# -- the logs


def _checked(chain: Chain, logs: Sequence[Log]) -> list[Log]:
    """The logs after `check_log`, if they have commands that the joints do not follow exactly."""
    check_identifiable(chain)
    check_one_by_one(chain, "identification from commands")
    out = []
    for given in logs:
        log = check_log(given, chain)
        if log.command is None:
            raise IdentificationError(
                f"{log.source}: the log has no commanded positions; add columns q_cmd1 .. q_cmd{log.n}, or, if torques were "
                "measured, use identify"
            )
        if not np.isfinite(log.command).all():
            raise IdentificationError(f"{log.source}: some commands are not finite; remove their rows")
        for name, u, q in zip(chain.joint_names, log.command.T, log.q.T, strict=True):
            if np.ptp(u) == 0:
                raise IdentificationError(f"{log.source}: the command of {name} is constant; log commands that move it")
            if np.abs(u - q).max() < 1e-3 * np.ptp(q):
                raise IdentificationError(
                    f"{log.source}: the command of {name} equals its measured position, so the command column is probably a "
                    "copy of the measurement; log what is sent to the servo"
                )
        out.append(log)
    return out


def _windows(logs: Sequence[Log], seconds: float) -> _Windows:
    """Divide logs into windows of about `seconds`, none of which spans a gap."""
    parts = []
    for run, log in enumerate(logs):
        for a, b in segments(log.t):
            count = max(1, round((log.t[b - 1] - log.t[a]) / seconds))
            parts += [(run, a, *edges) for edges in equal_blocks(b - a, count) if edges[1] - edges[0] > 2]
    rows = max(stop - start for _, _, start, stop in parts)
    before = [np.searchsorted(logs[run].t, logs[run].t[a + start] - 2 * LONGEST) for run, a, start, _ in parts]
    width = max(a + stop - first for (_, a, _, stop), first in zip(parts, before, strict=True)) + 2
    out = []
    for (run, a, start, stop), first in zip(parts, before, strict=True):
        log, start, stop = logs[run], a + start, a + stop
        period = float(np.median(np.diff(log.t)))
        t, command = log.t[first:stop] - log.t[start], log.command[first:stop]  # type: ignore[index]
        extra = rows - (stop - start)
        times = np.append(log.t[start:stop] - log.t[start], t[-1] + period * np.arange(1, extra + 1))
        far = t[-1] + 10.0 * np.arange(1, width - len(t))  # the last command stays, and so does the first
        knots = np.concatenate([[t[0] - 10.0], t, far])
        u = np.concatenate([command[:1], command, np.repeat(command[-1:], len(far), axis=0)])
        travel = np.append(np.zeros_like(u[:1]), np.cumsum(u[:-1] * np.diff(knots)[:, None], axis=0), axis=0)
        q = np.append(log.q[start:stop], np.zeros((extra, log.n)), axis=0)
        out.append((times, q, np.arange(rows) < stop - start, knots, u, travel, run, log.t[start]))
    return _Windows(*(np.stack(x) for x in zip(*out, strict=True)))


class _Piece(NamedTuple):
    """A stretch of a log without gaps, with its filtered motion, and the torques that the bare model needs for it."""

    run: int
    log: Log
    t: Float[np.ndarray, " N"]
    smooth: Callable[[np.ndarray], np.ndarray]
    q: Float[np.ndarray, "N n"]
    qd: Float[np.ndarray, "N n"]
    qdd: Float[np.ndarray, "N n"]
    dry: Float[np.ndarray, "N n"]
    tau: Float[np.ndarray, "N n"]


def _pieces(chain: Chain, logs: Sequence[Log]) -> list[_Piece]:
    """The stretches of the logs that are long enough to be filtered."""
    bare, out = (
        servo_chain(chain, jnp.asarray([[float(name == "coulomb_velocity") for name in PARAMETERS]] * chain.n)),
        [],
    )
    for run, log in enumerate(logs):
        for a, b in segments(log.t):
            t = np.linspace(log.t[a], log.t[b - 1], b - a)
            rate = (b - a - 1) / (t[-1] - t[0])
            cutoff = min(CUTOFF, rate / 5)
            if b - a < 6 * rate / cutoff:
                continue
            smooth = functools.partial(low_pass, rate=rate, cutoff=cutoff)
            q = smooth(np.stack([np.interp(t, log.t[a:b], x) for x in log.q[a:b].T], axis=1))
            qd = differentiate(q, rate)
            qdd = differentiate(qd, rate)
            dry = smooth(np.tanh(qd / np.asarray(chain.friction.coulomb_velocity)))
            out.append(_Piece(run, log, t, smooth, q, qd, qdd, dry, motion_torque(bare, q, qd, qdd)))
    if not out:
        raise IdentificationError("all pieces of the logs are too short; log at least a second without gaps")
    return out


def _first_guess(pieces: Sequence[_Piece], free: Bool[np.ndarray, " k"], table: np.ndarray) -> np.ndarray:
    """Start values: a non-negative linear fit of the bare model's torques along the filtered motion, for the best delay.

    These torques equal kp (u - q) - kd qd - armature qdd - viscous qd - coulomb sign(qd) + constant.
    """
    at = np.array([PARAMETERS.index(name) for name in ("kp", "kd", "armature", "viscous", "coulomb")])
    delay, found = PARAMETERS.index("delay"), table.copy()
    for j, own in enumerate(table):
        best = np.inf
        for d in np.linspace(0, LONGEST, 51) if free[delay] else own[delay, None]:
            rows, torques = [], []
            for _, log, t, smooth, q, qd, qdd, dry, tau in pieces:
                held = log.command[np.maximum(np.searchsorted(log.t, t - d + 1e-9, "right") - 1, 0), j]  # type: ignore[index]
                columns = [smooth(held) - q[:, j], -qd[:, j], -qdd[:, j], -qd[:, j], -dry[:, j], 1 + 0 * t, -1 + 0 * t]
                edge = len(t) // 10
                rows.append(np.stack(columns, axis=1)[edge:-edge])
                torques.append(tau[edge:-edge, j])
            x, y = np.concatenate(rows), np.concatenate(torques)
            y = y - x[:, :5][:, ~free[at]] @ own[at[~free[at]]]
            x = x[:, np.append(free[at], [True, True])]
            size = np.linalg.norm(x, axis=0)
            values, rest = optimize.nnls(x / size, y)
            if rest < best:
                best = rest
                found[j, at[free[at]]] = (values / size)[:-2]
                found[j, delay] = d
    return found


# -- the fit


@dataclasses.dataclass
class _Fit:
    """A Levenberg-Marquardt fit of values and initial states: normal equations by window with the states eliminated."""

    values: np.ndarray
    starts: np.ndarray
    squares: np.ndarray  # (W, n) sums of squares of the residuals
    shares: np.ndarray  # (W, p, p) normal matrices of the windows
    scores: np.ndarray  # (W, p) their gradients
    moves: np.ndarray  # (p,) neither at a bound nor undetermined
    useful: np.ndarray  # (p,) determined
    noise: np.ndarray  # (n,)
    rounds: int
    converged: bool


def _evaluated(plan: _Plan, windows: _Windows, values: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    """`_normal` of all windows, in groups of equal size, so that it is compiled once."""
    count, parts = len(windows.t), []
    for k in range(0, count, TOGETHER):
        chosen = np.minimum(np.arange(k, k + TOGETHER), count - 1) if count > TOGETHER else np.arange(count)
        found = _normal(plan, windows.of(chosen), values, starts[chosen])
        parts.append([np.asarray(x)[: count - k] for x in found])
    return [np.concatenate(x) for x in zip(*parts, strict=True)]


def _fit(plan: _Plan, windows: _Windows, values: np.ndarray, starts: np.ndarray, move: bool = True) -> _Fit:
    """Minimise sum_j N_j log |r_j|^2, the likelihood of residuals with one unknown noise per joint.

    Args:
        move: False to fit only the initial states.
    """
    p, rows = len(values), windows.there.sum()
    useless = np.array([USELESS.get(PARAMETERS[k], np.inf) for k in plan.free[1]])
    lower = np.array([LEAST.get(PARAMETERS[k], -np.inf) for k in plan.free[1]])
    cost = lambda squares: rows * np.log(np.maximum(squares.sum(0), TINY)).sum()
    a, b, squares = _evaluated(plan, windows, values, starts)
    damping, rounds, idle = 1e-3, 0, 0
    while True:
        weights = rows / np.maximum(squares.sum(0), TINY)
        h, g = np.einsum("wjab,j->wab", a, weights), np.einsum("wja,j->wa", b, weights)
        shares, scores, back = _without_starts(h, g, p, 0.0)
        size = np.sqrt(np.maximum(np.diag(shares.sum(0)), 0))
        useful = size > 1 / useless
        moves = useful & ((values > lower) | (scores.sum(0) > 0)) & move
        step, turn = _step(shares, scores, back, moves, 0.0)
        rested = step @ scores.sum(0) + (turn * g[:, p:]).sum() * (not move) < RESTED
        rested = rested or idle >= IDLE  # steep friction makes the last sensitivities rough
        if rested or rounds >= ROUNDS:
            break
        rounds += 1
        step, _ = _step(*_without_starts(h, g, p, damping), moves, damping)
        step = np.maximum(values + step, lower) - values
        turn = back[..., -1] - back[..., :-1] @ step
        new = _evaluated(plan, windows, values + step, starts + turn)
        gain = cost(squares) - cost(new[2])
        idle = 0 if gain > 0.1 else idle + 1
        if np.isfinite(gain) and gain >= 0:
            values, starts, (a, b, squares), damping = values + step, starts + turn, new, damping / 10
        else:
            damping = max(10 * damping, 1e-6)
    noise = np.sqrt(squares.sum(0) / rows)
    return _Fit(values, starts, squares, shares, scores, moves, useful, noise, rounds, bool(rested))


def _without_starts(h: np.ndarray, g: np.ndarray, p: int, damping: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal equations of the p values, from which each window's initial state is eliminated, and the map back to it."""
    own = h[:, p:, p:]
    size = np.einsum("waa->wa", own)  # the ridge serves joints that stick from the start, whatever their velocity
    own = own + np.eye(own.shape[1]) * (damping * size + 1e-12 * size.max(1, keepdims=True) + TINY)[:, None]
    back = np.linalg.solve(own, np.concatenate([h[:, p:, :p], g[:, p:, None]], axis=2))
    return h[:, :p, :p] - h[:, :p, p:] @ back[..., :-1], g[:, :p] - (h[:, :p, p:] @ back[..., -1:])[..., 0], back


def _step(
    shares: np.ndarray, scores: np.ndarray, back: np.ndarray, moves: np.ndarray, damping: float
) -> tuple[np.ndarray, np.ndarray]:
    """Damped step of the values that move, and the steps of the initial states that belong to it."""
    whole, step = shares.sum(0)[np.ix_(moves, moves)], np.zeros(len(moves))
    size = np.sqrt(np.diag(whole))
    scaled = whole / np.outer(size, size) + damping * np.eye(len(size))
    step[moves] = np.linalg.lstsq(scaled, scores.sum(0)[moves] / size, rcond=SINGULAR)[0] / size
    return step, back[..., -1] - back[..., :-1] @ step


def _covariance(fit: _Fit) -> tuple[Float[np.ndarray, "p p"], float]:
    """Jackknife covariance of the values over blocks of windows, and its degrees of freedom.

    It is zero for values that stay at their bounds, and infinite for those that the logs do not determine.
    """
    inner = np.ix_(fit.moves, fit.moves)
    labels = np.arange(len(fit.shares)) * BLOCKS // max(BLOCKS, len(fit.shares))
    merged = lambda x: np.stack([x[labels == k].sum(0) for k in np.unique(labels)])
    shares, scores = merged(fit.shares)[:, fit.moves][:, :, fit.moves], merged(fit.scores)[:, fit.moves]
    size = np.sqrt(np.diag(shares.sum(0)))
    eigenvalues, turn = np.linalg.eigh(shares.sum(0) / np.outer(size, size))
    back = turn / np.sqrt(np.maximum(eigenvalues, SINGULAR)) / size[:, None]
    covariance = np.diag(np.where(fit.useful, 0.0, np.inf))
    covariance[inner] = left_out_covariance(back.T @ shares @ back, scores @ back, back, back @ back.T)
    return covariance, block_degrees(len(shares))


# -- the identification

IDENTIFIED = ("kp", "delay", "bias", "armature", "viscous", "coulomb", "coulomb_velocity")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CommandIdentification(Summary):
    """The result of `identify_from_commands`. `result["delay"]` is the delay of each joint (n,).

    Attributes:
        given: the robot whose inertias were taken as given.
        values: (n, 9) all parameters of all joints, in the order of `PARAMETERS`.
        standard_deviations: (n, 9) their standard deviations: zero for known values and for values at their bounds, infinite
            for values that the logs do not determine, which keep their start values.
        degrees: degrees of freedom of the standard deviations, for Student's t.
        identified: names of the identified parameters.
        noise: RMS of measured minus simulated positions of each joint [rad or m].
        held_out: the same for the held-out windows, with the parameters of a fit to the others; None without any.
        tracking: RMS of the commanded minus the measured positions, for comparison [rad or m].
        rounds: number of steps of the fit.
        converged: the fit came to rest.
        notes: what the logs do not determine, and implausible values.
        hold: the commands were held between rows.
        step: longest integration step [s].
    """

    given: Chain
    values: Float[np.ndarray, "n k"]
    standard_deviations: Float[np.ndarray, "n k"]
    degrees: float
    identified: tuple[str, ...]
    noise: Float[np.ndarray, " n"]
    held_out: Float[np.ndarray, " n"] | None
    tracking: Float[np.ndarray, " n"]
    rounds: int
    converged: bool
    notes: tuple[str, ...]
    hold: bool
    step: float

    def __getitem__(self, name: str) -> Float[np.ndarray, " n"]:
        return self.values[:, PARAMETERS.index(name)]

    def deviations(self, name: str) -> Float[np.ndarray, " n"]:
        """Standard deviations of one parameter of all joints."""
        return self.standard_deviations[:, PARAMETERS.index(name)]

    @property
    def chain(self) -> Chain:
        """The robot with the identified armature and friction, where negative values are replaced by zero."""
        table = np.where(np.array(PARAMETERS) == "offset", self.values, np.maximum(self.values, 0.0))
        return servo_chain(self.given, jnp.asarray(table, self.given.dtype))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "n k 2"]:
        """Confidence interval (lower, upper) of each value at `level`, from Student's t distribution."""
        from scipy import stats  # slow to import

        half = float(stats.t.ppf(0.5 + level / 2, self.degrees)) * self.standard_deviations
        return np.stack([self.values - half, self.values + half], axis=-1)

    def predict(self, log: Log) -> Float[np.ndarray, "N n"]:
        """Positions that the robot and its servos reach under a log's commands, from the log's first state [rad or m].

        A log with gaps is simulated in pieces, each from its own first state.
        """
        with jax.enable_x64(True):
            chain = as_float64(self.given)
            windows = _windows([log], np.inf)
            plan = _Plan(chain, self.values, np.zeros((2, 0), int), _substeps([log], self.step), self.hold)
            q = _positions(plan, windows, np.zeros(0), _starts(_pieces(chain, [log]), windows))
        return np.concatenate([np.asarray(x)[there] for x, there in zip(q, windows.there, strict=True)])

    def table(self) -> dict[str, Any]:
        """Columns of a table with one row per joint and parameter: value, standard deviation, 95 % interval, unit."""
        low, high = np.moveaxis(self.confidence_intervals(), -1, 0)
        arrays = {"value": self.values, "standard_deviation": self.standard_deviations, "lower": low, "upper": high}
        return {
            "joint": np.repeat(self.given.joint_names, len(PARAMETERS)),
            "parameter": PARAMETERS * self.given.n,
            **{name: x.ravel() for name, x in arrays.items()},
            "unit": tuple(UNITS.values()) * self.given.n,
        }

    def to_pandas(self) -> Any:
        """Return `table` as a `pandas.DataFrame`."""
        return data_frame(self.table())

    def __repr__(self) -> str:
        rows = []
        for j, name in enumerate(self.given.joint_names):
            at = [(x, PARAMETERS.index(x)) for x in self.identified]
            found = ", ".join(f"{x} {self.values[j, k]:.4g} +- {self.standard_deviations[j, k]:.2g}" for x, k in at)
            rows.append(f"{name}: {found}")
        held = "" if self.held_out is None else f", {1e3 * np.sqrt((self.held_out**2).mean()):.3g} held out"
        tracking, noise = (1e3 * np.sqrt((x**2).mean()) for x in (self.tracking, self.noise))
        errors = f"RMS error [1e-3 rad or m]: {noise:.3g}{held}; of the commands {tracking:.3g}"
        return lines("CommandIdentification", *rows, errors, *self.notes)


def _substeps(logs: Sequence[Log], step: float) -> int:
    return max(1, math.ceil(max(np.median(np.diff(log.t)) for log in logs) / step - 1e-6))


def _starts(pieces: Sequence[_Piece], windows: _Windows) -> Float[np.ndarray, "W m"]:
    """Initial states of the windows as the filtered logs show them, or at rest where the pieces are too short."""
    starts = np.concatenate([windows.q[:, 0], 0 * windows.q[:, 0]], axis=1)
    for w, (run, begin) in enumerate(zip(windows.run, windows.begin, strict=True)):
        for piece in pieces:
            if piece.run == run and piece.t[0] - 1e-9 <= begin <= piece.t[-1]:
                starts[w] = [np.interp(begin, piece.t, x) for x in np.hstack([piece.q, piece.qd]).T]
    return starts


def identify_from_commands(
    chain: Chain,
    logs: Log | Sequence[Log],
    validation: float | Log | Sequence[Log] = 0.3,
    *,
    identified: Sequence[str] = IDENTIFIED,
    known: Mapping[str, Any] | None = None,
    hold: bool = True,
    window: float = 1.0,
    step: float = 5e-4,
) -> CommandIdentification:
    """Identify servos, armature and friction from commanded and measured joint positions, without torques.

    Each joint has a position servo that sees its own encoder, which shows q + bias:

        M(q) qdd + armature qdd + C qd + g + viscous qd + coulomb tanh(qd / coulomb_velocity) + offset
            = kp (command(t - delay) - q - bias) - kd qd.

    The closed loop is simulated over windows of the logs, and the simulated positions are fitted to the measured ones, with
    the initial state of each window (output error with multiple shooting; Ljung 1999, ch. 7; PACE, Bjelonic et al. 2025,
    fits the same model by sampling). The fit is a Levenberg-Marquardt iteration with exact sensitivities, from a
    linear fit of the filtered motion. Each joint is weighted by its own residuals. Standard deviations are those of a block
    jackknife over the windows, which takes correlated residuals into account, such as those of a coarse encoder at low speed.

    Without torques, positions determine all other parameters only relative to the inertias, which are taken as given:
    an inertia that is 10 % too large makes kp about 10 % too large. viscous and kd act in the same way, so only their
    sum is determined. It is called viscous, unless kd is known. The bias is an error of the encoder, which shows only
    in gravity; it is not determined for a joint that gravity does not move. An offset of the command is the parameter
    "offset" [N m], divided by kp.

    Args:
        chain: the robot with its inertias. Drives that are not identified, springs and Stribeck friction are as given.
        logs: runs with `Log.command`; torques are ignored. A row holds the command from its time on, and the position at
            its time.
        validation: the last share of each run that is held out, or logs for validation. The final fit uses all `logs`.
        identified: parameters to identify, of `PARAMETERS`.
        known: values of others, one number or one per joint. By default, armature and friction are those of the chain,
            and kd, delay, bias and offset are zero.
        hold: True if the servo holds each command until the next; False if it interpolates.
        window: length of the windows [s].
        step: longest integration step [s].

    Raises:
        LogError: a log is implausible, or a joint does not move.
        IdentificationError: the logs have no commands, or commands that equal the measurements; a name is unknown; kd and
            viscous are both to be identified; the robot has coupled or spherical joints or a floating base.

    Cost: per step of the fit and second of log, about 0.05 s for a leg with 3 joints, and 0.4 s for an arm with 7.
    """
    runs = _checked(chain, [logs] if isinstance(logs, Log) else logs)
    share = validation if isinstance(validation, float | int) else 0.0
    others = () if isinstance(validation, float | int) else [validation] if isinstance(validation, Log) else validation
    free, own = _free_of(chain, identified, known or {})
    with jax.enable_x64(True):
        model = as_float64(chain)
        pieces = _pieces(model, runs)
        table = _first_guess(pieces, free, own)
        where = np.stack(np.nonzero(np.tile(free, (chain.n, 1))))
        plan = _Plan(model, table, where, _substeps(runs, step), hold)
        windows = _windows(runs, window)
        starts, values = _starts(pieces, windows), table[tuple(where)]
        order = np.array(
            [np.mean(windows.begin[windows.run == r] <= t) for r, t in zip(windows.run, windows.begin, strict=True)]
        )
        last = order > 1 - share + 1e-9
        held_out = None
        if share and not last.all():
            first = _fit(plan, windows.of(~last), values, starts[~last])
            rest = _fit(plan, windows.of(last), first.values, starts[last], move=False) if last.any() else None
            values, held_out = first.values, rest and rest.noise
        fit = _fit(plan, windows, values, starts)
        if others:
            kept = _checked(chain, others)
            apart = _windows(kept, window)
            held_out = _fit(plan, apart, fit.values, _starts(_pieces(model, kept), apart), move=False).noise
    covariance, degrees = _covariance(fit)
    final, deviations = table.copy(), np.zeros_like(table)
    final[tuple(where)], deviations[tuple(where)] = fit.values, np.sqrt(np.diag(covariance))
    off = np.concatenate([log.command - log.q for log in runs])  # type: ignore[operator]
    tracking = np.sqrt((off**2).mean(0))
    notes = _notes(chain, final, deviations, free, fit.converged)
    names = tuple(name for name, is_free in zip(PARAMETERS, free, strict=True) if is_free)
    return CommandIdentification(
        chain,
        final,
        deviations,
        degrees,
        names,
        fit.noise,
        held_out,
        tracking,
        fit.rounds,
        fit.converged,
        notes,
        hold,
        step,
    )


def _free_of(
    chain: Chain, identified: Sequence[str], known: Mapping[str, Any]
) -> tuple[Bool[np.ndarray, " k"], Float[np.ndarray, "n k"]]:
    """Which parameters are identified, and the values of the others."""
    if unknown := [name for name in (*identified, *known) if name not in PARAMETERS]:
        raise IdentificationError(f"{unknown[0]!r} is not a parameter; choose among {', '.join(PARAMETERS)}")
    if both := [name for name in known if name in identified]:
        raise IdentificationError(f"{both[0]!r} is both identified and known; omit it in identified=")
    if {"kd", "viscous"} <= set(identified):
        raise IdentificationError(
            "kd and viscous friction act in the same way, so that only their sum is determined: identify one, and pass the "
            "other as known"
        )
    if "kp" not in identified and "kp" not in known:
        raise IdentificationError("kp is neither identified nor known")
    f, nothing = chain.friction, np.zeros(chain.n)
    own = {"armature": chain.armature, "viscous": f.viscous, "coulomb": f.coulomb, "offset": f.offset}
    own |= {"coulomb_velocity": f.coulomb_velocity, **known}
    table = np.stack([nothing + np.asarray(own.get(name, 0.0), float) for name in PARAMETERS], axis=1)
    return np.array([name in identified for name in PARAMETERS]), table


def _notes(chain: Chain, values, deviations, free, converged: bool) -> tuple[str, ...]:
    """What the logs do not determine, and implausible values."""
    named = lambda at: ", ".join(np.array(chain.joint_names)[at])
    notes = [] if converged else [f"the fit did not come to rest in {ROUNDS} steps"]
    for k, name in enumerate(PARAMETERS):
        if free[k] and np.isinf(deviations[:, k]).any():
            notes.append(f"{name} of {named(np.isinf(deviations[:, k]))} is not determined by these logs")
        if free[k] and name in ("kp", "armature", "viscous", "coulomb"):
            wrong = values[:, k] < -2 * deviations[:, k]
            if wrong.any():
                notes.append(f"{name} of {named(wrong)} is negative: are the inertias of the model too large?")
    if free[PARAMETERS.index("coulomb_velocity")]:
        steep = values[:, PARAMETERS.index("coulomb_velocity")] <= LEAST["coulomb_velocity"]
        if steep.any():
            notes.append(
                f"dry friction of {named(steep)} is steeper than the simulation resolves: {LEAST['coulomb_velocity']} rad/s"
            )
    return tuple(notes)
