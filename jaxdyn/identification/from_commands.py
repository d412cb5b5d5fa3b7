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
from .factors import (
    as_float64,
    block_degrees,
    bounded_intervals,
    check_identifiable,
    check_one_by_one,
    equal_blocks,
    left_out_covariance,
)
from .filters import differentiate, low_pass

PARAMETERS = ("kp", "kd", "delay", "bias", "armature", "viscous", "coulomb", "coulomb_velocity", "offset")
_UNITS = ("N m/rad", "N m s/rad", "s", "rad", "kg m^2", "N m s/rad", "N m", "rad/s", "N m")
UNITS = dict(zip(PARAMETERS, _UNITS, strict=True))
IDENTIFIED = ("kp", "delay", "bias", "armature", "viscous", "coulomb", "coulomb_velocity")
AT = {name: k for k, name in enumerate(PARAMETERS)}
# all proportional to the inertias
SCALED = np.isin(PARAMETERS, ["kp", "kd", "armature", "viscous", "coulomb", "offset"])
LONGEST = 0.1  # longest delay among the start values [s]
CUTOFF = 10.0  # of the filter for the start values [Hz]
STAGES = 12  # most iterations of a step's equation, which end when the velocity changes by less than SETTLED [rad/s]
SETTLED = 1e-8
NEAR = 1e-2  # difference below which a mean is the value in the middle
TOGETHER = 16  # most windows that are simulated together
ROUNDS = 60  # most rounds of the Levenberg-Marquardt iteration
RESTED = 0.03  # square of the remaining step, in standard deviations for white residuals, at which the iteration ends
NEARLY = 1.0  # at which it has converged, if no further step succeeds: steep friction makes sensitivities rough
WORTH = 0.1  # least gain of log likelihood by a useful step
IDLE = 4  # trial steps without such a gain, at which the iteration ends
STEEPEST = 1e-4  # least width of dry friction [rad/s]
FILTERED = 0.1  # standard deviation of the filtered velocity at a window's start, relative to the joint's RMS velocity
LIGHT = 1e-2  # least share of the bare robot in the torque of a joint, from which kp is determined
TIMING = 0.05  # error of a delay by the integration, in steps
UNCERTAIN = 1 / 3  # relative standard deviation of 1 / kp, from which kp is not determined
USELESS = {"bias": 1.0, "delay": 1.0}  # a parameter with a larger standard deviation is not determined [rad, s]
TINY = 1e-30
SINGULAR = 1e-10  # least eigenvalue of the normal matrix with unit diagonal, if all parameters are determined


# -- simulation


class _Windows(NamedTuple):
    """Stretches of the logs that are simulated from initial states of their own.

    Attributes:
        t: times of the rows, from the window's first row [s]; rows without a measurement continue the times evenly.
        q: measured positions; `there` is False for rows that are none.
        knots: times at which the command changes, from well before the window to its end [s].
        command: the command from each knot on, and `travel`, its integral over time up to the knot [rad s].
        start: the state (q, qd) at the first row, as the filtered log shows it, and `spread`, its standard deviations.
        place: the share of the log up to the end of this window.
    """

    t: Float[np.ndarray, "W R"]
    q: Float[np.ndarray, "W R n"]
    there: Bool[np.ndarray, "W R"]
    knots: Float[np.ndarray, "W K"]
    command: Float[np.ndarray, "W K n"]
    travel: Float[np.ndarray, "W K n"]
    start: Float[np.ndarray, "W m"]
    spread: Float[np.ndarray, "W m"]
    place: Float[np.ndarray, " W"]

    def of(self, chosen: Any) -> "_Windows":
        return _Windows(*(x[chosen] for x in self))


