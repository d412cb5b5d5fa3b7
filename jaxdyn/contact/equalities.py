"""Equality constraints, soft as MuJoCo's: two points or two frames of links coincide, or a joint follows another.

A constraint with the violation g(q) and its rate J qd adds x^T D x / 2 with x = J a + c - r to the function that the
accelerations a minimise (mujoco.readthedocs.io, Computation: Constraint model, Equality). It is always active, so that all of
them together only change the mass matrix and the torques of that problem: M + J^T D J, and tau - J^T D (c - r).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.kinematics import Placements, placements, screws_at
from ..errors import ModelError, warn
from ..io.mjcf import body_names, disabled, listed, named, pose_matrix, tree_of
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, ancestor_mask, frame_index, layout
from ..model.compiled import compiled
from ..model.configuration import integrate, place
from ..spatial.components import Values
from ..spatial.so3 import rotation_to_quaternion, skew
from .contacts import Connect, Contacts, Equality, Follow, Weld
from .softness import reference, regularised
from .weights import inverse_weights

REFERENCE, IMPEDANCE = (0.02, 1.0), (0.9, 0.95, 0.001, 0.5, 2.0)  # MuJoCo's defaults


def connect(
    chain: Chain,
    first: str,
    second: str,
    points: Values,
    reference: Values = REFERENCE,
    impedance: Values = IMPEDANCE,
) -> Connect:
    """The constraint that a point of one link or frame coincides with one of another; `points` (2, 3) are in their frames [m].

    Add it to contacts by `dataclasses.replace(contacts, equalities=(...,))`.

    Raises:
        ModelError: a name is unknown, or an argument has another shape.
    """
    _check_shapes({"points": (points, (2, 3))}, reference, impedance)
    links, frames, weight = _ends(chain, (first, second))
    at = jnp.asarray(points, chain.dtype)
    points = jnp.einsum("kij,kj->ki", frames[:, :3, :3], at) + frames[:, :3, 3]
    return Connect(points, reference, impedance, weight[0], links)


def weld(
    chain: Chain,
    first: str,
    second: str,
    pose: Values | None = None,
    reference: Values = REFERENCE,
    impedance: Values = IMPEDANCE,
) -> Weld:
    """The constraint that a link or frame has a constant pose (4, 4) in that of another, by default the identity [m].

    Add it to contacts by `dataclasses.replace(contacts, equalities=(...,))`. `turning_scale` is 1 m.

    Raises:
        ModelError: a name is unknown, or an argument has another shape.
    """
    _check_shapes({} if pose is None else {"pose": (pose, (4, 4))}, reference, impedance)
    links, frames, weight = _ends(chain, (first, second))
    if pose is not None:
        frames = jnp.stack([frames[0], frames[1] @ jnp.asarray(pose, chain.dtype)])
    return Weld(frames, 1.0, reference, impedance, weight, links)


def follow(
    chain: Chain,
    joint: str,
    other: str | None,
    polynomial: Values = (0.0, 1.0, 0.0, 0.0, 0.0),
    reference: Values = REFERENCE,
    impedance: Values = IMPEDANCE,
) -> Follow:
    """The constraint that a joint follows another one by a polynomial (see `Follow`), or stays at its first coefficient.

    Add it to contacts by `dataclasses.replace(contacts, equalities=(...,))`.

    Raises:
        ModelError: a joint is not a revolute or prismatic joint of the chain, the joints are the same, or an argument has
            another shape.
    """
    _check_shapes({"polynomial": (polynomial, (5,))}, reference, impedance)
    single = {j.name: j.column for j in layout(chain).joints if not j.curved and j.size == 1}
    if odd := [name for name in (joint, other) if name is not None and name not in single]:
        raise ModelError(f"{odd[0]!r} is not a revolute or prismatic joint", f"the joints are {', '.join(single)}")
    if joint == other:
        raise ModelError(f"joint {joint!r} cannot follow itself", "pass another joint, or None")
    joints = (single[joint],), () if other is None else (single[other],)
    weight = inverse_weights(chain)[1][np.array([*joints[0], *joints[1]])].sum()
    ones = jnp.ones(len(joints[0]), chain.dtype), jnp.ones(len(joints[1]), chain.dtype)
    return Follow(polynomial, (0.0, 0.0), ones, reference, impedance, weight, joints)


def _check_shapes(others: dict[str, tuple[Values, tuple[int, ...]]], reference: Values, impedance: Values) -> None:
    """Raise an error about an argument of another shape."""
    for name, (value, shape) in {**others, "reference": (reference, (2,)), "impedance": (impedance, (5,))}.items():
        if jnp.shape(jnp.asarray(value)) != shape:
            raise ModelError(f"{name} has the shape {jnp.shape(jnp.asarray(value))}", f"pass an array of shape {shape}")


def _ends(chain: Chain, names: tuple[str, str]) -> tuple[tuple[int, int], Array, Array]:
    """Links, poses in these, and weights of two links or frames."""
    found = [frame_index(chain, name) for name in names]
    pose = lambda k: jnp.eye(4, dtype=chain.dtype) if k is None else chain.frame_poses[k]
    of_links, _ = inverse_weights(chain)
    weight = sum((of_links[link] for link, _ in found if link >= 0), jnp.zeros(2, of_links.dtype))
    return (found[0][0], found[1][0]), jnp.stack([pose(k) for _, k in found]), weight


class EqualityRows(NamedTuple):
    """J (m, nv), c - r (m,) and D (m,) of all equality constraints."""

    jacobian: Float[Array, "m nv"]
    offset: Float[Array, " m"]
    stiffness: Float[Array, " m"]

    def force(self, a: Float[Array, " nv"]) -> Float[Array, " m"]:
        """Forces along the rows at the accelerations a."""
        return -self.stiffness * (self.jacobian @ a + self.offset)


@compiled
def equality_forces(
    chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration
) -> tuple[Float[Array, " _"], ...]:
    """Forces of each of `contacts.equalities` on its first link or joint, at given accelerations.

    Returns:
        One vector for each constraint: of `Connect`, the force in world axes [N]; of `Weld`, also the force along the three
        rotations of its violation, of which the moment is `turning_scale` / 2 in a weld without violation; of `Follow`, the
        torque or force on the joint.
    """
    found = equality_rows(chain, contacts, q, qd).force(qdd)
    sizes = [{Connect: 3, Weld: 6, Follow: 1}[type(each)] for each in contacts.equalities]
    return tuple(jnp.split(found, np.cumsum(sizes)))[:-1]


def equality_torques(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration) -> Force:
    """The torques J^T f of all equality constraints at given accelerations."""
    rows = equality_rows(chain, contacts, q, qd)
    return rows.force(qdd) @ rows.jacobian


def equality_rows(chain: Chain, contacts: Contacts, q: Position, qd: Velocity) -> EqualityRows:
    """The rows of all equality constraints in a state; c is dJ/dt qd for links, and 0 for joints, as in MuJoCo."""
    dtype = jnp.result_type(chain.dtype, q, qd)
    if not contacts.equalities:  # XLA would remove the rest, but only after tracing it
        nothing = jnp.zeros(0, dtype)
        return EqualityRows(jnp.zeros((0, chain.nv), dtype), nothing, nothing)
    cast = lambda y: y.astype(dtype)
    equalities, least_time = jax.tree.map(cast, (contacts.equalities, contacts.least_time))

    def at(time):
        links, x = place(chain, integrate(chain, q, time * qd))
        placed = placements(links, x)
        return [_violation(links, placed, x, each) for each in equalities]

    found, rates = jax.jvp(at, (jnp.zeros((), qd.dtype),), (jnp.ones((), qd.dtype),))
    parts = []
    for each, (violation, jacobian, weight), (_, change, _) in zip(equalities, found, rates, strict=True):
        damping, push, stiffness = softened(each, violation, weight, least_time)
        offset = damping * (jacobian @ qd) + push
        parts.append((jacobian, offset if isinstance(each, Follow) else offset + change @ qd, stiffness))
    return EqualityRows(*(jnp.concatenate(y) for y in zip(*parts, strict=True)))


def softened(each: Equality, violation: Array, weight: Array, least_time: Array) -> tuple[Array, Array, Array]:
    """Damping [1/s], the share of the violation in c - r, and D of the rows of a constraint."""
    square = violation @ violation
    size = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    d, k, b = reference(each.reference, each.impedance, size, least_time)
    return b, k * d * violation, 1 / regularised(d, weight)


def _violation(links: Chain, placed: Placements, x: Array, each: Equality) -> tuple[Array, Array, Array]:
    """Violation, Jacobian and inverse inertias of one constraint."""
    if isinstance(each, Follow):
        return _followed(links, x, each)
    linear, rotations, seen = [], [], placed.seen_from(-1)
    points = each.points if isinstance(each, Connect) else each.frames[:, :3, 3]
    moves = ancestor_mask(links.topology.parents)
    for link, point in zip(each.links, points, strict=True):
        arm = placed.rotation[link] @ point
        columns = screws_at(links, placed, (seen[link] + arm)[None] - seen)
        linear.append((seen[link] + arm, jnp.where(moves[:, link] if link >= 0 else False, columns, 0)))
        rotations.append(placed.rotation[link])
    (first, by_first), (second, by_second) = linear
    apart, relative = first - second, by_first - by_second
    if isinstance(each, Connect):
        return apart, relative[3:], jnp.broadcast_to(each.weight, (3,))
    of_first, of_second = (r @ f[:3, :3] for r, f in zip(rotations, each.frames, strict=True))
    turn = rotation_to_quaternion(of_second.T @ of_first)
    scale = each.turning_scale
    rate = scale / 2 * (turn[0] * jnp.eye(3, dtype=x.dtype) - skew(turn[1:])) @ of_second.T
    violation = jnp.concatenate([apart, scale * turn[1:]])
    return violation, jnp.concatenate([relative[3:], rate @ relative[:3]]), jnp.repeat(each.weight, 3)


def _followed(links: Chain, x: Array, each: Follow) -> tuple[Array, Array, Array]:
    k, (own, other) = each.polynomial, (np.array(part, int) for part in each.joints)
    value, y = (c @ x[j] - zero for c, j, zero in zip(each.coefficients, (own, other), each.zeros, strict=True))
    jacobian = jnp.zeros((1, links.n), x.dtype).at[0, own].set(each.coefficients[0])
    if not len(other):
        return (value - k[0])[None], jacobian, each.weight[None]
    slope = jnp.polyval(k[:0:-1] * jnp.array([4, 3, 2, 1], x.dtype), y)
    jacobian = jacobian.at[0, other].add(-slope * each.coefficients[1])
    return (value - jnp.polyval(k[::-1], y))[None], jacobian, each.weight[None]


def joined_joints(parents: tuple[int, ...], equalities: tuple[Equality, ...]) -> tuple[tuple[int, ...], ...]:
    """For every constraint, the joints that it couples."""
    moves = ancestor_mask(parents)
    joined = []
    for each in equalities:
        if isinstance(each, Follow):
            joined.append(tuple(sorted({*each.joints[0], *each.joints[1]})))
        else:
            links = [link for link in each.links if link >= 0]
            joined.append(tuple(np.flatnonzero(moves[:, links].any(axis=1)).tolist()))
    return tuple(joined)


def equalities_from_mujoco(model: Any, chain: Chain, leave_out: bool) -> tuple[Equality, ...]:
    """The active equality constraints of a compiled model, of which `chain` was made."""
    if disabled(model, "EQUALITY", "CONSTRAINT"):
        return ()
    active = np.flatnonzero(model.eq_active0).tolist()
    spatial = lambda t: t >= 0 and int(model.wrap_type[model.tendon_adr[t]]) != _JOINTS
    of_spatial = lambda e: (
        int(model.eq_type[e]) == _TENDON and (spatial(model.eq_obj1id[e]) or spatial(model.eq_obj2id[e]))
    )
    odd = [e for e in active if int(model.eq_type[e]) not in _MAKERS or of_spatial(e)]
    what = "equality constraints other than connect, weld, joint and fixed tendon"
    refuse(leave_out, what, named(model.equality, np.isin(np.arange(model.neq), odd)))
    return tuple(_MAKERS[int(model.eq_type[e])](model, chain, e) for e in active if e not in odd)


def refuse(leave_out: bool, what: str, names: list[str]) -> None:
    """Raise an error about parts of a model that are not supported, or warn if they shall be left out."""
    if names and not leave_out:
        remedy = "pass leave_out=True to leave them out, or remove them from the model"
        raise ModelError(f"{what} are not supported: {listed(names)}", remedy)
    if names:
        warn(f"{what} are not supported: {listed(names)}; they are left out")


def _softness(model: Any, e: int) -> tuple[Array, Array]:
    return jnp.asarray(model.eq_solref[e]), jnp.asarray(model.eq_solimp[e])


def _in_links(model: Any, chain: Chain, e: int, in_bodies: tuple[Any, Any]):
    """Links of both objects of a constraint, poses (position, quaternion) in these, and weights of the bodies."""
    bodies = np.array([model.eq_obj1id[e], model.eq_obj2id[e]])
    if int(model.eq_objtype[e]) == _SITE:
        in_bodies = tuple((model.site_pos[s], model.site_quat[s]) for s in bodies)
        bodies = model.site_bodyid[bodies]
    names = body_names(model)
    found = [frame_index(chain, names[b]) for b in bodies]
    carrier = lambda k: np.eye(4) if k is None else np.asarray(chain.frame_poses[k], float)
    poses = np.stack([carrier(k) @ pose_matrix(*pose) for (_, k), pose in zip(found, in_bodies, strict=True)])
    return (found[0][0], found[1][0]), poses, model.body_invweight0[bodies].sum(axis=0)


_NO_TURN = np.array([1.0, 0, 0, 0])


def _connect(model: Any, chain: Chain, e: int) -> Connect:
    data = model.eq_data[e]
    links, poses, weight = _in_links(model, chain, e, ((data[:3], _NO_TURN), (data[3:6], _NO_TURN)))
    return Connect(poses[:, :3, 3], *_softness(model, e), weight[0], links)


def _weld(model: Any, chain: Chain, e: int) -> Weld:
    data = model.eq_data[e]
    links, poses, weight = _in_links(model, chain, e, ((data[3:6], data[6:10]), (data[:3], _NO_TURN)))
    return Weld(poses, data[10], *_softness(model, e), weight, links)


def _follow(model: Any, chain: Chain, e: int) -> Follow:
    """A constraint of joints, or of fixed tendons."""
    of_tendons = int(model.eq_type[e]) == _TENDON
    dofs = [link.dof for link in tree_of(model).links]
    joints, coefficients, zeros, weight = [], [], np.zeros(2), 0.0
    for k, i in enumerate((int(model.eq_obj1id[e]), int(model.eq_obj2id[e]))):
        own, of_own = (), np.zeros(0)
        if i >= 0 and of_tendons:
            part = slice(model.tendon_adr[i], model.tendon_adr[i] + model.tendon_num[i])
            own, of_own = model.wrap_objid[part], model.wrap_prm[part]
            zeros[k], weight = model.tendon_length0[i], weight + model.tendon_invweight0[i]
        elif i >= 0:
            own, of_own, zeros[k] = (i,), np.ones(1), model.qpos0[model.jnt_qposadr[i]]
            weight += model.dof_invweight0[model.jnt_dofadr[i]]
        joints.append(tuple(dofs.index(model.jnt_dofadr[j]) for j in own))
        coefficients.append(jnp.asarray(of_own, chain.dtype))
    first, second = coefficients
    return Follow(model.eq_data[e, :5], zeros, (first, second), *_softness(model, e), weight, (joints[0], joints[1]))


_SITE, _JOINTS, _TENDON = 6, 1, 3  # mjtObj, mjtWrap, mjtEq
_MAKERS = {0: _connect, 1: _weld, 2: _follow, _TENDON: _follow}  # mjtEq
