"""Functions that add drives to a robot: gears and rotors (`with_transmission`), coupled coordinates (`with_coupling`)."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import Tracer
from ..errors import ModelError
from ..spatial._host import Values
from ._chain import Chain, Coupling, Transmission
from ._configuration import check_coordinates
from ._joint_properties import COULOMB_VELOCITY, STRIBECK_VELOCITY, Friction
from ._layout import layout


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
    """Add motors geared to a robot's joints: motor rates = R qd, joint torques = R^T motor torques.

    R^T diag(rotor_inertia) R is added to the mass matrix, and the motor friction R^T f_m(R qd) to the joint friction. Only
    the spin of rotors about their axes is modelled, which is accurate for large gear ratios (Spong, Hutchinson &
    Vidyasagar 2020, example 6.1).
    An existing transmission is replaced; armature and joint friction are unchanged. If values are traced by JAX, only shapes
    are checked.

    Args:
        gear_ratio: motor revolutions per joint revolution ([rad/m] for prismatic joints), one value or one per joint;
            negative if motor and joint rotate in opposite directions. Every joint that is not part of a spherical or free
            joint has one motor.
        matrix: R, (motors, n), instead of `gear_ratio`. It has one column per joint, even if coordinates are coupled.
        rotor_inertia: inertia J_m of each rotor about its axis, one value or one per motor [kg m^2].
        viscous_friction: viscous coefficient at each motor, in terms of motor speed [N m s/rad].
        coulomb_friction: Coulomb friction at each motor [N m].
        coulomb_velocity: motor speed v_c in the smoothed sign tanh(speed / v_c) of Coulomb friction, at which the friction
            reaches 76 % of its final value [rad/s]; by default 0.02 times the largest absolute ratio in the motor's row.

    Raises:
        ModelError: both or neither of gear_ratio and matrix are passed; a shape is wrong; a value is NaN; a motor drives
            no joint, or a spherical or free joint; an inertia or friction is negative, or a `coulomb_velocity` is not positive.
    """
    n, dtype = chain.n, chain.dtype
    if (gear_ratio is None) == (matrix is None):
        raise ModelError(
            "pass either gear_ratio, for motors that drive one joint each, or matrix, for motors that share joints"
        )
    held = [link + i for link, size in chain.topology.quaternion_joints for i in range(size)]
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
    none = jnp.zeros(m, dtype)
    friction = Friction(
        viscous=check_values("viscous_friction", viscous_friction, m, "motor", dtype, least=0.0),
        coulomb=check_values("coulomb_friction", coulomb_friction, m, "motor", dtype, least=0.0),
        coulomb_velocity=check_values("coulomb_velocity", width, m, "motor", dtype, least=tiny),
        stribeck=none,
        stribeck_velocity=none + STRIBECK_VELOCITY,
        offset=none,
    )
    inertia = check_values("rotor_inertia", rotor_inertia, m, "motor", dtype, least=0.0)
    return dataclasses.replace(chain, transmission=Transmission(ratios, inertia, friction))


def with_coupling(chain: Chain, matrix: Values, offset: Values = 0.0, names: Sequence[str] | None = None) -> Chain:
    """Describe a robot in new coordinates y: current coordinates = matrix @ y + offset.

    The current coordinates are the joint positions or, if the robot has a coupling, its coordinates: couplings compose.
    Generalised forces are multiplied by matrix^T, and the mass matrix M becomes matrix^T M matrix. With mimic joints,
    there are fewer coordinates than joints; with absolute or motor angles, the number of coordinates is unchanged.

    Args:
        matrix: (nv, coordinates), of full column rank.
        offset: current coordinates at y = 0, one value or one per current coordinate [rad or m].
        names: names of the new coordinates.

    Raises:
        ModelError: a shape is wrong; a value is NaN; coordinates have no effect or are linearly dependent; names are
            missing or repeated; the matrix changes a spherical or free joint (whose columns must come first, unchanged).
    """
    dtype, present = chain.dtype, chain.nv
    s = jnp.asarray(matrix, dtype)
    if s.ndim != 2 or s.shape[0] != present or s.shape[1] == 0:
        raise ModelError(
            f"a coupling of {present} coordinates requires a matrix ({present}, new coordinates), not {s.shape}"
        )
    o = check_values("offset", offset, present, "coordinate", dtype)
    if not _traced(s):
        if not np.all(np.isfinite(np.asarray(s))):
            raise ModelError("the matrix of the coupling contains NaN or infinity")
        if (rank := np.linalg.matrix_rank(np.asarray(s, float))) < s.shape[1]:
            raise ModelError(
                f"the matrix of the coupling has {s.shape[1]} columns, but only rank {rank}, so the mass matrix is singular; "
                "remove coordinates that move nothing or depend on others"
            )
    if names is not None and len(set(names)) != len(names):
        raise ModelError(f"a coordinate name is used twice among {', '.join(names)}")
    if chain.coupling is not None:
        s, o = chain.coupling.matrix @ s, chain.coupling.matrix @ o + chain.coupling.offset
    topology = dataclasses.replace(chain.topology, coordinate_names=None if names is None else tuple(names))
    coupled = dataclasses.replace(chain, coupling=Coupling(s, o), topology=topology)
    if not _traced(*jax.tree.leaves(coupled)):
        check_coordinates(coupled)
        for joint in layout(chain).quaternions:
            if np.any(np.asarray(o)[joint.columns] != 0):
                raise ModelError(
                    f"the offset must not move {chain.joint_names[joint.link]!r}, a spherical or free joint"
                )
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