class _Plan(eqx.Module):
    """What is simulated, and with which parameters.

    If kp is identified, 1 / kp and the ratios of the others in `SCALED` to kp are fitted instead of the parameters: command
    minus position is linear in them, even if the links are so light that kp is hardly determined.

    Attributes:
        chain: the robot.
        table: (n, 9) all parameters; those at `free` are replaced by the vector of fitted values, which start from them.
        relative: (9,) the parameters that are fitted relative to kp, and kp itself.
        substeps: integration steps per row.
        hold: the commands are held between rows, not interpolated.
        together: number of windows that are simulated together.
    """

    chain: Chain
    table: Float[np.ndarray, "n k"]
    free: Int[np.ndarray, "2 p"]
    relative: Bool[np.ndarray, " k"]
    substeps: int = eqx.field(static=True)
    hold: bool = eqx.field(static=True)
    together: int = eqx.field(static=True, default=TOGETHER)

    def full(self, values: Any) -> Any:
        """The table of all parameters for fitted values."""
        table = jnp.asarray(self.table).at[tuple(self.free)].set(values)
        kp = jnp.where(self.relative[AT["kp"]], 1 / table[:, AT["kp"]], table[:, AT["kp"]])
        return jnp.where(self.relative, table * kp[:, None], table).at[:, AT["kp"]].set(kp)


def servo_chain(chain: Chain, table: Any) -> Chain:
    """The chain with the armature and the friction of a table of parameters."""
    own = {x: table[:, AT[x]] for x in ("viscous", "coulomb", "coulomb_velocity", "offset")}
    friction = dataclasses.replace(chain.friction, **own)
    return dataclasses.replace(chain, armature=table[:, AT["armature"]], friction=friction)


def _sign_between(before: Array, after: Array) -> tuple[Array, Array]:
    """Mean of tanh on the way from one number to another, and its derivative by the second."""
    way, middle = after - before, (after + before) / 2
    near = jnp.abs(way) < NEAR
    way = jnp.where(near, 1.0, way)
    area = lambda x: jnp.logaddexp(x, -x)  # log(2 cosh x), whose derivative is tanh x
    mean = jnp.where(near, jnp.tanh(middle), (area(after) - area(before)) / way)
    return mean, jnp.where(near, (1 - jnp.tanh(middle) ** 2) / 2, (jnp.tanh(after) - mean) / way)


def _drive(chain: Chain, table: Array, u: Array, x: Array, xd: Array, before: Array, after: Array) -> Array:
    """Torques of servos and friction, where the mean of dry friction is taken over the velocities of the step."""
    kp, kd, _, bias, _, viscous, coulomb, width, _ = table.T
    rest = servo_chain(chain, table.at[:, jnp.array([AT["viscous"], AT["coulomb"]])].set(0.0))
    dry = coulomb * _sign_between(before / width, after / width)[0]
    return kp * (u - x - bias) - (kd + viscous) * xd - dry - resistive_force(rest, x, xd)


def _stiff_chain(chain: Chain, table: Array, qd: Array, a: Array, h: Array) -> tuple[Chain, Array]:
    """A chain with the derivative of friction by the step's acceleration as additional armature, and this derivative."""
    _, kd, _, _, armature, viscous, coulomb, width, _ = table.T
    slope = _sign_between(qd / width, (qd + h * a) / width)[1]
    stiff = h * ((kd + viscous) / 2 + coulomb / width * slope)
    return dataclasses.replace(chain, armature=armature + stiff), stiff


@jax.custom_jvp
def _acceleration(chain: Chain, table: Array, u: Array, q: Array, qd: Array, h: Array, a: Array) -> Array:
    """The constant acceleration of a step, from a first guess, by Newton's method for friction and iteration for the rest."""

    def improved(state):
        a, _, count = state
        stiff_chain, stiff = _stiff_chain(chain, table, qd, a, h)
        x, xd = q + h / 2 * qd + h**2 / 4 * a, qd + h / 2 * a
        new = forward_dynamics(stiff_chain, x, xd, _drive(chain, table, u, x, xd, qd, qd + h * a) + stiff * a)
        return new, h * jnp.abs(new - a).max(), count + 1

    return jax.lax.while_loop(lambda state: (state[1] > SETTLED) & (state[2] < STAGES), improved, (a, h + 1, 0))[0]


