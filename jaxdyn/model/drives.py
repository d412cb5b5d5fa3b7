"""Drives of a robot: gears and rotors (`with_transmission`), coupled coordinates (`with_coupling`), and elastic joints, whose
motor and link angles are connected by a spring (Spong's model).
"""

import dataclasses
import functools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import Tracer
from ..errors import ModelError
from ..spatial.components import Values
from .build import check_coordinates
from .chain import (
    COULOMB_VELOCITY,
    STRIBECK_VELOCITY,
    Chain,
    Coupling,
    Friction,
    JointLimits,
    Springs,
    Topology,
    Transmission,
    layout,
)


def with_transmission(
    chain: Chain,
    *,
    gear_ratio: Values | None = None,
    matrix: Values | None = None,
    rotor_inertia: Values = 0.0,
    viscous_friction: Values = 0.0,
    coulomb_friction: Values = 0.0,
    coulomb_velocity: Values | None = None,
) -> Chain:
    """Add motors geared to a robot's joints: motor rates = R qd, joint torques = R^T motor torques (see `Transmission`).

    An existing transmission is replaced; armature and joint friction are unchanged. Motor parameters are one value or
    one per motor. If values are traced by JAX, only shapes are checked.

    Args:
        gear_ratio: motor revolutions per joint revolution ([rad/m] for prismatic joints), one value or one per joint;
            negative if motor and joint rotate in opposite directions. Every joint that is not part of a spherical or
            free joint has one motor.
        matrix: R, (motors, n), instead of `gear_ratio`. It has one column per joint, even if coordinates are coupled.
        rotor_inertia: inertia J_m of each rotor about its axis [kg m^2].
        viscous_friction: viscous coefficient at each motor, in terms of motor speed [N m s/rad].
        coulomb_friction: Coulomb friction at each motor [N m].
        coulomb_velocity: motor speed v_c in the smoothed sign tanh(speed / v_c) [rad/s]; by default 0.02 times the
            largest absolute ratio in the motor's row.

    Raises:
        ModelError: both or neither of gear_ratio and matrix are passed; a shape is wrong; a value is NaN; a motor
            drives no joint, or a spherical or free joint; an inertia or friction is negative, or a `coulomb_velocity`
            is not positive.
    """
    n, dtype = chain.n, chain.dtype
    if (gear_ratio is None) == (matrix is None):
        raise ModelError(
            "pass either gear_ratio, for motors of one joint each, or matrix, for motors that share joints"
        )
    held = [i for joint in layout(chain).curved for i in range(chain.n)[joint.links]]
    if gear_ratio is not None:
        own = np.delete(np.arange(n), held)
        ratio = check_values("gear_ratio", gear_ratio, len(own), "joint", dtype)
        ratios = jnp.zeros((len(own), n), dtype).at[np.arange(len(own)), own].set(ratio)
    else:
        ratios = jnp.asarray(matrix, dtype)
        if ratios.ndim != 2 or ratios.shape[1] != n or ratios.shape[0] == 0:
            raise ModelError(f"matrix has shape {ratios.shape}, but {n} joints require (motors, {n})")
    if not _traced(ratios):
        values = np.asarray(ratios)
        if not np.all(np.isfinite(values)):
            raise ModelError("the gear ratios of the transmission contain NaN or infinity")
        if np.any(values[:, held]):
            j = held[int(np.argmax(np.any(values[:, held], axis=0)))]
            raise ModelError(f"a motor cannot drive {chain.joint_names[j]!r}, part of a spherical or free joint")
        if len(still := np.flatnonzero(~values.any(axis=1))):
            raise ModelError(f"motor {still[0] + 1} does not drive any joint: its row of gear ratios is zero")
    m, tiny = ratios.shape[0], float(np.finfo(dtype).tiny)
    width = COULOMB_VELOCITY * jnp.abs(ratios).max(axis=1) if coulomb_velocity is None else coulomb_velocity
    each = {
        "viscous_friction": (viscous_friction, 0.0),
        "coulomb_friction": (coulomb_friction, 0.0),
        "coulomb_velocity": (width, tiny),
    }
    values = [check_values(name, x, m, "motor", dtype, least) for name, (x, least) in each.items()]
    none = jnp.zeros(m, dtype)
    friction = Friction(*values, stribeck=none, stribeck_velocity=none + STRIBECK_VELOCITY, offset=none)
    inertia = check_values("rotor_inertia", rotor_inertia, m, "motor", dtype, least=0.0)
    return dataclasses.replace(chain, transmission=Transmission(ratios, inertia, friction))


