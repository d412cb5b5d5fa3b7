"""Columns of the regressor, and their parameters."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ParamSpec

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics import drive_regressor, motor_regressor, regressor, spring_regressor
from ..dynamics.regressors import (
    DRIVE_LEAVES,
    MOTOR_LEAVES,
    DriveTerm,
    MotorTerm,
)
from ..errors import IdentificationError
from ..model.chain import Chain, Topology, driven_joints, turning_joints, with_bodies, with_leaves
from .friction_model import FrictionModel
from .friction_terms import FRICTION

INERTIAL_NAMES = ("m", "mx", "my", "mz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
DRIVE_NAMES = {"armature": "Ia", "viscous": "fv", "coulomb": "fc", "offset": "off"}
DRIVE_TERMS: tuple[DriveTerm, ...] = ("armature", "viscous", "coulomb", "offset")

P = ParamSpec("P")

# Order in which a link's columns are tested for independence: inertia, first moments, mass.
_ELIMINATION = (4, 5, 7, 6, 8, 9, 1, 2, 3, 0)


@dataclasses.dataclass(frozen=True)
class ExtraColumns:
    """Additional columns of the regressor, for torques that are linear in further parameters.

    Attributes:
        names: parameter names, one per column.
        units: parameter units, one per column, for the report.
        matrix: JAX-traceable function (chain, q, qd, qdd) -> (nv, len(names)) array of the torques per unit of each
            parameter [N m or N].
        leaf: leaf of the chain that contains the parameters, such as "springs.stiffness"; None if no leaf does.
        joints: number of each column's joint or motor, counted from 1, which selects the entry of the leaf.
        recipe: name and arguments of the library function that created the columns, stored in model files so that
            loading can create them again. None for user-defined columns, which cannot be saved.
        positive: True if the parameters must be non-negative.

    Raises:
        IdentificationError: `leaf` is set, but the number of `joints` differs from the number of columns.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    matrix: Callable[[Chain, Array, Array, Array], Array]
    leaf: str | None = None
    joints: tuple[int, ...] = ()
    recipe: tuple[str, tuple[Any, ...]] | None = None
    positive: bool = False

    def __post_init__(self) -> None:
        if self.leaf is not None and len(self.joints) != len(self.names):
            raise IdentificationError(
                f"the extra columns {', '.join(self.names)} belong to the leaf {self.leaf!r}, but {len(self.joints)} joints "
                "are named; name one per column"
            )


