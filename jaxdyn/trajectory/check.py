"""Check of a sampled motion before a robot executes it: limits, consistency of its samples, and clearances."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._summary import Summary, lines
from ..dynamics import friction_force, inverse_dynamics
from ..errors import ModelError
from ..geometry import Approach, Shapes, closest_approaches
from ..io.logs import Motion
from ..model.chain import (
    Chain,
    coordinate_limits,
    coordinate_names,
    layout,
    position_units,
    torque_units,
    turning_joints,
)
from ..model.configuration import differences, joint_positions

QUANTITIES = ("position", "velocity", "acceleration", "torque")
_AT_LIMIT, _ROUGHLY = 1e-6, 0.01  # shares by which a rounded value and one from differences may exceed a limit
_AT_REST = 0.02  # speed at rest, relative to the joint's largest speed
_CONSISTENT = 0.05  # deviation of a derivative, relative to its largest value
_JUMP = 10.0  # change of the speed from step to step, relative to its neighbours and to its median
_NOISE = 0.01  # error of accelerations due to rounded positions, relative to the largest acceleration
_FAR = 0.1  # distance beyond which pairs are not listed [m]


class Usage(NamedTuple):
    """The largest use of a limit by a joint.

    Attributes:
        joint: name of the joint, or of the coordinate if joints are coupled.
        quantity: "position", "velocity", "acceleration" or "torque".
        value: value with the largest share [rad, rad/s, rad/s^2, N m; m and N for prismatic joints].
        limit: its limit, with the sign of the value for rates and torques; infinite if there is none.
        share: |value| / |limit|; for positions, the distance from the middle of the range divided by half the range. It
            exceeds 1 if the limit is exceeded, and is 0 for an infinite limit, or range in which the position is.
        time: when [s].
        unit: unit of the value.
    """

    joint: str
    quantity: str
    value: float
    limit: float
    share: float
    time: float
    unit: str


@dataclasses.dataclass(frozen=True, repr=False)
class MotionCheck(Summary):
    """Result of `check_motion`; its text is a table of all joints and of the nearest pairs of shapes.

    Attributes:
        usage: use of every limit by every joint.
        approaches: closest approach of every pair of shapes, the nearest first; empty without shapes.
        violations: what the robot should not execute, one line each, with joint or shapes, time, value and limit.
        notes: what was not checked.
        clearance: the smallest permitted distance [m].
    """

    usage: tuple[Usage, ...]
    approaches: tuple[Approach, ...]
    violations: tuple[str, ...]
    notes: tuple[str, ...]
    clearance: float

    @property
    def passed(self) -> bool:
        """True if there are no violations."""
        return not self.violations

    @property
    def verdict(self) -> str:
        """ "within all limits", or the number of violations."""
        count = len(self.violations)
        return f"{count} violation{'s'[: count != 1]}" if count else "within all limits"

    def __repr__(self) -> str:
        return lines(f"MotionCheck: {self.verdict}", *self.violations, *self.table().splitlines())

    def table(self) -> str:
        """Share of every limit that each joint uses and when, and the nearest pairs of shapes."""
        shown = [name for name in QUANTITIES if any(x.quantity == name for x in self.usage)]
        rows = [["joint", *shown]]
        for joint in dict.fromkeys(x.joint for x in self.usage):
            own = {x.quantity: x for x in self.usage if x.joint == joint}
            rows.append([joint, *(_percent(own.get(name)) for name in shown)])
        near = [x for x in self.approaches if x.distance < self.clearance + _FAR] or list(self.approaches[:1])
        if near:
            found = [["shapes", "distance", "at"], *([f"{x.first}, {x.second}", *_of_pair(x)] for x in near[:10])]
            return "\n".join([*_columns(rows), "", *_columns(found)])
        return "\n".join(_columns(rows))


def _percent(found: Usage | None) -> str:
    return "-" if found is None or not np.isfinite(found.limit) else f"{100 * found.share:.0f} % at {found.time:.2f} s"


def _of_pair(found: Approach) -> tuple[str, str]:
    return f"{1000 * found.distance:.0f} mm", f"{found.time:.2f} s"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{x:<{w}}" for x, w in zip(row, wide, strict=True)).rstrip() for row in rows]


def check_motion(
    chain: Chain,
    motion: Motion,
    shapes: Shapes | None = None,
    *,
    clearance: float = 0.0,
    acceleration: float | Sequence[float] | Float[np.ndarray, " nv"] | None = None,
) -> MotionCheck:
    """Check whether a robot may execute a sampled motion.

    These are violations:

    - a joint exceeds a position, velocity, acceleration or torque limit. Torques are those of inverse dynamics plus friction.
    - a column of velocities is not the derivative of the positions: the mean velocity of a step is outside the range of the
      four velocities around it by more than 5 % of the joint's largest one; likewise accelerations.
    - without such a column, the positions jump: the velocity changes in a step ten times as much as in its neighbours.
    - the motion does not start or end at rest: a joint is faster than 2 % of its largest speed.
    - the distance of a pair of shapes is below the clearance at any time (see `geometry.closest_approaches`).

    Velocities that the motion lacks are central differences of the positions, and accelerations those of the velocities. If
    both are missing, the differences span as many samples as rounded positions require for accelerations that are accurate to
    1 %, at most 50 ms. What depends on differences may exceed its limit by 1 %.

    Args:
        shapes: shapes of the robot and its surroundings (`geometry.read`, `geometry.with_environment`); None: distances are
            not checked.
        clearance: smallest permitted distance of a pair of shapes [m].
        acceleration: limits of |qdd| [rad/s^2 or m/s^2], one for all coordinates or one for each; None: not checked.

    Raises:
        ModelError: the motion belongs to another robot, has fewer than three samples, or the acceleration limits have another
            number; or the clearance is negative.

    Cost: inverse dynamics at every sample, and the distances of a few hundred to thousands of configurations.
    """
    t, q = np.asarray(motion.t, float), np.asarray(motion.q, float)
    if len(t) < 3 or q.shape != (len(t), chain.nq):
        fault = (
            f"the motion has {len(t)} times and positions of shape {q.shape}, but the robot has {chain.nq} positions"
        )
        raise ModelError(fault, "pass at least three samples of a motion of this robot")
    if not clearance >= 0:
        raise ModelError(f"the clearance is {clearance:g} m; it must not be negative")
    bound = np.inf if acceleration is None else np.asarray(acceleration, float)
    if np.shape(bound) not in ((), (1,), (chain.nv,)) or not np.all(np.asarray(bound) > 0):
        fault = f"the acceleration limits are {acceleration}"
        raise ModelError(fault, f"pass one positive number, or one for each of the {chain.nv} coordinates")
    qd, qdd = _rates(chain, motion)
    usage, notes = [*_of_joints(chain, t, q, qd)], []
    if acceleration is not None:
        units = [f"{unit}/s^2" for unit in position_units(chain)]
        usage += _largest(coordinate_names(chain), "acceleration", t, qdd, np.broadcast_to(bound, chain.nv), units)
    if np.asarray(chain.inertia)[:, 0].any():
        tau, limit = _torques(chain, q, qd, qdd), coordinate_limits(chain)["torque"]
        usage += _largest(coordinate_names(chain), "torque", t, tau, limit, torque_units(chain))
    else:
        notes.append("the robot has no inertias, so that no torques are checked")
    given = {"position", *({"velocity"} if motion.qd is not None else ())}
    given |= {"acceleration", "torque"} if motion.qdd is not None and motion.qd is not None else set()
    found = () if shapes is None else closest_approaches(chain, shapes, t, q, clearance)
    violations = [
        *(_beyond(x) for x in usage if x.share > 1 + (_AT_LIMIT if x.quantity in given else _ROUGHLY)),
        *_inconsistencies(chain, motion),
        *_moving_ends(chain, t, qd),
        *(_too_near(x, clearance) for x in found if x.begin is not None),
    ]
    order = lambda x: (x.joint not in chain.joint_names, QUANTITIES.index(x.quantity))
    return MotionCheck(tuple(sorted(usage, key=order)), found, tuple(violations), tuple(notes), clearance)


# -- rates


def _rates(chain: Chain, motion: Motion) -> tuple[Float[np.ndarray, "N nv"], Float[np.ndarray, "N nv"]]:
    """Velocities and accelerations of a motion: those that it has, otherwise differences."""
    t, q = np.asarray(motion.t, float), np.asarray(motion.q, float)
    if motion.qd is None:
        qd, qdd = _differentiated(chain, t, q)
    else:
        qd = np.asarray(motion.qd, float)
        qdd = np.gradient(qd, t, axis=0, edge_order=2)
    return qd, qdd if motion.qdd is None else np.asarray(motion.qdd, float)


def _differentiated(chain: Chain, t: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second differences of positions, over as many samples as their rounding requires."""
    rounding, step = _rounding(q), float(np.median(np.diff(t)))
    most = max(1, min(int(0.025 / step), len(t) // 8))
    span = 1
    while True:
        qd, qdd = _parabolas(chain, t, q, span)
        if span >= most or 4 * rounding / (span * step) ** 2 <= _NOISE * np.abs(qdd).max():
            return qd, qdd
        span = min(2 * span, most)


def _parabolas(chain: Chain, t: np.ndarray, q: np.ndarray, span: int) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of the parabola through each sample and those `span` before and after; at the ends, of the nearest one."""
    middle = np.arange(span, len(t) - span)
    before, after = middle - span, middle + span
    h0, h1 = (t[middle] - t[before])[:, None], (t[after] - t[middle])[:, None]
    back, ahead = -differences(chain, q[middle], q[before]) / h0, differences(chain, q[middle], q[after]) / h1
    qdd = 2 * (ahead - back) / (h0 + h1)
    qd = (h1 * back + h0 * ahead) / (h0 + h1)
    nearest = np.clip(np.arange(len(t)), span, len(t) - span - 1)
    qd, qdd = qd[nearest - span], qdd[nearest - span]
    return qd + (t - t[nearest])[:, None] * qdd, qdd


def _rounding(x: np.ndarray) -> float:
    """Largest rounding error of the columns that change: half a unit of the last decimal that most of their values have."""
    found = 0.0
    for column in x.T[np.ptp(x, axis=0) > 0]:
        some = column[np.abs(column) > 0.1 * np.abs(column).max()]
        exact = lambda k, x=some: np.mean(np.abs(x * 10.0**k - np.rint(x * 10.0**k)) < 1e-3) > 0.8
        digits = next((k for k in range(1, 13) if exact(k)), 15)
        found = max(found, 0.5 * 10.0**-digits)
    return found


@jax.jit
def _chunk_torques(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
    one = lambda q, qd, qdd: inverse_dynamics(chain, q, qd, qdd) + friction_force(chain, qd)
    return jax.vmap(one)(q, qd, qdd)


def _torques(chain: Chain, *motion: np.ndarray) -> Float[np.ndarray, "N nv"]:
    """Torques of a motion including friction [N m or N]."""
    return np.asarray(_chunk_torques(chain, *(jnp.asarray(x, chain.dtype) for x in motion)), float)


# -- limits


def _of_joints(chain: Chain, t: np.ndarray, q: np.ndarray, qd: np.ndarray) -> Iterable[Usage]:
    """Use of the position and velocity limits of all joints, also of coupled ones."""
    where = layout(chain)
    position = joint_positions(chain, q)
    qd = qd if chain.coupling is None else qd @ np.asarray(chain.coupling.matrix, float).T
    lower, upper = np.asarray(chain.limits.position, float).T
    half, below, above = (upper - lower) / 2, lower - position, position - upper
    excess = np.maximum(below, above)  # |distance from the middle| - half
    share = np.where(np.isfinite(half), 1 + excess / np.maximum(half, 1e-12), np.where(excess > 0, 1 + excess, 0))
    limit = np.where(below > above, lower, upper)
    units = ["rad" if turns else "m" for turns in turning_joints(chain)]
    curved = {k for joint in where.curved for k in range(joint.columns.start, joint.columns.stop)}
    for j in (j for j in range(chain.n) if j not in curved):
        k = int(share[:, j].argmax())
        value, bound, used = (float(x[k, j]) for x in (position, limit, share))
        yield Usage(chain.joint_names[j], "position", value, bound, used, float(t[k]), units[j])
    speeds, units = np.asarray(chain.limits.velocity, float), [f"{unit}/s" for unit in units]
    yield from _largest(chain.joint_names, "velocity", t, qd, speeds, units)


def _largest(
    names: Sequence[str], quantity: str, t: np.ndarray, values: np.ndarray, limits: np.ndarray, units: Sequence[str]
) -> Iterable[Usage]:
    """Largest use of symmetric limits."""
    for j, (name, limit, unit) in enumerate(zip(names, limits, units, strict=True)):
        k = int(np.abs(values[:, j]).argmax())
        value = float(values[k, j])
        share = 0.0 if not np.isfinite(limit) else np.inf if limit == 0 and value else abs(value) / max(limit, 1e-300)
        yield Usage(name, quantity, value, float(np.copysign(limit, value)), share, float(t[k]), unit)


def _beyond(x: Usage) -> str:
    return f"{x.joint}: {x.quantity} {x.value:.4g} {x.unit} at {x.time:.3f} s; the limit is {x.limit:.4g} {x.unit}"


def _too_near(x: Approach, clearance: float) -> str:
    begin = f"nearer than {1000 * clearance:g} mm from {x.begin:.3f} s on" if clearance else f"touch at {x.begin:.3f} s"
    return f"{x.first} and {x.second}: {begin}; smallest distance {1000 * x.distance:.1f} mm at {x.time:.3f} s"


# -- consistency


def _inconsistencies(chain: Chain, motion: Motion) -> Iterable[str]:
    """Columns that are not the derivatives of others, and jumps of positions without velocities."""
    t, q = np.asarray(motion.t, float), np.asarray(motion.q, float)
    dt, names = np.diff(t)[:, None], coordinate_names(chain)
    means, units = differences(chain, q[:-1], q[1:]) / dt, position_units(chain)
    if motion.qd is None:
        yield from _jumps(names, t, means, _rounding(q) / dt, units)
        return
    qd, units = np.asarray(motion.qd, float), [f"{unit}/s" for unit in units]
    yield from _not_derivative(names, t, means, qd, _rounding(q) / dt, ("velocity", "position"), units)
    if motion.qdd is not None:
        means, qdd, units = np.diff(qd, axis=0) / dt, np.asarray(motion.qdd, float), [f"{unit}^2" for unit in units]
        yield from _not_derivative(names, t, means, qdd, _rounding(qd) / dt, ("acceleration", "velocity"), units)


def _not_derivative(
    names: Sequence[str],
    t: np.ndarray,
    means: np.ndarray,
    rates: np.ndarray,
    rounding: np.ndarray,
    words: tuple[str, str],
    units: Sequence[str],
) -> Iterable[str]:
    """The step of each joint whose mean rate is farthest outside the range of the rates around it."""
    padded = np.concatenate([rates[:1], rates, rates[-1:]])
    around = np.stack([padded[k : len(padded) - 3 + k] for k in range(4)])
    excess = np.maximum(around.min(axis=0) - means, means - around.max(axis=0))
    excess -= _CONSISTENT * np.abs(rates).max(axis=0) + 2 * rounding
    for j in np.flatnonzero((excess > 0).any(axis=0)).tolist():
        k = int(excess[:, j].argmax())
        given = f"{rates[k, j]:.4g} to {rates[k + 1, j]:.4g} {units[j]}"
        change = f"the {words[1]} changes by {means[k, j]:.4g} {units[j]}"
        yield f"{names[j]}: the {words[0]} is {given} from {t[k]:.3f} to {t[k + 1]:.3f} s, but {change}"


def _jumps(
    names: Sequence[str], t: np.ndarray, means: np.ndarray, rounding: np.ndarray, units: Sequence[str]
) -> Iterable[str]:
    """Steps of each joint at which the speed changes by far more than in the neighbourhood and on the whole."""
    change = np.abs(np.diff(means, axis=0))
    if len(change) < 20:
        return
    near = [3, 4, 5, 6, 7, 8]
    padded = np.pad(change, ((8, 8), (0, 0)))
    others = np.max([padded[8 + s * k : len(padded) - 8 + s * k] for k in near for s in (-1, 1)], axis=0)
    large = change > _JUMP * np.maximum(others, np.median(change, axis=0)) + 8 * rounding[1:]
    for j in np.flatnonzero(large.any(axis=0)).tolist():
        k = int(np.where(large[:, j], change[:, j], 0).argmax())
        k += int(k + 1 < len(change) and abs(means[k + 1, j]) > abs(means[k, j]))
        step = means[k, j] * (t[k + 1] - t[k])
        yield f"{names[j]}: jumps by {step:.4g} {units[j]} from {t[k]:.3f} to {t[k + 1]:.3f} s, unlike in the steps around"


def _moving_ends(chain: Chain, t: np.ndarray, qd: np.ndarray) -> Iterable[str]:
    """Joints that do not start or end at rest."""
    names, units, largest = coordinate_names(chain), position_units(chain), np.abs(qd).max(axis=0)
    for row, words in ((0, "starts"), (-1, "ends")):
        for j in np.flatnonzero(np.abs(qd[row]) > _AT_REST * largest).tolist():
            speed = f"{qd[row, j]:.4g} {units[j]}/s"
            yield f"{names[j]}: {words} at {t[row]:.3f} s with {speed}, not at rest"