def with_coupling(chain: Chain, matrix: Values, offset: Values = 0.0, names: Sequence[str] | None = None) -> Chain:
    """Describe a robot in new coordinates y: current coordinates = matrix @ y + offset.

    The current coordinates are the joint positions or, if the robot has a coupling, its coordinates: couplings compose.
    Generalised forces are multiplied by matrix^T, and the mass matrix M becomes matrix^T M matrix.

    Args:
        matrix: (nv, coordinates), of full column rank.
        offset: current coordinates at y = 0 [rad or m].
        names: names of the new coordinates.

    Raises:
        ModelError: a shape is wrong; a value is NaN; coordinates have no effect or are linearly dependent; names are
            missing or repeated; the matrix changes a spherical or free joint (whose columns must come first,
            unchanged).
    """
    dtype, present = chain.dtype, chain.nv
    s = jnp.asarray(matrix, dtype)
    if s.ndim != 2 or s.shape[0] != present or s.shape[1] == 0:
        raise ModelError(f"a coupling of {present} coordinates requires a matrix ({present}, new), not {s.shape}")
    o = check_values("offset", offset, present, "coordinate", dtype)
    if not _traced(s):
        if not np.all(np.isfinite(np.asarray(s))):
            raise ModelError("the matrix of the coupling contains NaN or infinity")
        if (rank := np.linalg.matrix_rank(np.asarray(s, float))) < s.shape[1]:
            fault = f"the matrix of the coupling has {s.shape[1]} columns, but only rank {rank}: M is singular"
            raise ModelError(fault, "remove coordinates that move nothing or depend on others")
    if names is not None and len(set(names)) != len(names):
        raise ModelError(f"a coordinate name is used twice among {', '.join(names)}")
    if chain.coupling is not None:
        s, o = chain.coupling.matrix @ s, chain.coupling.matrix @ o + chain.coupling.offset
    topology = dataclasses.replace(chain.topology, coordinate_names=None if names is None else tuple(names))
    coupled = dataclasses.replace(chain, coupling=Coupling(s, o), topology=topology)
    if not _traced(*jax.tree.leaves(coupled)):
        check_coordinates(coupled)
        for joint in layout(chain).curved:
            if np.any(np.asarray(o)[joint.columns] != 0):
                name = chain.joint_names[joint.link]
                raise ModelError(f"the offset must not move {name!r}, a spherical or free joint")
    return coupled


def _traced(*arrays: Array) -> bool:
    return any(isinstance(x, Tracer) for x in arrays)


def check_values(
    name: str, x: Values, size: int, each: str, dtype: jnp.dtype, least: float | None = None
) -> Float[Array, " size"]:
    """Broadcast a scalar, or one value per joint, motor or coordinate, to (size,); check the values unless traced by JAX."""
    y = jnp.asarray(x, dtype)
    if y.shape not in ((), (size,)):
        raise ModelError(f"{name} has shape {y.shape}; pass one value, or one for each {each}, ({size},)")
    if not _traced(y):
        values = np.asarray(y)
        if not np.all(np.isfinite(values)):
            raise ModelError(f"{name} contains NaN or infinity")
        if least is not None and np.any(values < least):
            what = "negative" if least == 0 else "not positive"
            raise ModelError(f"{name} is {what} ({values.min():g}), which is impossible for a drive")
    return jnp.broadcast_to(y, (size,))