@dataclasses.dataclass(frozen=True)
class Columns:
    """Columns of an identification: those of links, of drive terms, extra columns, and those of a friction model.

    A link has ten inertial columns, and a drive term has one column per joint. These and the extra columns W are functions
    of the state (q, qd, qdd). The columns F of a friction model may also depend on the motion before, on loads and on
    temperatures, and are computed along runs (`FrictionModel.signals`). The torques are tau = [W, F] @ parameters.

    Attributes:
        drive_terms: the drive terms to identify, any of armature, viscous, coulomb and offset.
        extra: additional columns.
        friction: friction model, which replaces the drive terms viscous, coulomb and offset; its columns are placed last.

    Raises:
        IdentificationError: a drive term is unknown.
    """

    drive_terms: tuple[DriveTerm, ...] = DRIVE_TERMS
    extra: tuple[ExtraColumns, ...] = ()
    friction: FrictionModel | None = None

    def __post_init__(self) -> None:
        if self.friction is not None:
            object.__setattr__(self, "drive_terms", tuple(t for t in self.drive_terms if t not in FRICTION))
        unknown = [t for t in self.drive_terms if t not in DRIVE_TERMS]
        if unknown:
            raise IdentificationError(f"unknown drive term {unknown[0]!r}; the terms are {', '.join(DRIVE_TERMS)}")

    @property
    def of_state(self) -> "Columns":
        """The columns that are functions of the state, without those of the friction model."""
        return self if self.friction is None else dataclasses.replace(self, friction=None)

    @property
    def with_drives(self) -> "Columns":
        """The columns with the drive terms that the friction model replaces in its place."""
        if self.friction is None:
            return self
        return Columns((*self.drive_terms, *FRICTION), self.extra)

    def friction_names(self, n: int) -> tuple[str, ...]:
        """Names of the parameters of the friction model, which are the last ones."""
        return () if self.friction is None else self.friction.names(n)

    def check_signals(self, n: int, count: int) -> None:
        """Raise an error if there is a friction model, but its columns are missing from the signals of a run."""
        if self.friction is not None and count != len(self.friction_names(n)):
            raise IdentificationError(
                f"the columns contain a friction model with {len(self.friction_names(n))} parameters, but there are {count} "
                "signals: pass its columns along the run as signals (FrictionFit.signals), or use columns.of_state"
            )

    def matrix(
        self, chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], qdd: Float[Array, " nv"]
    ) -> Float[Array, "nv p"]:
        """Columns W(q, qd, qdd) [N m or N per unit]; columns of links without a body are zero.

        Raises:
            IdentificationError: there is a friction model; `of_state` has the other columns.
        """
        if self.friction is not None:
            raise IdentificationError(
                "the columns of a friction model depend on more than the state: use columns.of_state.matrix(...), and "
                "FrictionModel.signals for the others"
            )
        links = only(of_bodies(chain.topology), regressor(chain, q, qd, qdd))
        return jnp.concatenate([links, self.beyond_links(chain, q, qd, qdd)], axis=1)

    def beyond_links(
        self, chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], qdd: Float[Array, " nv"]
    ) -> Float[Array, "nv m"]:
        """Columns of the drive terms (zero for a floating base, which has no drives), followed by the extra columns."""
        drives = drive_regressor(chain, qd, qdd, self.drive_terms)
        parts = [only(np.repeat(driven_joints(chain.topology), len(self.drive_terms)), drives)]
        for extra in self.extra:
            block = extra.matrix(chain, q, qd, qdd)
            if block.shape != (chain.nv, len(extra.names)):
                raise IdentificationError(
                    f"the extra columns {', '.join(extra.names)} have shape {block.shape}; it must be "
                    f"{(chain.nv, len(extra.names))}"
                )
            parts.append(block)
        return jnp.concatenate(parts, axis=1)

    def absent(self, chain: Chain) -> np.ndarray:
        """Mask (p,) of the columns that are always zero: those of links without a body and of the drives of floating bases."""
        drives = np.repeat(driven_joints(chain.topology), len(self.drive_terms))
        others = np.ones(sum(len(e.names) for e in self.extra) + len(self.friction_names(chain.n)), bool)
        return ~np.concatenate([of_bodies(chain.topology), drives, others])

    def of_joint(self, chain: Chain, joint: int) -> np.ndarray:
        """Mask (p,) of the columns of a joint's drive: drive terms, spring, friction, and motors of only this joint."""
        drives = np.repeat(np.arange(chain.n) == joint, len(self.drive_terms))
        motors = None if chain.transmission is None else np.asarray(chain.transmission.matrix) != 0
        extra = [np.zeros(0, bool)]
        for e in self.extra:
            at = np.array(e.joints, int) - 1
            if e.leaf == "springs.stiffness":
                extra.append(at == joint)
            elif e.leaf is not None and e.leaf.startswith("transmission.") and motors is not None:
                extra.append(motors[at, joint] & (motors[at].sum(axis=1) == 1))
            else:
                extra.append(np.zeros(len(e.names), bool))
        friction = np.zeros(0, bool) if self.friction is None else self.friction.joints(chain.n) == joint
        return np.concatenate([np.zeros(10 * chain.n, bool), drives, *extra, friction])

    def of_friction(self, n: int) -> np.ndarray:
        """Mask (p,) of the friction columns: of the friction model, the drive terms but armature, and of motors."""
        drives = np.tile(np.array([t != "armature" for t in self.drive_terms], bool), n)
        extra = [np.full(len(e.names), (e.leaf or "").startswith("transmission.friction.")) for e in self.extra]
        return np.concatenate([np.zeros(10 * n, bool), drives, *extra, np.ones(len(self.friction_names(n)), bool)])

    def dry(self, n: int) -> tuple["Columns", np.ndarray]:
        """The columns of dry friction among those of the state, and their indices among all columns of n joints.

        Dry friction is the Coulomb friction of joints and motors. Extra columns without a leaf in the chain may contain
        sign functions and are included.
        """
        is_dry = [e.leaf in (None, MOTOR_LEAVES["coulomb"]) for e in self.extra]
        sizes = [len(e.names) for e in self.extra]
        mask = np.concatenate(
            [
                np.zeros(10 * n, bool),
                np.tile(np.array([t == "coulomb" for t in self.drive_terms], bool), n),
                np.repeat(np.array(is_dry, bool), sizes),
            ]
        )
        signs: tuple[DriveTerm, ...] = tuple(t for t in self.drive_terms if t == "coulomb")
        dry = Columns(signs, tuple(e for e, dry in zip(self.extra, is_dry, strict=True) if dry))
        return dry, np.flatnonzero(mask)

    def names(self, n: int) -> tuple[str, ...]:
        """Parameter names in column order: m1, mx1, ..., Izz1, m2, ..., Ia1, fv1, fc1, off1, ..."""
        inertial = [f"{name}{i + 1}" for i in range(n) for name in INERTIAL_NAMES]
        drive = [f"{DRIVE_NAMES[t]}{i + 1}" for i in range(n) for t in self.drive_terms]
        return (*inertial, *drive, *(name for e in self.extra for name in e.names), *self.friction_names(n))

    def units(self, chain: Chain) -> tuple[str, ...]:
        """Parameter units in column order."""
        inertial = ["kg", *["kg m"] * 3, *["kg m^2"] * 6] * chain.n
        drive = []
        for w in np.asarray(chain.screw)[:, :3]:
            turns = bool((w != 0).any())
            rotary = {"armature": "kg m^2", "viscous": "N m s/rad", "coulomb": "N m", "offset": "N m"}
            linear = {"armature": "kg", "viscous": "N s/m", "coulomb": "N", "offset": "N"}
            drive += [(rotary if turns else linear)[t] for t in self.drive_terms]
        friction = () if self.friction is None else self.friction.units(turning_joints(chain).tolist())
        return (*inertial, *drive, *(u for e in self.extra for u in e.units), *friction)

    def elimination_order(self, n: int) -> tuple[int, ...]:
        """Order in which columns are tested for independence: friction first, then link by link, as in the literature.

        A column that depends linearly on those of friction is dropped: the gravity of a vertical prismatic joint is a torque
        offset.
        """
        k, total = len(self.drive_terms), len(self.names(n))
        order = list(range(total - len(self.friction_names(n)), total))
        for i in range(n):
            order += [10 * i + j for j in _ELIMINATION]
            order += [10 * n + k * i + j for j in range(k)]
        return (*order, *range(10 * n + k * n, total - len(self.friction_names(n))))


