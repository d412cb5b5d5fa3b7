"""`Chain`: a robot as a pytree, with the properties of its joints and motors, and the layout of its coordinates.

Numbers are leaves, to differentiate, batch or optimise; names and the tree of links are static (`Topology`).
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import Tracer
from .._summary import Summary, lines, names
from ..errors import ModelError
from .joints import JOINT_TYPES, CurvedJoint, Free, Joint

# arguments of most functions: nq positions, and nv velocities, accelerations or forces (docs/conventions.md)
Position = Float[Array, " nq"]
Velocity = Float[Array, " nv"]
Acceleration = Float[Array, " nv"]
Force = Float[Array, " nv"]
Wrench = Float[Array, "6"]
Wrenches = Float[Array, "n 6"]  # one per link

T = TypeVar("T")
COULOMB_VELOCITY, STRIBECK_VELOCITY = 0.02, 0.1  # widths of the smooth sign function and of the Stribeck term [rad/s]


def as_array(x) -> Array:
    """Return arrays unchanged, and convert anything else to an array of JAX's default float type."""
    return x if isinstance(x, Array) else jnp.asarray(x, float)


def converts(cls: type[T]) -> type[T]:
    """Clear the annotations of a dataclass's `__init__`, whose arguments may have any type that converts to the field type."""
    cls.__init__.__annotations__.clear()
    return cls


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(eqx.field,))
def _of_arrays(cls: type[T]) -> type[T]:
    """Turn a class of array fields into a frozen pytree dataclass; flattening takes a third of an `equinox.Module`'s time."""
    cls.__post_init__ = _convert  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]
    converts(cls)
    values, keys = attrgetter(*names), tuple(map(jax.tree_util.GetAttrKey, names))

    def unflatten(_: None, leaves: Iterable[Any]) -> T:
        made = object.__new__(cls)  # no conversion: JAX also unflattens with leaves that are not arrays
        made.__dict__.update(zip(names, leaves, strict=True))
        return made

    keyed = lambda x: (tuple(zip(keys, values(x), strict=True)), None)
    jax.tree_util.register_pytree_with_keys(cls, keyed, unflatten, lambda x: (values(x), None))
    return cls


def _convert(self: Any) -> None:
    for field in dataclasses.fields(self):
        object.__setattr__(self, field.name, field.metadata["converter"](getattr(self, field.name)))