class ElasticJoints(eqx.Module):
    """A spring and a rotor at each coordinate of a chain, except for spherical and free joints, which are rigid.

    Let q be the joint angle and theta = rotor angle / gear_ratio the rotor angle referred to the joint. The motor
    torque tau_m acts on the rotor shaft, and the joint is driven by a spring and a damper:

        torque on the joint = K (theta + rest - q) + D (thetad - qd),
        J thetadd = gear_ratio tau_m - B thetad - torque on the joint

    with J = gear_ratio^2 rotor_inertia and B = gear_ratio^2 rotor_friction. Only the spin of rotors about their axes is
    modelled (Spong 1987; example 6.2 of Spong, Hutchinson & Vidyasagar 2020), so the mass matrix is block-diagonal:
    M(q) for the links and diag(J) for the rotors. Create an instance with `elastic_joints`.

    Attributes:
        stiffness: K [N m/rad].
        damping: D [N m s/rad].
        rest: q - theta at zero spring torque [rad].
        gear_ratio: rotor revolutions per joint revolution.
        rotor_inertia: inertia of the rotor about its axis [kg m^2].
        rotor_friction: viscous friction coefficient with respect to rotor speed [N m s/rad].
    """

    stiffness: Float[Array, " m"]
    damping: Float[Array, " m"]
    rest: Float[Array, " m"]
    gear_ratio: Float[Array, " m"]
    rotor_inertia: Float[Array, " m"]
    rotor_friction: Float[Array, " m"]

    @property
    def reflected_inertia(self) -> Float[Array, " m"]:
        """Rotor inertia reflected to the joint, J = gear_ratio^2 rotor_inertia [kg m^2]."""
        return self.gear_ratio**2 * self.rotor_inertia

    @property
    def reflected_friction(self) -> Float[Array, " m"]:
        """Rotor friction reflected to the joint, B = gear_ratio^2 rotor_friction [N m s/rad]."""
        return self.gear_ratio**2 * self.rotor_friction


def elastic_joints(
    chain: Chain,
    *,
    stiffness: Values,
    rotor_inertia: Values,
    damping: Values = 0.0,
    rest: Values = 0.0,
    gear_ratio: Values = 1.0,
    rotor_friction: Values = 0.0,
) -> ElasticJoints:
    """Create `ElasticJoints` for a chain, from one value for all joints or one per joint, and check the values.

    The chain's armature must not include the rotor inertias.

    Raises:
        ModelError: the chain has a transmission, whose rotors are rigidly coupled to the joints; a shape is wrong or a
            value is NaN; a stiffness, inertia or gear ratio is not positive; damping or friction is negative.
    """
    if chain.transmission is not None:
        fault = "the chain has a transmission, whose rotors are rigidly coupled to the joints"
        raise ModelError(fault, "remove the transmission, since elastic joints have rotors of their own")
    m, dtype = len(layout(chain).columns), chain.dtype
    tiny = float(np.finfo(dtype).tiny)
    given = {
        "stiffness": (stiffness, tiny),
        "damping": (damping, 0.0),
        "rest": (rest, None),
        "gear_ratio": (gear_ratio, tiny),
        "rotor_inertia": (rotor_inertia, tiny),
        "rotor_friction": (rotor_friction, 0.0),
    }
    return ElasticJoints(*(check_values(key, x, m, "elastic joint", dtype, least) for key, (x, least) in given.items()))