def of_bodies(topology: Topology) -> np.ndarray:
    """Mask (10 n,) of the inertial columns of links with a body."""
    return np.repeat(with_bodies(topology), 10)


def only(mask: np.ndarray, x: Array) -> Array:
    """The array x, with columns outside the mask set to zero."""
    return x if mask.all() else jnp.where(mask, x, jnp.zeros_like(x))


def prior_parameters(chain: Chain, columns: Columns) -> np.ndarray:
    """Parameters (p,) of a chain in column order, in SI units; zero for columns without a leaf in the chain.

    Args:
        chain: the robot.
        columns: columns that determine the parameters and their order.
    """
    drive = [np.asarray(attrgetter(DRIVE_LEAVES[t])(chain), float) for t in columns.drive_terms]
    drive = np.stack(drive, axis=1).reshape(-1) if drive else np.zeros(0)
    extra = [
        np.zeros(len(e.names)) if e.leaf is None else np.asarray(attrgetter(e.leaf)(chain), float)[leaf_entries(e)]
        for e in columns.extra
    ]
    friction = np.zeros(len(columns.friction_names(chain.n)))
    return np.concatenate([np.asarray(chain.inertia, float).reshape(-1), drive, *extra, friction])


def leaf_entries(extra: ExtraColumns) -> np.ndarray:
    """Indices of the parameters of extra columns within the chain's array of these parameters."""
    return np.array(extra.joints, int) - 1


RECIPES: dict[str, Callable[..., ExtraColumns]] = {}


def _with_recipe(make: Callable[P, ExtraColumns]) -> Callable[P, ExtraColumns]:
    """Decorate a function that creates columns, so that model files can store its name and arguments as a recipe."""

    @functools.lru_cache  # equal columns are the same object, so compiled programs are reused
    def made(*arguments: Any) -> ExtraColumns:
        return dataclasses.replace(make(*arguments), recipe=(make.__name__, arguments))  # type: ignore[call-arg]

    @functools.wraps(make)
    def wrapped(*given: P.args, **named: P.kwargs) -> ExtraColumns:
        bound = inspect.signature(make).bind(*given, **named)
        bound.apply_defaults()
        return made(*bound.args)

    RECIPES[make.__name__] = wrapped
    return wrapped


