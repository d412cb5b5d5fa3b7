"""Soft constraints: MuJoCo's reference accelerations and regularisation, and the forces of one contact with their derivative.

A constraint with the acceleration J a + c - r, where r is its reference acceleration, adds s(J a + c - r) to the function that
the accelerations a minimise (mujoco.readthedocs.io, Computation: Constraint model, Primal problem); its force is -ds. The
rows of a contact are the accelerations e . (v + w x p) and e . w along its three axes e, as many of them as the largest condim
among all contacts. Components are scalars over lanes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..dynamics.articulated_body import ArticulatedInertia, apply
from ..dynamics.engine.kernel import settled
from ..spatial.components import Component, Mat, Vec, add, cross, dot, transpose
from .contacts import Contacts, Rows
from .places import TINY, Touch

Row = tuple[Component, ...]  # accelerations or forces along the rows of a contact: 1, 3, 4 or 6
Entries = dict[tuple[int, int], Component]  # of a symmetric matrix, [i, j] with i <= j; others are zero


class Constraint(NamedTuple):
    """The constraint of one place: its touch, the velocity's and the depth's share in c - r, and the stiffness of s.

    Attributes:
        touch: gap, point and axes.
        damping: of the normal and the other rows [1/s]: c - r contains damping times the velocity of the row.
        offset: what c - r contains for the normal besides, of the depth [m/s^2].
        stiffness: D: of every edge of a pyramid (one value), or of six rows [kg or kg m^2]; 0 without contact.
    """

    touch: Touch
    damping: tuple[Component, Component]
    offset: Component
    stiffness: tuple[Component, ...]


class Settings(NamedTuple):
    """The parameters of the contact of a pair: leaves of `Contacts`, with the weights of both shapes added.

    `width` [m] and `spread` [m/s^2] are those of smooth contacts (see `smoothed`).
    """

    reference: Array
    impedance: Array
    margin: Array
    friction: Array
    friction_reference: Array
    weight: Array
    dimension: Component
    ratio: Array
    least_time: Array
    width: Array
    spread: Array


def settings_of(contacts: Contacts, dtype: Any) -> Settings:
    """The parameters of all pairs of shapes."""
    cast = lambda y: jnp.asarray(y, dtype)
    soft, p = contacts.softness, len(contacts.shapes.pairs)
    shapes = np.array(contacts.shapes.pairs, int).reshape(-1, 2)
    weight = cast(contacts.shape_weight)
    repeated = lambda value: jnp.broadcast_to(cast(value), (p,))
    least_time, width = repeated(contacts.least_time), repeated(jnp.maximum(contacts.width, TINY))
    _, stiffness, _ = reference(cast(soft.reference).T, cast(soft.impedance).T, width, least_time)
    return Settings(
        cast(soft.reference),
        cast(soft.impedance),
        cast(soft.margin),
        cast(contacts.friction),
        cast(contacts.friction_reference),
        weight[shapes[:, 0], 0] + weight[shapes[:, 1], 0],
        cast(np.array(contacts.rows.dimensions)),
        repeated(contacts.friction_ratio),
        least_time,
        width,
        width * stiffness,
    )


def reference(
    given: Array | tuple[Array, ...], impedance: Array, violation: Component, least_time: Array
) -> tuple[Component, ...]:
    """Impedance d, and stiffness k and damping b of the reference acceleration r = -b v - k d violation (see `Softness`)."""
    low, high, width, middle, power = (impedance[k] for k in range(5))
    clip = lambda x: jnp.clip(x, 1e-4, 0.9999)
    low, high, middle, power = clip(low), clip(high), clip(middle), jnp.maximum(power, 1)
    x = jnp.clip(jnp.abs(violation) / jnp.maximum(width, TINY), 0, 1)
    below = x <= middle
    # the base of the power stays positive, where its derivative is finite
    part, top = jnp.where(below, x, 1 - x), jnp.where(below, middle, 1 - middle)
    positive = jnp.where(part > 0, part, top) / top
    raised = jax.lax.cond(
        jnp.all(power == 2), lambda x, _: x * x, lambda x, p: x**p, positive, power
    )  # powers are slow
    curve = jnp.where(part > 0, top * raised, 0)
    grown = low + jnp.where(below, curve, 1 - curve) * (high - low)
    d = jnp.where((low == high) | (width <= TINY), (low + high) / 2, grown)
    time, ratio = given[0], given[1]
    slow = jnp.maximum(time, least_time)
    k = jnp.where(time > 0, 1 / jnp.maximum(TINY, (high * slow * ratio) ** 2), -time / high**2)
    b = jnp.where(ratio > 0, 2 / jnp.maximum(TINY, high * slow), -ratio / high)
    return d, k, b


def regularised(d: Component, weight: Component) -> Component:
    """1/D of a row with impedance d and the inverse inertia `weight`."""
    return jnp.maximum((1 - d) * weight / d, TINY)


def normal_regularised(d: Component, at: Settings, rows: Rows) -> Component:
    """1/D of every edge of a pyramid, or of the normal row of an elliptic cone, with the impedance d."""
    if rows.cone == "elliptic":
        return regularised(d, at.weight)
    slides, square = at.dimension > 1, at.friction[0] ** 2
    return jnp.where(slides, 2 * square / at.ratio, 1) * regularised(d, at.weight * (1 + jnp.where(slides, square, 0)))


def constraint(touch: Touch, at: Settings, rows: Rows) -> Constraint:
    """The constraint of a place."""
    violation = touch.gap - at.margin
    if rows.smooth == "everywhere":
        depth, near = softplus(-violation / at.width)
        violation, on = -at.width * depth, jnp.where(touch.exists > 0, near, 0)
    else:
        on = ((violation < 0) & (touch.exists > 0)).astype(violation.dtype)
    d, k, b = reference(at.reference, at.impedance, violation, at.least_time)
    friction, first = at.friction, normal_regularised(d, at, rows)
    if rows.cone == "pyramidal":
        b, offset, stiffness = settled(b, k * d * violation, on / first)
        return Constraint(touch, (b, b), offset, (stiffness,))
    others = [first / at.ratio * friction[0] ** 2 / friction[j] ** 2 for j in range(rows.width - 1)]
    used = [jnp.where(j < at.dimension, on, 0) for j in range(rows.width)]
    own = (at.friction_reference[0] != 0) | (at.friction_reference[1] != 0)
    given = tuple(jnp.where(own, f, r) for f, r in zip(at.friction_reference, at.reference, strict=True))
    _, _, along = reference(given, at.impedance, violation, at.least_time)
    stiffness = tuple(u / r for u, r in zip(used, (first, *others), strict=True))
    b, along, offset, *stiffness = settled(b, along, k * d * violation, *stiffness)
    return Constraint(touch, (b, along), offset, tuple(stiffness))


def softplus(x: Component) -> tuple[Component, Component]:
    """log(1 + exp(x)) and its derivative."""
    return jnp.logaddexp(x, jnp.zeros_like(x)), jax.lax.logistic(x)


def row_of(touch: Touch, twist: tuple[Component, ...], width: int) -> Row:
    """The rows of a contact for the relative twist, or acceleration, of its links about the common point."""
    linear = settled(*add(twist[3:], cross(twist[:3], touch.point)))
    found = [dot(e, linear) for e in touch.axes[: min(width, 3)]]
    return tuple(found + [dot(e, twist[:3]) for e in touch.axes[: max(width - 3, 0)]])


def with_reference(held: Constraint, bias: Row, velocity: Row) -> Row:
    """c - r of the rows from c and the velocities."""
    moved = [c + held.damping[min(k, 1)] * v for k, (c, v) in enumerate(zip(bias, velocity, strict=True))]
    return (moved[0] + held.offset, *moved[1:])


def wrench_of(touch: Touch, force: tuple[Component, ...]) -> tuple[Component, ...]:
    """The wrench about the common point of forces along the rows: the transpose of `row_of`."""
    linear = settled(*along_axes(touch.axes, force[:3]))
    moment = cross(touch.point, linear)
    return (*(add(moment, along_axes(touch.axes, force[3:])) if len(force) > 3 else moment), *linear)


def along_axes(axes: tuple[Vec, Vec, Vec], components: tuple[Component, ...]) -> Vec:
    """The vector with up to three components along the axes."""
    return tuple(sum(x * e[k] for x, e in zip(components, axes, strict=False)) for k in range(3))  # type: ignore[return-value]


def cone_forces(rows: Rows, at: Settings, stiffness: tuple[Component, ...], x: Row) -> tuple[Row, Entries]:
    """The forces -ds(x) of a contact, and the second derivatives of s."""
    used = [jnp.where(j + 1 < at.dimension, at.friction[j], 0) for j in range(rows.width - 1)]
    if rows.cone == "pyramidal":
        f, h = _pyramid(used, at, stiffness[0], x, rows.smooth == "everywhere")
    else:
        f, h = _elliptic(used, at, stiffness, x)
    values = settled(*f, *h.values())
    return values[: len(f)], dict(zip(h, values[len(f) :], strict=True))


def _elliptic(used: list[Component], at: Settings, stiffness: tuple[Component, ...], x: Row) -> tuple[Row, Entries]:
    zero = jnp.zeros_like(x[0])
    mu = jnp.where(at.dimension > 1, at.friction[0] / jnp.sqrt(at.ratio), 1)
    factor = (mu, *used)
    u = [s * y for s, y in zip(factor, x, strict=True)]
    n, square = u[0], sum((y * y for y in u[1:]), zero)
    slips = square > 0
    t = jnp.where(slips, jnp.sqrt(jnp.where(slips, square, 1)), 0)
    top = (n >= mu * t) | (~slips & (n >= 0))
    bottom = ~top & ((mu * n + t <= 0) | ~slips)
    t, inverse, top, bottom = settled(t, 1 / jnp.where(slips, t, 1), top, bottom)
    dm = stiffness[0] / (mu * mu * (1 + mu * mu))
    excess = n - mu * t
    unit = [jnp.ones_like(n), *(-mu * y * inverse for y in u[1:])]
    pick = lambda inside, beside: jnp.where(top, 0, jnp.where(bottom, inside, beside))
    f = tuple(pick(-stiffness[i] * x[i], -dm * excess * unit[i] * factor[i]) for i in range(len(x)))
    h = {}
    for i in range(len(x)):
        for j in range(i, len(x)):
            inner = unit[i] * unit[j]
            if i > 0:
                inner -= mu * excess * inverse * (float(i == j) - u[i] * u[j] * inverse * inverse)
            h[i, j] = pick(stiffness[i] if i == j else zero, dm * factor[i] * factor[j] * inner)
    return f, h


def _pyramid(friction: list[Component], at: Settings, d: Component, x: Row, smooth: bool) -> tuple[Row, Entries]:
    def edge(there, y):
        if not smooth:
            return -there * jnp.minimum(y, 0), jnp.where(y < 0, there, 0)
        force, curve = softplus(-y / at.spread)
        return there * at.spread * force, there * curve

    normal, curve = edge(jnp.where(at.dimension == 1, d, 0), x[0])
    f, h = [normal], {}
    for j, mu in enumerate(friction):
        there = jnp.where(j + 1 < at.dimension, d, 0)
        (fp, hp), (fm, hm) = (edge(there, x[0] + sign * mu * x[j + 1]) for sign in (1, -1))
        f[0] = f[0] + fp + fm
        f.append(mu * (fp - fm))
        curve = curve + hp + hm
        h[0, j + 1], h[j + 1, j + 1] = mu * (hp - hm), mu * mu * (hp + hm)
    return tuple(f), {(0, 0): curve, **h}


def cone_slope(
    rows: Rows, at: Settings, stiffness: tuple[Component, ...], x: Row, d: Row
) -> tuple[Component, Component]:
    """The first and second derivative of s along d."""
    f, h = cone_forces(rows, at, stiffness, x)
    slope = -sum(a * b for a, b in zip(f, d, strict=True))
    return slope, sum((1 if i == j else 2) * v * d[i] * d[j] for (i, j), v in h.items())


def impedance_of(touch: Touch, h: Entries) -> tuple[Component, ...]:
    """The derivative J^T h J of a wrench about the common point by the twist: blocks angular (6), coupling (9), linear (6)."""
    zero, r, axes = jnp.zeros_like(touch.gap), touch.point, touch.axes

    def block(rows: int, columns: int) -> Mat | None:
        at = lambda i, j: h.get((min(i, j), max(i, j)))
        entries = {(i, j): at(rows + i, columns + j) for i in range(3) for j in range(3)}
        total = [zero] * 9
        for (i, j), value in entries.items():
            if value is not None:
                total = [t + value * axes[i][k // 3] * axes[j][k % 3] for k, t in enumerate(total)]
        return settled(*total) if any(x is not None for x in entries.values()) else None

    def skewed(m: Mat) -> Mat:  # [r] m
        columns = [cross(r, m[q::3]) for q in range(3)]
        return tuple(columns[k % 3][k // 3] for k in range(9))

    linear, turning, angular = block(0, 0), block(3, 0), block(3, 3)
    assert linear is not None, "normals have curvatures"
    moment = skewed(linear)
    coupling = settled(*(moment if turning is None else add(turning, moment)))
    total = transpose(skewed(transpose(coupling)))
    total = total if turning is None else add(total, skewed(transpose(turning)))
    total = total if angular is None else add(total, angular)
    sym = lambda m: (m[0], m[1], m[4], m[2], m[5], m[8])
    return (*sym(total), *coupling, *sym(linear))


def impedance_times(impedance: tuple[Component, ...], twist: tuple[Component, ...]) -> tuple[Component, ...]:
    """The wrench of an impedance, in the blocks of `impedance_of`, and a twist."""
    return apply(ArticulatedInertia(impedance[:6], impedance[6:15], impedance[15:21]), twist)


class JointRow(NamedTuple):
    """Dry friction and both limits of a velocity: D and c - r without the velocity's acceleration, and the largest friction."""

    friction: tuple[Component, Component, Component]
    lower: tuple[Component, Component]
    upper: tuple[Component, Component]


def joint_force(at: JointRow, a: Component) -> tuple[Component, Component]:
    """The torque of dry friction and limits at the acceleration a, and the second derivative of s."""
    (d, offset, bound), (below, low), (above, high) = at
    y = a + offset
    inside = jnp.abs(y) * d < bound
    force, curve = jnp.where(inside, -d * y, -bound * jnp.sign(y)), jnp.where(inside, d, 0)
    low, high = low + a, high - a
    force += above * jnp.minimum(high, 0) - below * jnp.minimum(low, 0)
    return force, curve + jnp.where(low < 0, below, 0) + jnp.where(high < 0, above, 0)