def elastic_chain(chain: Chain, elastic: ElasticJoints) -> Chain:
    """Combine a chain and its elastic joints into one chain, with the link and rotor angles (q, theta) as coordinates [rad].

    Each spring is a joint with position q - theta that carries a massless link. A `Coupling` maps (q, theta) to the
    joint positions, and a `Transmission` represents the rotors, at the motor rates gear_ratio thetad. The mass matrix
    has the diagonal blocks M(q) and diag(J).

    The generalised forces are those on the link coordinates, followed by gear_ratio times the motor torques (see
    `joint_torques_from_motors`). `spring_energy` and `spring_force` include the elastic joints, and `friction_force`
    includes their damping and the rotor friction. The leaves of `elastic` become leaves of the chain, for derivatives.

    To simulate the chain with `rollout`, use time steps below about 2 sqrt(J / K). In inner loops, prefer
    `elastic_forward_dynamics`, which avoids the massless links.

    Raises:
        ModelError: a joint, link or frame already has the name of a spring, NAME_spring for coordinate NAME.
    """
    n, nv, dtype = chain.n, chain.nv, chain.dtype
    columns = layout(chain).columns
    m = len(columns)

    def extend(x: Array, more: Array | float) -> Array:
        return jnp.concatenate([x, jnp.broadcast_to(jnp.asarray(more, dtype), (m, *x.shape[1:]))])

    chosen = jnp.zeros((m, nv), dtype).at[np.arange(m), columns].set(1.0)
    if chain.coupling is None:
        coupling, offset, rates = jnp.eye(n, dtype=dtype), jnp.zeros(n, dtype), chosen
    else:
        coupling, offset = chain.coupling.matrix, chain.coupling.offset
        rates = chosen @ jnp.linalg.solve(coupling.T @ coupling, coupling.T)  # coordinate rates from joint rates
    # the rate of a rotor is that of the coordinate minus that of the spring
    ratios = elastic.gear_ratio[:, None] * jnp.concatenate([rates, -jnp.eye(m, dtype=dtype)], axis=1)
    return dataclasses.replace(
        chain,
        rotation=extend(chain.rotation, jnp.eye(3, dtype=dtype)),
        translation=extend(chain.translation, 0.0),
        screw=extend(chain.screw, jnp.zeros(6, dtype).at[2].set(1.0)),
        inertia=extend(chain.inertia, 0.0),
        armature=extend(chain.armature, 0.0),
        friction=jax.tree.map(extend, chain.friction, _drag(elastic.damping)),
        springs=jax.tree.map(extend, chain.springs, Springs(elastic.stiffness, elastic.rest)),
        limits=jax.tree.map(extend, chain.limits, JointLimits()),
        topology=_extended(chain.topology, nv, tuple(int(i) for i in columns)),
        coupling=Coupling(
            jnp.block([[coupling, jnp.zeros((n, m), dtype)], [chosen, -jnp.eye(m, dtype=dtype)]]),
            jnp.concatenate([offset, jnp.zeros(m, dtype)]),
        ),
        transmission=Transmission(ratios, elastic.rotor_inertia, _drag(elastic.rotor_friction)),
    )


def _drag(viscous: Float[Array, " m"]) -> Friction:
    """Purely viscous friction."""
    none = jnp.zeros_like(viscous)
    return Friction(viscous, none, none + 1, none, none + 1, none)


@functools.lru_cache(maxsize=64)
def _extended(topology: Topology, nv: int, columns: tuple[int, ...]) -> Topology:
    """The topology with a spring link for each coordinate in `columns`, in series after the last link."""
    n = len(topology.joint_names)
    names = topology.coordinate_names
    if names is None:
        names = topology.joint_names if nv == n else tuple(f"coordinate{i + 1}" for i in range(nv))
    springs = tuple(f"{names[i]}_spring" for i in columns)
    taken = {*topology.joint_names, *topology.link_names, *topology.frame_names, topology.base_name}
    if clash := taken & set(springs):
        fault = f"the name {sorted(clash)[0]!r} is reserved for the spring of an elastic joint"
        raise ModelError(fault, "rename the joint, link or frame")
    return dataclasses.replace(
        topology,
        joint_names=(*topology.joint_names, *springs),
        link_names=(*topology.link_names, *springs),
        parents=(*topology.parents, *range(n - 1, n - 1 + len(columns))),
        coordinate_names=(*names, *(f"{names[i]}_motor" for i in columns)),
    )