@_acceleration.defjvp
def _acceleration_jvp(primals, tangents):
    """The derivative of the solution of the step's equation, which does not depend on the first guess."""
    chain, table, u, q, qd, h, _ = primals
    _, dtable, du, dq, dqd, _, _ = tangents
    a = _acceleration(*primals)
    stiff_chain, stiff = _stiff_chain(chain, table, qd, a, h)
    x, xd = q + h / 2 * qd + h**2 / 4 * a, qd + h / 2 * a
    by = derivatives_at_qdd(stiff_chain, x, xd, a)
    drive = lambda *y: _drive(chain, *y)

    def improved(da):
        dx, dxd = dq + h / 2 * dqd + h**2 / 4 * da, dqd + h / 2 * da
        _, dtau = jax.jvp(drive, (table, u, x, xd, qd, qd + h * a), (dtable, du, dx, dxd, dqd, dqd + h * da))
        return by.q @ dx + by.qd @ dxd + by.tau @ (dtau + stiff * da - dtable[:, AT["armature"]] * a)

    return a, jax.lax.fori_loop(0, 3, lambda _, da: improved(da), jnp.zeros_like(a))


def _simulated(plan: _Plan, window: _Windows, values: Array, start: Array) -> Float[Array, "R n"]:
    """Positions that the encoders would show at the rows of a window that starts at `start`, (q, qd) as measured.

    A step of length h with the acceleration a, which is constant during the step, solves

        (M + armature) a + C qd + g = kp (u - q - bias) - (kd + viscous) qd - coulomb mean(tanh(qd / v_c)) - ...,

    where M, C, g, q and qd are those of the middle of the step, and the mean of dry friction is taken over the velocities
    that the step passes. The scheme is of second order. It is implicit in friction, which may be steep, and reversals
    within a step are exact in this sense.

    The command u is its mean over the step. Where commands are held, this is the difference of their integral, which is a
    continuous, piecewise linear function of the delay, with exact derivatives.
    """
    table = plan.full(values)
    delay, bias = table[:, AT["delay"]], table[:, AT["bias"]]
    m, n = plan.substeps, plan.chain.n
    edges = jnp.interp(jnp.arange((len(window.t) - 1) * m + 1) / m, jnp.arange(1.0 * len(window.t)), window.t)
    lengths = jnp.diff(edges)
    at = edges if plan.hold else (edges[1:] + edges[:-1]) / 2
    known = window.travel if plan.hold else window.command
    command = jax.vmap(lambda d, x: jnp.interp(at - d, window.knots, x), (0, 1), 1)(delay, known)
    if plan.hold:
        command = jnp.diff(command, axis=0) / lengths[:, None]

    def step(state, x):
        (q, qd, before), (u, h) = state, x
        a = _acceleration(plan.chain, table, u, q, qd, h, before)
        return (q + h * qd + h**2 / 2 * a, qd + h * a, a), None

    def row(state, x):
        state, _ = jax.lax.scan(step, state, x)
        return state, state[0]

    first = (start[:n] - bias, start[n:], jnp.zeros(n))
    _, q = jax.lax.scan(row, first, (command.reshape(-1, m, n), lengths.reshape(-1, m)))
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
    out = [check_log(log, chain) for log in logs]
    for log in out:
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
    return out


class _Motion(NamedTuple):
    """A stretch of a log without gaps from row `first` on, evenly sampled, and its filtered motion."""

    log: Log
    first: int
    t: Float[np.ndarray, " N"]
    smooth: Callable[[np.ndarray], np.ndarray]
    trusted: slice  # rows that are far from both ends
    q: Float[np.ndarray, "N n"]
    qd: Float[np.ndarray, "N n"]


