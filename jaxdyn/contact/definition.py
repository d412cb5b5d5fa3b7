"""Accelerations with contacts, from the definition: the minimum of a convex function, by dense matrices.

MuJoCo's accelerations a minimise (mujoco.readthedocs.io, Computation: Primal problem)

    (a - a0)^T M (a - a0) / 2 + s(J a + c - r),

where a0 are the accelerations without contacts, J a + c are the accelerations of the constraints in MuJoCo's coordinates, in which
the velocity of a free joint is in world axes, r are reference accelerations, and s is a convex function of each constraint.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import forward_dynamics, forward_kinematics, mass_matrix
from ..dynamics.kinematics import link_twists
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, layout
from ..model.joints import Free
from .contacts import Contacts, Softness

_TINY = 1e-15


class Touch(NamedTuple):
    """Places where shapes can touch, k for all pairs: gap, point, axes (normal towards the second shape first), and pair."""

    gap: Float[Array, " k"]
    point: Float[Array, "k 3"]
    axes: Float[Array, "k 3 3"]
    exists: Float[Array, " k"]


def touches(chain: Chain, contacts: Contacts, q: Position) -> tuple[Touch, list[int]]:
    shapes = contacts.shapes
    base = jnp.eye(4, dtype=q.dtype) if chain.base_pose is None else chain.base_pose
    poses = jnp.concatenate([forward_kinematics(chain, q), base[None]])
    placed = [poses[link] @ pose for link, pose in zip(shapes.links, shapes.pose, strict=True)]
    found, pairs = [], []
    for p, (a, b) in enumerate(shapes.pairs):
        kinds = shapes.kinds[a], shapes.kinds[b]
        function = _KINDS.get(kinds)
        assert function is not None, kinds
        one = lambda k: (placed[k], shapes.size[k], shapes.radius[k])
        for touch in function(one(a), one(b)):
            found.append(touch)
            pairs.append(p)
    return Touch(*(jnp.stack(x) for x in zip(*found, strict=True))), pairs


def _axes(normal, hint=None):
    """The contact's axes: the normal, and tangents from a hint or from y or z."""
    y = jnp.where(jnp.abs(normal[1]) < 0.5, jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
    if hint is not None:
        y = hint
    y = y - normal * (normal @ y)
    y = y / jnp.linalg.norm(y)
    return jnp.stack([normal, y, jnp.cross(normal, y)])


def _on_plane(plane, point, radius, hint=None, exists=True):
    normal = plane[0][:3, 2]
    gap = normal @ (point - plane[0][:3, 3]) - radius
    return Touch(gap, point - normal * (gap / 2 + radius), _axes(normal, hint), jnp.asarray(exists, gap.dtype))


def _plane_sphere(plane, ball):
    return [_on_plane(plane, ball[0][:3, 3], ball[2])]


def _plane_capsule(plane, capsule):
    pose, size, radius = capsule
    axis = pose[:3, 2]
    return [_on_plane(plane, pose[:3, 3] + s * size[2] * axis, radius, axis) for s in (1, -1)]


def _plane_box(plane, box):
    pose, size, radius = box
    normal = plane[0][:3, 2]
    found = []
    for i in range(8):
        signs = jnp.array([1.0 if i & 1 << k else -1.0 for k in range(3)])
        offset = pose[:3, :3] @ (signs * size)
        found.append(_on_plane(plane, pose[:3, 3] + offset, radius, None, normal @ offset <= 0))
    return found


def _plane_ellipsoid(plane, solid):
    pose, size, radius = solid
    normal = plane[0][:3, 2]
    local = -(pose[:3, :3].T @ normal) * size
    return [_on_plane(plane, pose[:3, 3] + pose[:3, :3] @ (size * local / jnp.linalg.norm(local)), radius)]


def _plane_cylinder(plane, cylinder):
    pose, size, _ = cylinder
    normal, axis = plane[0][:3, 2], pose[:3, 2]
    along = normal @ axis
    axis, along = jnp.where(along > 0, -axis, axis), -jnp.abs(along)
    vec = axis * along - normal
    length = jnp.linalg.norm(vec)
    vec = size[0] * jnp.where(length < _TINY, pose[:3, 0], vec / jnp.where(length < _TINY, 1, length))
    end = axis * size[2]
    side = jnp.cross(vec, end)
    side = side / jnp.linalg.norm(side) * size[0] * jnp.sqrt(3.0) / 2
    places = [vec + end, vec - end, side + end - vec / 2, -side + end - vec / 2]
    return [_on_plane(plane, pose[:3, 3] + x, 0.0) for x in places]


def _spheres(first, r1, second, r2):
    apart = second - first
    length = jnp.linalg.norm(apart)
    normal = jnp.where(length < _TINY, jnp.array([1.0, 0, 0]), apart / jnp.where(length < _TINY, 1, length))
    gap = length - r1 - r2
    return Touch(gap, first + normal * (r1 + gap / 2), _axes(normal), jnp.ones_like(gap))


def _sphere_sphere(a, b):
    return [_spheres(a[0][:3, 3], a[2], b[0][:3, 3], b[2])]


def _sphere_capsule(a, b):
    axis = b[0][:3, 2] * b[1][2]
    x = jnp.clip(axis @ (a[0][:3, 3] - b[0][:3, 3]) / (axis @ axis), -1, 1)
    return [_spheres(a[0][:3, 3], a[2], b[0][:3, 3] + x * axis, b[2])]


def _capsule_capsule(a, b):
    first, second = a[0][:3, 2] * a[1][2], b[0][:3, 2] * b[1][2]
    apart = a[0][:3, 3] - b[0][:3, 3]
    ma, mb, mc = first @ first, -first @ second, second @ second
    u, v = -first @ apart, second @ apart
    det = ma * mc - mb * mb
    x1, x2 = (mc * u - mb * v) / det, (ma * v - mb * u) / det
    x2 = jnp.where(x1 > 1, (v - mb) / mc, jnp.where(x1 < -1, (v + mb) / mc, x2))
    x1 = jnp.clip(x1, -1, 1)
    x1 = jnp.where(x2 > 1, jnp.clip((u - mb) / ma, -1, 1), jnp.where(x2 < -1, jnp.clip((u + mb) / ma, -1, 1), x1))
    x2 = jnp.clip(x2, -1, 1)
    return [_spheres(a[0][:3, 3] + x1 * first, a[2], b[0][:3, 3] + x2 * second, b[2])]


_KINDS = {
    ("plane", "sphere"): _plane_sphere,
    ("plane", "capsule"): _plane_capsule,
    ("plane", "box"): _plane_box,
    ("plane", "ellipsoid"): _plane_ellipsoid,
    ("plane", "cylinder"): _plane_cylinder,
    ("sphere", "sphere"): _sphere_sphere,
    ("sphere", "capsule"): _sphere_capsule,
    ("capsule", "capsule"): _capsule_capsule,
}


class System(NamedTuple):
    """The minimisation problem: constraints, scaled so that s needs no other parameters."""

    rows: Float[Array, "m nv"]  # J
    offset: Float[Array, " m"]  # c - r
    stiffness: Float[Array, " m"]  # D, 0 if the constraint is absent
    bound: Float[Array, " f"]  # of the force of the first f rows, dry friction
    friction: Float[Array, "k 5"]  # of the elliptic cones, whose rows are the last 6 k
    ratio: Float[Array, " k"]  # mu


def system(chain: Chain, contacts: Contacts, q: Position, qd: Velocity) -> System:
    rows, twice = contacts.rows, contacts.least_time
    eye = jnp.eye(chain.nv, dtype=q.dtype)
    rub = jnp.array(rows.rubbing, int)
    parts = []
    # dry friction: a force of at most its bound
    imp, _, b = reference(contacts.rubbing, jnp.zeros(len(rub), q.dtype), twice)
    inverse = _regularised(imp, contacts.weight[rub])
    parts.append((eye[rub], b * qd[rub], 1 / inverse))
    # limits
    lim = jnp.array(rows.limited, int)
    for sign, end in ((1, 0), (-1, 1)):
        x = q[jnp.array([_entry(chain, i) for i in rows.limited], int)]
        gap = sign * (x - chain.limits.position[lim, end])
        imp, k, b = reference(contacts.limits, gap - contacts.limits.margin, twice)
        active = gap < contacts.limits.margin
        stiff = jnp.where(active, 1 / _regularised(imp, contacts.weight[lim]), 0)
        jac = sign * eye[lim]
        parts.append((jac, b * (jac @ qd) + k * imp * (gap - contacts.limits.margin), stiff))
    found, pairs = touches(chain, contacts, q)
    pick = jnp.array(pairs, int)
    softness = jax.tree.map(lambda x: x[pick], contacts.softness)
    friction = contacts.friction[pick]
    dims = jnp.array(rows.dimensions, int)[pick]
    used = jnp.arange(1, 6) < dims[:, None]
    jac, acc = _contact_rows(chain, contacts, q, qd, found, pairs)
    violation = found.gap - softness.margin
    active = (violation < 0) & (found.exists > 0)
    imp, k, b = reference(softness, violation, twice)
    weights = jnp.array([[contacts.shape_weight[a] + contacts.shape_weight[b]] for a, b in contacts.shapes.pairs])[pick, 0]
    trans = weights[:, 0]
    rel = jac @ qd
    if rows.cone == "pyramidal":
        first = _regularised(imp, trans + jnp.where(dims > 1, friction[:, 0] ** 2, 0) * trans)
        mu2 = friction[:, 0] ** 2 / contacts.friction_ratio
        inverse = jnp.where(dims > 1, 2 * mu2 * first, first)
        edges = jnp.where(used, friction, 0)
        both = jnp.stack(
            [jac[:, :1] + s * edges[:, :, None] * jac[:, 1:] for s in (1, -1)], axis=2
        )  # (k, 5, 2, nv)
        accs = jnp.stack([acc[:, :1] + s * edges * acc[:, 1:] for s in (1, -1)], axis=2)
        stiff = jnp.where(active[:, None] & used, 1 / inverse[:, None], 0)
        alone = jnp.zeros((len(pairs), 5)).at[:, 0].set(1) > 0
        stiff = jnp.where((dims == 1)[:, None], jnp.where(active[:, None] & alone, 1 / inverse[:, None], 0), stiff)
        stiff = jnp.stack([stiff, jnp.where((dims == 1)[:, None], 0, stiff)], axis=2)
        vel = jnp.einsum("kijn,n->kij", both, qd)
        offset = accs + b[:, None, None] * vel + (k * imp * violation)[:, None, None]
        parts.append((both.reshape(-1, chain.nv), offset.reshape(-1), stiff.reshape(-1)))
        nothing = jnp.zeros((0, 5)), jnp.zeros(0)
    else:
        normal = _regularised(imp, trans)
        along = normal / contacts.friction_ratio
        others = along[:, None] * friction[:, :1] ** 2 / friction**2
        inverse = jnp.concatenate([normal[:, None], others], axis=1)
        given = jax.tree.map(lambda x: x[pick], contacts.friction_reference)
        separate = (given != 0).any(axis=1)
        ref = jnp.where(separate[:, None], given, softness.reference)
        _, _, b_friction = reference(Softness(ref, softness.impedance, softness.margin), violation, twice)
        damping = jnp.concatenate([b[:, None], jnp.broadcast_to(b_friction[:, None], (len(pairs), 5))], axis=1)
        offset = acc + damping * rel
        offset = offset.at[:, 0].add(k * imp * violation)
        use = jnp.concatenate([jnp.ones((len(pairs), 1), bool), used], axis=1) & active[:, None]
        parts.append((jac.reshape(-1, chain.nv), offset.reshape(-1), jnp.where(use, 1 / inverse, 0).reshape(-1)))
        mu = jnp.where(dims > 1, friction[:, 0] / jnp.sqrt(contacts.friction_ratio), 1.0)
        nothing = jnp.where(used, friction, 0), mu
    jac, offset, stiff = (jnp.concatenate(x) for x in zip(*parts, strict=True))
    return System(jac, offset, stiff, contacts.dry_friction, *nothing)


def _entry(chain: Chain, link: int) -> int:
    where = layout(chain)
    return int(where.entries[list(where.columns).index(link)])


def reference(softness: Softness, violation, least_time):
    """Impedance, stiffness and damping of the reference acceleration (see `Softness`)."""
    low, high, width, middle, power = softness.impedance.T
    clip = lambda x: jnp.clip(x, 1e-4, 0.9999)
    low, high, middle, power = clip(low), clip(high), clip(middle), jnp.maximum(power, 1)
    x = jnp.abs(violation) / jnp.maximum(width, _TINY)
    x = jnp.clip(x, 0, 1)
    below = middle * (x / middle) ** power
    above = 1 - (1 - middle) * ((1 - x) / (1 - middle)) ** power
    y = jnp.where(power == 1, x, jnp.where(x <= middle, below, above))
    imp = jnp.where((low == high) | (width <= _TINY), (low + high) / 2, low + y * (high - low))
    time, ratio = softness.reference.T
    standard = time > 0
    slow = jnp.maximum(time, least_time)
    k = jnp.where(standard, 1 / jnp.maximum(_TINY, (high * slow * ratio) ** 2), -time / high**2)
    b = jnp.where(ratio > 0, 2 / jnp.maximum(_TINY, high * slow), -ratio / high)
    return imp, k, b


def _regularised(imp, weight):
    return jnp.maximum(_TINY, (1 - imp) * weight / imp)


def _contact_rows(chain, contacts, q, qd, found, pairs):
    """Jacobian (k, 6, nv) of the relative velocity in the contact's axes, linear then angular, and its acceleration c."""
    turning = jnp.zeros(chain.nv, q.dtype)
    for joint in layout(chain).curved:
        if isinstance(joint, Free):
            w, v = qd[joint.columns][:3], qd[joint.columns][3:]
            turning = turning.at[joint.columns].set(jnp.concatenate([jnp.zeros(3, q.dtype), jnp.cross(w, v)]))

    def relative(rates):
        twists = jnp.concatenate([link_twists(chain, q, rates, "space"), jnp.zeros((1, 6), q.dtype)])
        shapes = contacts.shapes
        a, b = (jnp.array([shapes.links[shapes.pairs[p][k]] for p in pairs], int) for k in range(2))
        change = twists[b] - twists[a]
        linear = change[:, 3:] + jnp.cross(change[:, :3], found.point)
        axes = lambda x: jnp.einsum("kij,kj->ki", found.axes, x)
        return jnp.concatenate([axes(linear), axes(change[:, :3])], axis=1)

    return jax.jacfwd(relative)(jnp.zeros_like(qd)), relative(turning)


def forces(sys: System, x: Float[Array, " m"]) -> tuple[Array, Array, Array]:
    """s(x), the forces -ds/dx, and the second derivative of s, (m, m)."""
    f, k = len(sys.bound), len(sys.ratio)
    m = len(x)
    d, dry = sys.stiffness, x[:f]
    slack = sys.bound / d[:f]
    inside = jnp.abs(dry) < slack
    cost = jnp.where(inside, d[:f] * dry**2 / 2, sys.bound * (jnp.abs(dry) - slack / 2)).sum()
    force = [jnp.where(inside, -d[:f] * dry, -sys.bound * jnp.sign(dry))]
    curve = [jnp.where(inside, d[:f], 0)]
    middle, dm = x[f : m - 6 * k], d[f : m - 6 * k]
    cost += (jnp.where(middle < 0, dm * middle**2, 0)).sum() / 2
    force.append(jnp.where(middle < 0, -dm * middle, 0))
    curve.append(jnp.where(middle < 0, dm, 0))
    hessian = jnp.zeros((m, m)).at[jnp.arange(m - 6 * k), jnp.arange(m - 6 * k)].set(jnp.concatenate(curve))
    if k:
        y, dy = x[m - 6 * k :].reshape(k, 6), d[m - 6 * k :].reshape(k, 6)
        c, g, h = jax.vmap(_cone)(y, dy, sys.friction, sys.ratio)
        cost += c.sum()
        force.append(g.reshape(-1))
        at = jnp.arange(m - 6 * k, m).reshape(k, 6)
        hessian = hessian.at[at[:, :, None], at[:, None, :]].set(h)
    return cost, jnp.concatenate(force), hessian


def _cone(x, d, friction, mu):
    u = jnp.concatenate([x[:1] * mu, x[1:] * friction])
    n, t = u[0], jnp.linalg.norm(u[1:])
    top = (n >= mu * t) | ((t <= 0) & (n >= 0))
    bottom = ~top & ((mu * n + t <= 0) | ((t <= 0) & (n < 0)))
    safe = jnp.where(t > 0, t, 1)
    dm = d[0] / (mu**2 * (1 + mu**2))
    excess = n - mu * t
    scale = jnp.concatenate([mu[None], friction])
    unit = jnp.concatenate([jnp.ones(1), -mu * u[1:] / safe])
    g = -dm * excess * unit * scale
    first = jnp.outer(unit, unit)
    tangent = jnp.zeros((6, 6)).at[1:, 1:].set(jnp.eye(5) - jnp.outer(u[1:], u[1:]) / safe**2)
    h = dm * (first - mu * excess / safe * tangent) * jnp.outer(scale, scale)
    pick = lambda a, b, c: jnp.where(top, a, jnp.where(bottom, b, c))
    zero = jnp.zeros_like
    return pick(0.0, (d * x**2).sum() / 2, dm * excess**2 / 2), pick(zero(g), -d * x, g), pick(zero(h), jnp.diag(d), h)


def contact_dynamics(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, tau: Force) -> Acceleration:
    """The minimiser, by Newton's method with an exact line search."""
    free, mass, sys = forward_dynamics(chain, q, qd, tau), mass_matrix(chain, q), system(chain, contacts, q, qd)

    def gradient(a):
        _, f, h = forces(sys, sys.rows @ a + sys.offset)
        return mass @ (a - free) - sys.rows.T @ f, mass + sys.rows.T @ h @ sys.rows

    def slope(alpha, a, step):
        x = a + alpha * step
        _, f, h = forces(sys, sys.rows @ x + sys.offset)
        along = sys.rows @ step
        return step @ mass @ (x - free) - along @ f, step @ mass @ step + along @ h @ along

    def search(a, step):
        def body(_, state):
            low, high, alpha = state
            g, h = slope(alpha, a, step)
            low, high = jnp.where(g < 0, alpha, low), jnp.where(g < 0, high, alpha)
            new = alpha - g / h
            inside = (new > low) & (new < high)
            doubled = jnp.where(jnp.isinf(high), 2 * alpha, (low + jnp.where(jnp.isinf(high), low, high)) / 2)
            return low, high, jnp.where(inside, new, doubled)

        one = jnp.ones((), a.dtype)
        return jax.lax.fori_loop(0, 30, body, (0 * one, one * jnp.inf, one))[2]

    def body(_, a):
        g, h = gradient(a)
        step = -jnp.linalg.solve(h, g)
        small = jnp.abs(step).max() == 0
        return jnp.where(small, a, a + search(a, step) * step)

    return jax.lax.fori_loop(0, 40, body, free)