@_of_arrays
class Friction:
    """Friction of joints or motors, with one value of each coefficient per joint or motor.

    At the rate qd, the friction torque is

        f = fv qd + (fc + (fs - fc) exp(-(qd / w_s)^2)) tanh(qd / v_c) + offset.

    The smooth sign function tanh(qd / v_c) makes f differentiable at rest, but a loaded joint then creeps instead of
    sticking. The excess of static over Coulomb friction, fs - fc, decays over the velocity w_s (Armstrong-Helouvry,
    Dupont & Canudas de Wit 1994). The peak of f lies near v_c and is lower than fs unless v_c is much smaller than w_s.
    For prismatic joints, replace [rad] by [m] and [N m] by [N].

    Attributes:
        viscous: fv [N m s/rad].
        coulomb: fc [N m].
        coulomb_velocity: v_c [rad/s].
        stribeck: fs - fc [N m].
        stribeck_velocity: w_s [rad/s].
        offset: constant torque [N m].
    """

    viscous: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    coulomb: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    coulomb_velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=COULOMB_VELOCITY)
    stribeck: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    stribeck_velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=STRIBECK_VELOCITY)
    offset: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)

    def sign(self, rates: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The smooth sign function tanh(rates / v_c)."""
        return jnp.tanh(rates / self.coulomb_velocity)

    def torque(self, rates: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Friction torques f(rates) [N m]."""
        sign = self.sign(rates)
        dry = self.coulomb + self.stribeck * _fading(rates, self.stribeck_velocity)
        return self.viscous * rates + dry * sign + self.offset


def _fading(rates: Float[Array, "*n"], width: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The factor exp(-(rates / width)^2), with finite derivatives at all rates, even for very small widths."""
    # without these bounds, derivatives for tiny widths or large ratios would contain 0 * inf
    width = jnp.maximum(width, jnp.finfo(width.dtype).eps ** 2)
    near = jnp.abs(rates) < 12 * width  # exp(-144) < 1e-62
    ratio = jnp.where(near, rates, jnp.zeros_like(rates)) / width
    return jnp.where(near, jnp.exp(-(ratio**2)), jnp.zeros_like(ratio))


@_of_arrays
class Springs:
    """Joint springs; holding a joint at q against its spring requires the torque k (q - q_rest).

    Attributes:
        stiffness: stiffness k [N m/rad or N/m].
        rest_position: position q_rest at which the torque is zero [rad or m].
    """

    stiffness: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    rest_position: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)


@_of_arrays
class JointLimits:
    """Joint limits, infinite where a joint has none.

    Attributes:
        position: lower and upper joint limits [rad or m].
        velocity: maximum |qd| [rad/s or m/s].
        effort: maximum |tau| [N m or N].
    """

    position: Float[Array, "*n 2"] = eqx.field(converter=as_array, default=(-np.inf, np.inf))
    velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=np.inf)
    effort: Float[Array, "*n"] = eqx.field(converter=as_array, default=np.inf)


_TYPE_OF_SIZE: dict[Any, str] = {3: "spherical", 6: "free"}  # models of version 0.2 contain numbers of links


@converts
@dataclasses.dataclass(frozen=True, eq=False)
class Topology:
    """The static part of a chain: names and parents. Topologies are equal if all fields but the last two are equal.

    By default, joints and links are named joint1, joint2, ... and link1, link2, ...

    Attributes:
        parents: index of each link's parent link, -1 for the base; a parent precedes its children.
        joint_names: names of the joints, one per link, in link order.
        link_names: the moving links; link i moves with joint i.
        tip_name: the link or frame that functions use by default; None if several links have no children.
        compound_joints: first link and type of each joint with several degrees of freedom, (0, "free"): "spherical" (3
            links), "free" (6), "planar" (3), "universal" (2) or "cylindrical" (2). Every other joint has one link.
        coordinate_names: names of the generalised coordinates if they differ from the joint names.
        frame_names: named frames fixed to links or to the base (fused links, tool frames).
        frame_links: the link to which each named frame is fixed, -1 for the base.
        unrounded: rotation, translation and screw of each link (18 numbers) before angles and axes in the robot
            description were rounded (1.5708 for pi/2), or empty. Only the number of base parameters depends on them.
        rounding: bound on the differences between these numbers and those of the chain.

    Raises:
        ModelError: parents do not form a tree; names are repeated, too many or too few; a frame's link is missing.
    """

    parents: tuple[int, ...]
    joint_names: tuple[str, ...] = ()
    link_names: tuple[str, ...] = ()
    base_name: str = "base"
    tip_name: str | None = None
    compound_joints: tuple[tuple[int, str], ...] = ()
    coordinate_names: tuple[str, ...] | None = None
    frame_names: tuple[str, ...] = ()
    frame_links: tuple[int, ...] = ()
    unrounded: tuple[tuple[float, ...], ...] = ()
    rounding: float = 0.0

    @classmethod
    def serial(cls, n: int, **names: Any) -> "Topology":
        """Topology of n links in series; `names` sets other fields by keyword."""
        return cls(tuple(range(-1, n - 1)), **names)

    def __post_init__(self) -> None:
        n = len(self.parents)
        parents, links = tuple(int(p) for p in self.parents), _names(self.link_names, n, "link")
        ends = set(range(n)) - set(parents)
        compound = sorted((int(i), _TYPE_OF_SIZE.get(kind, kind)) for i, kind in self.compound_joints)
        given = {
            "parents": parents,
            "joint_names": _names(self.joint_names, n, "joint"),
            "link_names": links,
            "tip_name": links[ends.pop()] if self.tip_name is None and len(ends) == 1 else self.tip_name,
            "compound_joints": tuple(compound),
            "coordinate_names": None if self.coordinate_names is None else tuple(self.coordinate_names),
            "frame_names": tuple(self.frame_names),
            "frame_links": tuple(int(i) for i in self.frame_links),
            "unrounded": tuple(tuple(row) for row in self.unrounded),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)
        if any(not -1 <= p < i for i, p in enumerate(parents)):
            raise ModelError(f"parents {parents} are not a tree in which every parent precedes its children")
        self._check_compound_joints()
        frames = dict(zip(self.frame_names, self.frame_links, strict=True))
        for name, link in frames.items():
            if not -1 <= link < n:
                raise ModelError(f"frame {name!r} is fixed to link {link}, but the links are -1 (the base) to {n - 1}")
        if clash := frames.keys() & set(links) or {self.base_name} & {*frames, *links}:
            fault = f"the name {sorted(clash)[0]!r} is used twice"
            raise ModelError(fault, "links, frames and the base need distinct names")
        # computed only once, since every jitted call hashes its static arguments
        object.__setattr__(self, "_key", self._fields()[:-2])
        object.__setattr__(self, "_hash", hash(self.__dict__["_key"]))
        extra = sum(len(kind.positions) - len(kind.parts) for _, kind in self.compound_links())
        object.__setattr__(self, "_extra", extra)
        object.__setattr__(self, "_curved", any(kind.curved for _, kind in self.compound_links()))

    def _check_compound_joints(self) -> None:
        end = 0
        for link, kind in self.compound_joints:
            start, end = end, link + (len(JOINT_TYPES[kind].parts) if kind in JOINT_TYPES else 0)
            if not start <= link < end <= len(self.parents):
                remedy = f"pass its first link and its type, one of {', '.join(JOINT_TYPES)}"
                raise ModelError(f"compound joint ({link}, {kind!r}): {remedy}")
            if self.parents[link + 1 : end] != tuple(range(link, end - 1)):
                which = f"the {end - link} joints starting with {self.joint_names[link]!r}"
                raise ModelError(f"{which} do not form a {kind} joint: they are not a serial chain")

    def compound_links(self) -> Iterator[tuple[slice, type[Joint]]]:
        """The links and the type of each joint with several degrees of freedom."""
        for link, kind in self.compound_joints:
            yield slice(link, link + len(JOINT_TYPES[kind].parts)), JOINT_TYPES[kind]

    @property
    def has_curved_joints(self) -> bool:
        """True if the positions of a joint are no vector, because they contain a quaternion: v is then not dq/dt."""
        return self.__dict__["_curved"]

    @property
    def is_floating(self) -> bool:
        """True if the robot has a free joint."""
        return any(kind == Free.kind for _, kind in self.compound_joints)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields()  # recompute the hash, since hashes of strings differ between processes

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def __hash__(self) -> int:
        return self.__dict__["_hash"]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self.__dict__["_key"] == other.__dict__["_key"])


def _names(given: Sequence[str], n: int, kind: str) -> tuple[str, ...]:
    names = tuple(given) or tuple(f"{kind}{i + 1}" for i in range(n))
    if len(names) != n:
        raise ModelError(f"{len(names)} {kind} names are given for {n} joints")
    if len(set(names)) != n:
        twice = next(x for x in names if names.count(x) > 1)
        raise ModelError(f"the {kind} name {twice!r} is used twice")
    return names


class Transmission(eqx.Module):
    """Motors geared to the joints: motor rates = matrix @ joint rates, joint torques = matrix^T @ motor torques.

    The row of a motor with a simple gear has one nonzero entry, the gear ratio r; the row of a motor that drives
    several joints (a coupled wrist, a drive at the base) has several. Only the spin of rotors about their axes is
    modelled; it adds matrix^T diag(rotor_inertia) matrix to the mass matrix (Spong, Hutchinson & Vidyasagar 2020,
    example 6.1: r^2 J_m). Motor friction, a function of the motor rates, is mapped to the joints by matrix^T.

    Attributes:
        matrix: gear ratios, motor revolutions per joint revolution [1], or [rad/m] for prismatic joints.
        rotor_inertia: inertia J_m of each rotor about its axis [kg m^2].
        friction: friction of each motor, in terms of motor rates [rad/s] and torques [N m].
    """

    matrix: Float[Array, "m n"] = eqx.field(converter=as_array)
    rotor_inertia: Float[Array, " m"] = eqx.field(converter=as_array)
    friction: Friction


class Coupling(eqx.Module):
    """Joint positions as an affine function of other generalised coordinates y: joints = matrix @ y + offset [rad or m].

    Examples are mimic joints (with fewer coordinates than joints), remotely driven joints and absolute angles.
    """

    matrix: Float[Array, "n nv"] = eqx.field(converter=as_array)
    offset: Float[Array, " n"] = eqx.field(converter=as_array)


class Chain(eqx.Module, Summary):
    """A serial chain or tree of n one-degree-of-freedom joints, as an Equinox pytree; joint i moves link i.

    The pose of link i in its parent p is T_pi(q) = M_i exp([A_i] q_i), where M_i is the constant placement and
    A_i = (w, v) is the joint screw in the frame of link i:

    - for revolute joints, |w| = 1 and v . w = 0 (v = 0 if the axis passes through the origin);
    - for prismatic joints, w = 0 and |v| = 1;
    - for helical joints, |w| = 1 and v . w is the pitch [m/rad].

    Derivatives with respect to a screw are those of Rodrigues' formula, which is the exponential only if |w| is 1 or 0.

    A spherical joint consists of three such joints, and a free joint of six, with massless links between them. Their
    positions contain a quaternion, and their velocities are in the body frame (docs/conventions.md): a state has `nq`
    positions and `nv` velocities.

    Create a chain with `load`, `from_screws` or `from_dh`, or choose one from `textbook` or `robots`. Change leaves
    with `equinox.tree_at` or `dataclasses.replace`: `tree_at(lambda c: c.friction.viscous, chain, viscous)`.

    Attributes:
        rotation: R of M_i.
        translation: p of M_i [m].
        screw: joint screws A_i = (w, v) in the link frames [1, m/rad] ([0, 1] for prismatic joints).
        inertia: ten parameters per link about the origin of its frame: m, m c, Ixx Ixy Iyy Ixz Iyz Izz
            [kg, kg m, kg m^2].
        armature: reflected rotor inertia per joint [kg m^2] ([kg] for prismatic joints); part of the mass matrix.
        gravity: acceleration of gravity in world axes [m/s^2]; without `base_pose`, these are the axes of the base.
        frame_poses: pose of every named frame in its link [m].
        base_pose: pose of the base in the world frame, in which gravity and poses are expressed; None for the identity.
        transmission: rotors geared to the joints, if any.
        coupling: joint positions as a function of other generalised coordinates; None if the coordinates are joint
            positions.
    """

    rotation: Float[Array, "n 3 3"]
    translation: Float[Array, "n 3"]
    screw: Float[Array, "n 6"]
    inertia: Float[Array, "n 10"]
    armature: Float[Array, " n"]
    friction: Friction
    springs: Springs
    limits: JointLimits
    gravity: Float[Array, "3"]
    frame_poses: Float[Array, "k 4 4"]
    topology: Topology = eqx.field(static=True)
    base_pose: Float[Array, "4 4"] | None = None
    transmission: Transmission | None = None
    coupling: Coupling | None = None

    def __check_init__(self) -> None:
        for part in (self.friction, self.springs, self.limits):
            for name, x in vars(part).items():
                if getattr(x, "ndim", 1) == 0:
                    fault = (
                        f"{type(part).__name__}.{name} is one number for all joints, which only `make_chain` accepts"
                    )
                    remedy = (
                        f"pass {self.n}, or change a chain's leaf: dataclasses.replace(chain.friction, viscous=...)"
                    )
                    raise ModelError(fault, remedy)

    @property
    def n(self) -> int:
        """Number of moving links, which equals the number of one-degree-of-freedom joints."""
        return len(self.topology.joint_names)

    @property
    def nv(self) -> int:
        """Number of velocities, which equals the number of accelerations and of generalised forces."""
        return self.n if self.coupling is None else self.coupling.matrix.shape[-1]

    @property
    def nq(self) -> int:
        """Number of positions: the number of velocities, plus one for every quaternion."""
        return self.nv + self.topology.__dict__["_extra"]

    @property
    def joints(self) -> tuple[Joint, ...]:
        """The joints in the order of q and v, with their indices; the coordinates, if joints are coupled."""
        return layout(self).joints

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, in order."""
        return self.topology.joint_names

    @property
    def link_names(self) -> tuple[str, ...]:
        """Names of the moving links, in order; link i moves with joint i."""
        return self.topology.link_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Names of the frames fixed to links or to the base (fused links, tool frames)."""
        return self.topology.frame_names

    @property
    def dtype(self) -> jnp.dtype:
        """The floating-point type of the leaves."""
        return self.inertia.dtype

    def __repr__(self) -> str:
        topology = self.topology
        if getattr(self.inertia, "ndim", 0) < 2:  # the leaves are axes, masks or the like
            return f"Chain: {self.n} joints, leaves like {self.inertia!r}"
        kind = "serial arm" if topology.parents == tuple(range(-1, self.n - 1)) else "tree"
        batch = "" if self.inertia.ndim == 2 else f", batch of shape {self.inertia.shape[:-2]}"
        tip = "" if topology.tip_name is None else f"; tip {topology.tip_name}"
        frames = f"frames: {names(topology.frame_names)}" if topology.frame_names else ""
        floats = "floating" if topology.is_floating else "fixed"
        return lines(
            f"Chain: {kind} of {self.n} joints, nq {self.nq}, nv {self.nv}, {self.dtype}{batch}",
            f"joints: {names(self.joint_names)}",
            f"base {topology.base_name}, {floats}{tip}",
            frames,
            self._mass_in_words(),
        )

    def _mass_in_words(self) -> str:
        if isinstance(self.inertia, Tracer | jax.ShapeDtypeStruct) or self.inertia.ndim != 2:
            return ""
        total = float(np.asarray(self.inertia)[:, 0].sum())
        if total == 0:
            return "no link has mass: a kinematics-only model, whose forward dynamics are NaN"
        return f"mass of the moving links {total:.4g} kg"


class Layout(NamedTuple):
    """Which entries of q and v belong to which joint.

    Attributes:
        joints: all joints, in order; each coordinate is one joint if joints are coupled.
        curved: the joints whose positions are no vector.
        columns: the indices of all other joints in v.
        entries: the indices of all other joints in q.
    """

    joints: tuple[Joint, ...]
    curved: tuple[CurvedJoint, ...]
    columns: Int[np.ndarray, " columns"]
    entries: Int[np.ndarray, " columns"]

    def entries_at(self, columns: Int[np.ndarray, " _"]) -> Int[np.ndarray, " _"]:
        """The indices in q of joints that are not curved, from those in v."""
        return self.entries[np.searchsorted(self.columns, columns)]


def layout(chain: Chain) -> Layout:
    """Layout of the chain's q and v."""
    return _layout(chain.topology, chain.nv, chain.coupling is not None)


@functools.lru_cache(maxsize=256)
def _layout(topology: Topology, nv: int, coupled: bool) -> Layout:
    # even with a coupling, the columns of a curved joint are those of its links
    kinds = {i: JOINT_TYPES[kind] for i, kind in topology.compound_joints}
    if coupled:
        kinds = {i: kind for i, kind in kinds.items() if kind.curved}
    unnamed = tuple(f"q{i + 1}" for i in range(nv))
    names = (topology.coordinate_names or unnamed) if coupled else topology.joint_names
    joints, column, start = [], 0, 0
    while column < nv:
        kind = kinds.get(column, Joint)
        name = names[column] if kind is Joint else topology.joint_names[column].removesuffix(kind.parts[0])
        joint = kind(name, column, column, start)
        joints.append(joint)
        column, start = joint.columns.stop, joint.entries.stop
    flat = [(j.column + k, j.start + k) for j in joints if not j.curved for k in range(j.size)]
    columns, entries = np.array(flat, int).reshape(-1, 2).T
    return Layout(tuple(joints), tuple(joint for joint in joints if isinstance(joint, CurvedJoint)), columns, entries)


def is_ordinary(chain: Chain) -> bool:
    """True if there are neither curved joints nor a coupling, so that q and v are the joint positions and rates."""
    return chain.coupling is None and not chain.topology.has_curved_joints


def turning_joints(chain: Chain) -> Bool[np.ndarray, " n"]:
    """Mask of revolute and helical joints, whose positions are angles [rad]."""
    return np.any(np.asarray(chain.screw)[:, :3] != 0, axis=1)


def ancestor_mask(parents: tuple[int, ...]) -> np.ndarray:
    """Boolean matrix in which entry (i, j) is True if link i is link j itself or an ancestor of link j."""
    mask = np.eye(len(parents), dtype=bool)
    for j, p in enumerate(parents):
        if p >= 0:
            mask[:, j] |= mask[:, p]
    return mask


def with_bodies(topology: Topology) -> Bool[np.ndarray, " n"]:
    """Mask of links that are bodies: all except the massless links before the last link of a curved joint."""
    found = np.ones(len(topology.parents), bool)
    for links, kind in topology.compound_links():
        if kind.curved:
            found[links.start : links.stop - 1] = False
    return found


def driven_joints(topology: Topology) -> Bool[np.ndarray, " n"]:
    """Mask of joints that can have a drive and friction: all except free joints."""
    found = np.ones(len(topology.parents), bool)
    for links, kind in topology.compound_links():
        found[links] = kind.driven
    return found


def leading_joints(chain: Chain) -> Int[np.ndarray, " nv"]:
    """For each coordinate, the index of the joint that it moves most; the first one if several joints move equally."""
    if chain.coupling is None:
        return np.arange(chain.n)
    return np.abs(np.asarray(chain.coupling.matrix, float)).argmax(axis=0)


def torque_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the torque of each joint (coordinate): N m, or N for prismatic joints."""
    return tuple("N m" if turns else "N" for turns in turning_joints(chain)[leading_joints(chain)])


def position_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the position of each joint (coordinate): rad, or m for prismatic joints."""
    return tuple("rad" if turns else "m" for turns in turning_joints(chain)[leading_joints(chain)])


def coordinate_names(chain: Chain) -> tuple[str, ...]:
    """Names of the `nv` generalised coordinates: joint names, or the coordinate names of a coupling."""
    return chain.topology.coordinate_names or chain.joint_names[: chain.nv]


def coordinate_limits(chain: Chain) -> dict[str, Float[np.ndarray, " nv"]]:
    """Limits of a chain's coordinates; a coordinate that moves several joints satisfies the limits of all of them.

    The torque limit of a coordinate is derived from that of the joint that it moves most. Position and velocity limits of a
    joint that depends on several coordinates are ignored; include them in the `clearance` of
    `jaxdyn.identification.optimal_excitation`.
    """
    lower, upper = np.asarray(chain.limits.position, float).T
    velocity, effort = np.asarray(chain.limits.velocity, float), np.asarray(chain.limits.effort, float)
    if chain.coupling is not None:
        matrix, offset = np.asarray(chain.coupling.matrix, float), np.asarray(chain.coupling.offset, float)
        s = np.where(((matrix != 0).sum(axis=1) == 1)[:, None], matrix, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.sort(np.stack([(x - offset)[:, None] / s for x in (lower, upper)]), axis=0)
            fastest = velocity[:, None] / np.abs(s)
        lower = ends[0].max(axis=0, where=s != 0, initial=-np.inf)
        upper, velocity = (x.min(axis=0, where=s != 0, initial=np.inf) for x in (ends[1], fastest))
        leading = leading_joints(chain)
        effort = effort[leading] * np.abs(matrix[leading, np.arange(chain.nv)])
    return {"lower": lower, "upper": upper, "velocity": velocity, "torque": effort}


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by dotted name ("friction.viscous"), in tree order; parts that are None are omitted."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def with_leaves(chain: Chain, leaves: Mapping[str, Any]) -> Chain:
    """Replace leaves, specified by dotted name ("friction.viscous"), without checking the new values."""
    return eqx.tree_at(lambda c: [attrgetter(name)(c) for name in leaves], chain, list(leaves.values()))


def inertial_parameters(chain: Chain) -> Float[Array, "n 10"]:
    """The ten inertial parameters of every link, the vector pi in tau = Y(q, qd, qdd) pi; those of `Chain.inertia`."""
    return chain.inertia


def with_inertial_parameters(chain: Chain, pi: Float[Array, "n 10"] | Float[Array, " m"]) -> Chain:
    """Replace the inertial parameters of a chain by pi, (n, 10) or flattened to (10 n,), in the order of `Chain.inertia`.

    Raises:
        ModelError: the number of parameters is not 10 per link.
    """
    pi = jnp.asarray(pi)
    if pi.size != 10 * chain.n:
        need = f"a chain of {chain.n} links requires ({chain.n}, 10)"
        raise ModelError(f"inertial parameters have shape {pi.shape}, but {need}")
    return eqx.tree_at(lambda c: c.inertia, chain, pi.reshape(chain.n, 10))


def frame_index(chain: Chain, name: str | None) -> tuple[int, int | None]:
    """The link that carries a frame or the tip (-1: the base), and the index in `frame_poses` (None: the link frame)."""
    topology = chain.topology
    name = topology.tip_name if name is None else name
    known = ", ".join((*topology.link_names, *topology.frame_names))
    if name is None:
        raise ModelError(f"the tree has several ends; specify a link or frame: {known}")
    if name in topology.link_names:
        return topology.link_names.index(name), None
    if name in topology.frame_names:
        k = topology.frame_names.index(name)
        return topology.frame_links[k], k
    if name == topology.base_name:
        return -1, None
    remedy = f"the links and frames are {known}, and the base is {topology.base_name}"
    raise ModelError(f"unknown link or frame {name!r}", remedy)