def _motions(logs: Sequence[Log]) -> list[_Motion]:
    """The stretches of logs between gaps."""
    out = []
    for log in logs:
        for a, b in segments(log.t):
            if b - a > 2:
                t = np.linspace(log.t[a], log.t[b - 1], b - a)
                rate = (b - a - 1) / (t[-1] - t[0])
                cutoff = min(CUTOFF, rate / 5)
                smooth, edge = functools.partial(low_pass, rate=rate, cutoff=cutoff), math.ceil(2 * rate / cutoff)
                q = smooth(np.stack([np.interp(t, log.t[a:b], x) for x in log.q[a:b].T], axis=1))
                out.append(_Motion(log, a, t, smooth, slice(edge, -edge), q, differentiate(q, rate)))
    return out


def _windows(motions: Sequence[_Motion], seconds: float) -> _Windows:
    """Divide logs into windows of about `seconds`, none of which spans a gap."""
    speed = np.sqrt(np.mean(np.concatenate([motion.qd for motion in motions]) ** 2, axis=0))
    parts, out = [], []
    for motion in motions:
        count = max(1, round((motion.t[-1] - motion.t[0]) / seconds))
        parts += [(motion, *edges) for edges in equal_blocks(len(motion.t), count) if edges[1] - edges[0] > 2]
    rows = max(stop - start for _, start, stop in parts)
    lead = max(math.ceil(2 * LONGEST / np.median(np.diff(motion.log.t))) for motion in motions)
    for (log, first, *_, q, qd), start, stop in parts:
        at = np.arange(first + start - lead, first + start + rows + 1)
        inside = np.clip(at, 0, first + stop - 1)
        knots = log.t[inside] + np.median(np.diff(log.t)) * (at - inside) - log.t[first + start]
        u, t = log.command[inside], knots[lead:-1]  # type: ignore[index]
        knots = np.append(knots[0] - 10.0, knots[1:])  # the first command was there before, whatever the delay
        travel = np.append(np.zeros_like(u[:1]), np.cumsum(u[:-1] * np.diff(knots)[:, None], axis=0), axis=0)
        state, spread = np.append(q[start], qd[start]), np.append(np.full_like(speed, np.inf), FILTERED * speed)
        seen, place = np.arange(rows) < stop - start, (first + stop) / len(log.t)
        out.append((t, log.q[inside[lead:-1]], seen, knots, u, travel, state, spread, place))
    return _Windows(*(np.stack(x) for x in zip(*out, strict=True)))