@_with_recipe
def coupled_drive(first: int, second: int, velocity: float | None = None) -> ExtraColumns:
    """Create columns for two coupled axes: moving axis `first` also turns the motor of axis `second`.

    Many wrists have such a coupling. Let a and b be the joints `first` and `second`. The motor turns with the sum of
    both joint velocities, so its inertia and friction add three parameters:

    - Iam [kg m^2] couples the accelerations: tau_a += Iam qdd_b, tau_b += Iam qdd_a.
    - fvm [N m s/rad] couples the velocities: tau_a += fvm qd_b, tau_b += fvm qd_a.
    - fsm [N m] is the motor's Coulomb friction: fsm tanh((qd_a + qd_b) / velocity) is added to both torques.

    The effects of each joint's own velocity and acceleration are already included in the drive parameters fv and Ia.

    Args:
        first: number of joint a, counted from 1.
        second: number of joint b.
        velocity: `velocity` in the tanh of the Coulomb friction [rad/s]; by default the chain's value for joint b.

    Raises:
        IdentificationError: the two joints are equal, or the chain does not have one of them. The error is raised when
            the columns are evaluated.
    """
    a, b = first - 1, second - 1

    def matrix(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
        if not (0 <= a < chain.n and 0 <= b < chain.n and a != b):
            raise IdentificationError(
                f"axes {first} and {second} cannot be coupled; name two different joints from 1 to {chain.n}"
            )
        sign = jnp.tanh((qd[a] + qd[b]) / (chain.friction.coulomb_velocity[b] if velocity is None else velocity))
        zero = jnp.zeros_like(sign)
        rows = [[zero, zero, zero] for _ in range(chain.n)]
        rows[a] = [qdd[b], qd[b], sign]
        rows[b] = [qdd[a], qd[a], sign]
        return jnp.stack([jnp.stack(r) for r in rows])

    return ExtraColumns((f"Iam{second}", f"fvm{second}", f"fsm{second}"), ("kg m^2", "N m s/rad", "N m"), matrix)


def joint_springs(chain: Chain, joints: Sequence[int] | None = None) -> ExtraColumns:
    """Create columns for joint springs: k (q - q0) is the torque of a spring with the rest position q0 given in the chain.

    The stiffnesses k [N m/rad or N/m] are the chain's `springs.stiffness`. Springs represent all torques that are
    linear in the position, including those of cables and balancers. Stiffnesses can be negative, for example for
    counterbalances and for cables that push. The drive term offset accounts for an unknown rest position.

    Args:
        chain: the robot.
        joints: numbers of the joints with a spring, counted from 1; by default all joints.

    Raises:
        IdentificationError: a joint does not exist or is repeated.
    """
    joints = tuple(range(1, chain.n + 1)) if joints is None else tuple(int(j) for j in joints)
    if any(not 1 <= j <= chain.n for j in joints) or len(set(joints)) < len(joints):
        raise IdentificationError(f"springs cannot be at joints {joints}; name different joints from 1 to {chain.n}")
    return _springs(joints, tuple(bool((w != 0).any()) for w in np.asarray(chain.screw)[[j - 1 for j in joints], :3]))


@_with_recipe
def _springs(joints: tuple[int, ...], turns: tuple[bool, ...]) -> ExtraColumns:
    where = [j - 1 for j in joints]

    def matrix(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
        return spring_regressor(chain, q)[:, jnp.array(where, int)]

    units = tuple("N m/rad" if turn else "N/m" for turn in turns)
    return ExtraColumns(tuple(f"k{j}" for j in joints), units, matrix, "springs.stiffness", joints)


def motor_terms(
    chain: Chain, terms: Sequence[MotorTerm] = ("inertia", "viscous", "coulomb")
) -> tuple[ExtraColumns, ...]:
    """Create columns for the rotor inertias and the friction of the motors of a transmission.

    Each motor has a rotor inertia J [kg m^2], viscous friction B [N m s/rad] and Coulomb friction Fc [N m], which are
    leaves of the chain's transmission. If a motor drives a single joint, its columns are multiples of the joint's own
    Ia, fv and fc columns, and base parameters contain the sums of both. The parameters of a motor that drives several
    joints are separate. It is therefore sufficient to specify the transmission of a wrist with coupled drives. Without
    a transmission, the result is empty.

    If a friction model is fitted, the friction of a motor that drives a single joint is assigned to that joint.

    Args:
        chain: the robot.
        terms: terms to identify for every motor.
    """
    if chain.transmission is None:
        return ()
    count = chain.transmission.rotor_inertia.shape[-1]
    return tuple(_motors(count, term) for term in terms)


@_with_recipe
def _motors(count: int, term: MotorTerm) -> ExtraColumns:
    def matrix(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
        return motor_regressor(chain, qd, qdd, (term,))

    name = {"inertia": "J", "viscous": "B", "coulomb": "Fc"}[term]
    unit = {"inertia": "kg m^2", "viscous": "N m s/rad", "coulomb": "N m"}[term]
    motors = tuple(range(1, count + 1))
    made = ExtraColumns(tuple(f"{name}{k}" for k in motors), (unit,) * count, matrix, MOTOR_LEAVES[term], motors)
    return dataclasses.replace(made, positive=True)


@functools.lru_cache  # equal columns are the same object, so compiled programs are reused
def subset(extra: ExtraColumns, kept: tuple[int, ...]) -> ExtraColumns:
    """The extra columns with the given indices. They have no recipe, so their parameters can be saved only in a leaf."""

    def matrix(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
        return extra.matrix(chain, q, qd, qdd)[:, jnp.array(kept, int)]

    names, units, joints = (tuple(x[k] for k in kept) for x in (extra.names, extra.units, extra.joints))
    return dataclasses.replace(extra, names=names, units=units, joints=joints, matrix=matrix, recipe=None)


def with_friction_at_joints(chain: Chain, columns: Columns) -> tuple[Chain, Columns]:
    """Assign the friction of motors that move a single joint to that joint, in the chain and in the columns.

    The friction columns of a motor that moves a single joint are multiples of the joint's friction columns. With the
    gear ratio r, the joint's viscous friction becomes fv + r^2 B and its Coulomb friction fc + |r| Fc. If fc is zero,
    the width of the joint's smooth sign function tanh(qd / width) becomes the motor's width divided by |r|. A friction term is
    moved only if it is identified for both the motor and the joint.
    """
    extra = []
    for e in columns.extra:
        leaf = e.leaf or ""
        term = leaf.removeprefix("transmission.friction.")
        if chain.transmission is None or leaf == term or term not in columns.drive_terms:
            extra.append(e)
            continue
        at, ratios = leaf_entries(e), np.abs(np.asarray(chain.transmission.matrix, float))
        alone = (ratios[at] > 0).sum(axis=1) == 1
        motors = at[alone]
        held, own = (np.array(attrgetter(x)(chain), float) for x in (leaf, f"friction.{term}"))
        moved = (ratios[motors] ** (2 if term == "viscous" else 1)).T @ held[motors]
        if term == "coulomb":
            width = np.array(chain.friction.coulomb_velocity, float)
            for k, j in zip(motors, ratios[motors].argmax(axis=1), strict=True):
                if own[j] == 0:
                    width[j] = float(chain.transmission.friction.coulomb_velocity[k]) / ratios[k, j]
            chain = with_leaves(chain, {"friction.coulomb_velocity": jnp.asarray(width, chain.dtype)})
        held[motors] = 0.0
        chain = with_leaves(
            chain, {leaf: jnp.asarray(held, chain.dtype), f"friction.{term}": jnp.asarray(own + moved, chain.dtype)}
        )
        if not alone.all():
            extra.append(subset(e, tuple(np.flatnonzero(~alone).tolist())))
    return chain, dataclasses.replace(columns, extra=tuple(extra))


def all_columns(chain: Chain, drive_terms: tuple[DriveTerm, ...] = DRIVE_TERMS) -> Columns:
    """The default columns of a chain: drive terms, motors of the transmission, and springs."""
    sprung = tuple((np.flatnonzero(np.asarray(chain.springs.stiffness)) + 1).tolist())
    extra = motor_terms(chain)
    return Columns(drive_terms, (*extra, joint_springs(chain, sprung)) if sprung else extra)