def _first_guess(
    chain: Chain, motions: Sequence[_Motion], free: Bool[np.ndarray, " k"], own: Float[np.ndarray, "n k"]
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """Start values: a non-negative linear fit of command minus position along the filtered motion, for the best delay.

    With the torque tau of the bare robot,

        u - q = (tau + armature qdd + (kd + viscous) qd + coulomb sign(qd)) / kp + constant.

    If tau is negligible beside the drives, kp is uncertain, but the delay and the ratios of the others to kp are not.

    Returns:
        All parameters, as `_Plan` fits them, and the least 1 / kp of each joint, below which tau is negligible.
    """
    motions = [motion for motion in motions if motion.t[motion.trusted].size > motion.trusted.start]
    if not motions:
        raise IdentificationError("all pieces of the logs are too short; log at least a second without gaps")
    bare = servo_chain(chain, jnp.zeros(own.shape).at[:, AT["coulomb_velocity"]].set(1.0))
    drives, of_drive = np.array([AT["armature"], AT["kd"], AT["viscous"], AT["coulomb"]]), []
    for _, _, t, smooth, trusted, q, qd in motions:
        qdd = differentiate(qd, (len(t) - 1) / (t[-1] - t[0]))
        dry = smooth(np.tanh(qd / own[:, AT["coulomb_velocity"]]))
        of_drive.append(np.stack([motion_torque(bare, q, qd, qdd), qdd, qd, qd, dry], axis=2)[trusted])
    columns, moves = np.concatenate(of_drive), free[drives]
    known = columns[:, :, 0] + np.einsum("Njc,jc->Nj", columns[:, :, 1:], np.where(moves, 0.0, own[:, drives]))
    found, light, best = own.copy(), np.zeros(len(own)), np.full(len(own), np.inf)
    delays = np.linspace(0, LONGEST, 51)[:, None] + 0 * own[:, 0] if free[AT["delay"]] else own[None, :, AT["delay"]]
    for delay in delays:
        off = []
        for log, _, t, smooth, trusted, q, _ in motions:
            row = np.maximum(np.searchsorted(log.t, t[:, None] - delay + 1e-9, "right") - 1, 0)
            off.append((smooth(np.take_along_axis(log.command, row, axis=0)) - q)[trusted])  # type: ignore[arg-type]
        for j, y in enumerate(np.concatenate(off).T):
            constant = np.broadcast_to([1.0, -1.0], (len(y), 2))
            x = np.hstack([known[:, j, None], columns[:, j, 1:][:, moves], constant])
            if not free[AT["kp"]]:
                x, y = x[:, 1:], y - x[:, 0] / own[j, AT["kp"]]
            size = np.maximum(np.linalg.norm(x, axis=0), TINY)
            values, rest = optimize.nnls(x / size, y)
            if rest < best[j]:
                best[j], values, found[j, AT["delay"]], scale = rest, values / size, delay[j], own[j, AT["kp"]]
                if free[AT["kp"]]:
                    light[j], scale = LIGHT * np.linalg.norm(y) / size[0], 1.0
                    found[j, AT["kp"]], values = max(values[0], LIGHT * light[j]), values[1:]
                found[j, drives[moves]] = scale * values[:-2]
    return found, light


# -- the fit


class _Fit(NamedTuple):
    """A fit of values and initial states: normal equations by window, from which the states are eliminated."""

    values: np.ndarray
    noise: np.ndarray  # (n,) RMS of the residuals
    shares: np.ndarray  # (W, p, p) normal matrices of the windows
    scores: np.ndarray  # (W, p) their gradients
    moves: np.ndarray  # (p,) neither at a bound nor undetermined
    useful: np.ndarray  # (p,) determined
    rounds: int
    converged: bool


def _evaluated(plan: _Plan, windows: _Windows, values: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    """`_normal` of all windows, in groups of `_Plan.together`, so that it is compiled once."""
    count, size = len(windows.t), plan.together
    groups = [np.minimum(np.arange(k, k + size), count - 1) for k in range(0, count, size)]
    parts = [_normal(plan, windows.of(chosen), values, starts[chosen]) for chosen in groups]
    return [np.concatenate(x)[:count] for x in zip(*parts, strict=True)]


def _fit(plan: _Plan, windows: _Windows, values: np.ndarray, move: bool = True) -> _Fit:
    """Minimise sum_j N_j log |r_j|^2, the likelihood of residuals with one unknown noise per joint.

    The initial velocities have a prior, the filtered ones with `_Windows.spread`: a joint that sticks does not show its
    initial velocity, which would then jump with each step of the fit.

    Args:
        move: False to fit only the initial states.
    """
    p, rows, prior, kind = len(values), windows.there.sum(), windows.spread**-2, plan.free[1]
    useless = np.select([kind == AT[x] for x in USELESS], list(USELESS.values()), np.inf)
    lower = np.where(kind == AT["coulomb_velocity"], STEEPEST, -np.inf)
    lower = np.where(plan.relative[kind] & (kind == AT["kp"]), LIGHT * values, lower)
    starts, damping, rounds, idle = windows.start, 1e-3, 0, 0

    def cost(squares, starts):
        likelihood = rows * np.log(np.maximum(squares.sum(0), TINY)).sum()
        return likelihood + (prior * (starts - windows.start) ** 2).sum()

    a, b, squares = _evaluated(plan, windows, values, starts)
    while True:
        weights = rows / np.maximum(squares.sum(0), TINY)
        h, g = np.einsum("wjab,j->wab", a, weights), np.einsum("wja,j->wa", b, weights)
        h[:, p:, p:] += prior[:, :, None] * np.eye(prior.shape[1])
        g[:, p:] -= prior * (starts - windows.start)
        shares, scores, back = _without_starts(h, g, p, 0.0)
        useful = np.sqrt(np.maximum(np.diag(shares.sum(0)), 0)) > 1 / useless
        moves = useful & ((values > lower) | (scores.sum(0) > 0)) & move
        step = _step(shares, scores, moves, 0.0)
        rest = step @ scores.sum(0) + (not move) * (back[..., -1] * g[:, p:]).sum()
        if rest < RESTED or idle >= IDLE or rounds >= ROUNDS:
            noise = np.sqrt(squares.sum(0) / rows)
            return _Fit(values, noise, shares, scores, moves, useful, rounds, bool(rest < NEARLY))
        rounds += 1
        damped, slopes, back = _without_starts(h, g, p, damping)
        step = np.maximum(values + _step(damped, slopes, moves, damping), lower) - values
        turn = back[..., -1] - back[..., :-1] @ step
        new = _evaluated(plan, windows, values + step, starts + turn)
        gain = cost(squares, starts) - cost(new[2], starts + turn)
        idle = 0 if gain > WORTH else idle + 1
        if np.isfinite(gain) and gain >= 0:
            values, starts, (a, b, squares), damping = values + step, starts + turn, new, damping / 10
        else:
            damping = max(10 * damping, 1e-2)


def _without_starts(h: np.ndarray, g: np.ndarray, p: int, damping: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal equations of the p values, from which each window's initial state is eliminated, and the map back to it."""
    own = h[:, p:, p:] * (1 + damping * np.eye(h.shape[1] - p))
    back = np.linalg.solve(own, np.concatenate([h[:, p:, :p], g[:, p:, None]], axis=2))
    left = np.concatenate([h[:, :p, :p], g[:, :p, None]], axis=2) - h[:, :p, p:] @ back
    return left[..., :-1], left[..., -1], back


def _step(shares: np.ndarray, scores: np.ndarray, moves: np.ndarray, damping: float) -> np.ndarray:
    """Damped step of the values that move."""
    whole, step = shares.sum(0)[np.ix_(moves, moves)], np.zeros(len(moves))
    size = np.sqrt(np.diag(whole))
    scaled = whole / np.outer(size, size) + damping * np.eye(len(size))
    step[moves] = np.linalg.lstsq(scaled, scores.sum(0)[moves] / size, rcond=SINGULAR)[0] / size
    return step


def _covariance(shares: np.ndarray, scores: np.ndarray, moves: np.ndarray) -> Float[np.ndarray, "p p"]:
    """Jackknife covariance of the values that move, over blocks; zero for the others."""
    covariance, shares, scores = np.zeros((len(moves), len(moves))), shares[:, moves][:, :, moves], scores[:, moves]
    size = np.sqrt(np.diag(shares.sum(0)))
    eigenvalues, turn = np.linalg.eigh(shares.sum(0) / np.outer(size, size))
    back = turn / np.sqrt(np.maximum(eigenvalues, SINGULAR)) / size[:, None]
    independent = back @ back.T
    covariance[np.ix_(moves, moves)] = left_out_covariance(back.T @ shares @ back, scores @ back, back, independent)
    return covariance


def _deviations(plan: _Plan, fit: _Fit, light: np.ndarray, step: float) -> tuple[Float[np.ndarray, "n k"], float]:
    """Standard deviations of all parameters from a jackknife over blocks of windows, and their degrees of freedom.

    They are zero for values that are known or stay at their bounds, and infinite for those that the logs do not determine.
    To the jackknife is added an error of each delay by `TIMING` steps, with the errors of the joint's damping and armature that
    compensate it: with fine encoders, the integration limits the accuracy.
    """
    labels = np.arange(len(fit.shares)) * BLOCKS // max(BLOCKS, len(fit.shares))
    shares, scores = (np.stack([x[labels == k].sum(0) for k in np.unique(labels)]) for x in (fit.shares, fit.scores))
    where, found, (joint, kind) = tuple(plan.free), np.zeros(plan.table.shape), plan.free
    kp = np.asarray(plan.full(fit.values))[:, AT["kp"]]
    slopes = np.where(plan.relative[kind], kp[joint], 1.0) * np.eye(len(kind))  # of all parameters by the fitted values
    of_scale = (joint[:, None] == joint) & np.outer(plan.relative[kind], kind == AT["kp"])
    ratio = np.where(kind == AT["kp"], 1.0, fit.values)[:, None]
    slopes = np.where(of_scale, -ratio * kp[joint, None] ** 2, slopes)
    covariance, least = _covariance(shares, scores, fit.moves), light[joint]
    vague = ~fit.moves | (np.sqrt(np.diag(covariance)) > UNCERTAIN * fit.values) | (fit.values < least)
    vague &= plan.relative[kind] & (kind == AT["kp"])
    if vague.any():  # nearly arbitrary scales would only blur the others' deviations
        covariance = _covariance(shares, scores, fit.moves & ~vague)
    timed = fit.moves & fit.useful & (kind == AT["delay"])
    along = covariance[:, timed] / np.diag(covariance)[timed]  # what an error of each delay does to the other values
    covariance += (TIMING * step) ** 2 * along @ along.T
    found[where] = np.where(fit.useful, np.sqrt(np.einsum("ab,bc,ac->a", slopes, covariance, slopes)), np.inf)
    found[np.ix_(np.isin(np.arange(len(found)), joint[vague]), plan.relative)] = np.inf
    return found, block_degrees(len(shares))


# -- the identification


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CommandIdentification(Summary):
    """The result of `identify_from_commands`. `result["delay"]` is the delay of each joint (n,).

    Attributes:
        given: the robot whose inertias were taken as given.
        values: (n, 9) all parameters of all joints, in the order of `PARAMETERS`.
        standard_deviations: (n, 9) their standard deviations: zero for known values and for values at their bounds, infinite
            for values that the logs do not determine. If kp is one of them, the ratios to kp are still determined.
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
        return self.values[:, AT[name]]

    def deviations(self, name: str) -> Float[np.ndarray, " n"]:
        """Standard deviations of one parameter of all joints."""
        return self.standard_deviations[:, AT[name]]

    @property
    def chain(self) -> Chain:
        """The robot with the identified armature and friction, where negative values are replaced by zero."""
        table = np.where(np.array(PARAMETERS) == "offset", self.values, np.maximum(self.values, 0.0))
        return servo_chain(self.given, jnp.asarray(table, self.given.dtype))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "n k 2"]:
        """Confidence interval (lower, upper) of each value at `level`, from Student's t distribution.

        An interval of a parameter that cannot be negative, which are all but bias and offset, ends at zero.
        """
        from scipy import stats  # slow to import

        least = np.where(np.isin(PARAMETERS, ["bias", "offset"]), -np.inf, 0.0)
        bounds = np.broadcast_to(np.stack([least, np.full_like(least, np.inf)], axis=-1), (*self.values.shape, 2))
        reach = float(stats.t.ppf(0.5 + level / 2, self.degrees)) * self.standard_deviations
        return bounded_intervals(self.values, reach, bounds)

    def predict(self, log: Log) -> Float[np.ndarray, "N n"]:
        """Positions that the robot and its servos reach under a log's commands, from the log's first state [rad or m].

        A log with gaps is simulated in pieces, each from its own first state; positions of pieces that are too short to
        have a velocity are NaN.
        """
        with jax.enable_x64(True):
            chain = as_float64(self.given)
            motions, out = _motions([log]), np.full(log.q.shape, np.nan)
            windows = _windows(motions, np.inf)
            nothing = np.zeros((2, 0), int), np.zeros(len(PARAMETERS), bool)
            plan = _Plan(chain, self.values, *nothing, _substeps([log], self.step), self.hold)
            q = _positions(plan, windows, np.zeros(0), windows.start)
        for motion, x, there in zip(motions, q, windows.there, strict=True):
            out[motion.first : motion.first + len(motion.t)] = np.asarray(x)[there]
        return out

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
        for name, value, deviation in zip(self.given.joint_names, self.values, self.standard_deviations, strict=True):
            found = (f"{x} {value[AT[x]]:.4g} +- {deviation[AT[x]]:.2g}" for x in self.identified)
            rows.append(f"{name}: {', '.join(found)}")
        held = "" if self.held_out is None else f", {1e3 * np.sqrt((self.held_out**2).mean()):.3g} held out"
        tracking, noise = (1e3 * np.sqrt((x**2).mean()) for x in (self.tracking, self.noise))
        errors = f"RMS error [1e-3 rad or m]: {noise:.3g}{held}; of the commands {tracking:.3g}"
        return lines("CommandIdentification", *rows, errors, *self.notes)


def _substeps(logs: Sequence[Log], step: float) -> int:
    return max(1, math.ceil(max(np.median(np.diff(log.t)) for log in logs) / step - 1e-6))


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
        motions = _motions(runs)
        windows = _windows(motions, window)
        where = np.stack(np.nonzero(np.tile(free, (chain.n, 1))))
        table, light = _first_guess(model, motions, free, own)
        together = math.ceil(len(windows.t) / math.ceil(len(windows.t) / TOGETHER))
        plan = _Plan(model, table, where, free & free[AT["kp"]] & SCALED, _substeps(runs, step), hold, together)
        values, held_out = table[tuple(where)], None
        last = windows.place > 1 - share + 1e-9
        if share and last.any() and not last.all():
            values = _fit(plan, windows.of(~last), values).values
            held_out = _fit(plan, windows.of(last), values, move=False).noise
        fit = _fit(plan, windows, values)
        if others:
            held_out = _fit(plan, _windows(_motions(_checked(chain, others)), window), fit.values, move=False).noise
        deviations, degrees = _deviations(plan, fit, light, step)
        final = np.asarray(plan.full(fit.values))
    off = np.concatenate([log.command - log.q for log in runs])  # type: ignore[operator]
    names, tracking = tuple(np.array(PARAMETERS)[free].tolist()), np.sqrt((off**2).mean(0))
    notes, errors = _notes(chain, final, deviations, free, fit.converged), (fit.noise, held_out, tracking)
    of_fit = fit.rounds, fit.converged, notes
    return CommandIdentification(chain, final, deviations, degrees, names, *errors, *of_fit, hold, step)


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
    unknown = np.isinf(deviations)
    scales = unknown[:, AT["kp"]]
    said = [
        (name, unknown[:, k] & ~(scales & SCALED[k]), "is not determined by these logs")
        for k, name in enumerate(PARAMETERS)
    ]
    ratios = ", ".join(name for name, is_scaled in zip(PARAMETERS, free & SCALED, strict=True) if is_scaled)
    said.append((ratios, scales, "are determined at most relative to one another; pass one as known"))
    for name in ("kp", "armature", "viscous", "coulomb"):
        wrong = free[AT[name]] & (values[:, AT[name]] < -2 * deviations[:, AT[name]])
        said.append((name, wrong, "is negative: are the inertias of the model too large?"))
    steep = free[AT["coulomb_velocity"]] & (values[:, AT["coulomb_velocity"]] <= STEEPEST)
    said.append(("dry friction", steep, f"is steeper than the simulation resolves: {STEEPEST} rad/s"))
    joints = np.array(chain.joint_names)
    notes = [f"{name} of {', '.join(joints[at])} {text}" for name, at, text in said if at.any()]
    return (*([] if converged else ["the fit did not come to rest"]), *notes)
