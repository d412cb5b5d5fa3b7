"""Elastic joints, with separate motor and link angles connected by a spring (Spong's model)."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...spatial._host import Values
from .._chain import Chain, Coupling, Topology, Transmission
from .._drives import check_values
from .._joint_properties import Friction, JointLimits, Springs
from .._layout import layout


class ElasticJoints(eqx.Module):
    """A spring and a rotor at each coordinate of a chain, except for spherical and free joints, which are rigid.

    Let q be the joint angle and theta = rotor angle / gear_ratio the rotor angle referred to the joint. The motor torque tau_m
    acts on the rotor shaft, and the joint is driven by a spring and a damper:

        torque on the joint = K (theta + rest - q) + D (thetad - qd),
        J thetadd = gear_ratio tau_m - B thetad - torque on the joint

    with J = gear_ratio^2 rotor_inertia and B = gear_ratio^2 rotor_friction. Only the spin of rotors about their axes is
    modelled (Spong 1987; example 6.2 of Spong, Hutchinson & Vidyasagar 2020). The mass matrix is therefore block-diagonal: M(q)
    for the links and diag(J) for the rotors. Create an instance with `elastic_joints`.

    Attributes:
        stiffness: stiffness K of the spring [N m/rad].
        damping: damping coefficient D of the damper parallel to the spring [N m s/rad].
        rest: q - theta at zero spring torque [rad].
        gear_ratio: rotor revolutions per joint revolution.
        rotor_inertia: inertia of the rotor about its axis [kg m^2].
        rotor_friction: viscous friction coefficient of the rotor, with respect to rotor speed [N m s/rad].
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
    """Create elastic joints for a chain, and check their values.

    The arguments are the attributes of `ElasticJoints`, each as one value for all joints or one value per joint. The chain's
    armature must not include the rotor inertias.

    Raises:
        ModelError: the chain has a transmission, whose rotors are rigidly coupled to the joints; a shape is wrong or a value
            is NaN; a stiffness, inertia or gear ratio is not positive; damping or friction is negative.
    """
    if chain.transmission is not None:
        raise ModelError(
            "the chain has a transmission, whose rotors are rigidly coupled to the joints; remove the transmission, since "
            "elastic joints have rotors of their own"
        )
    m, dtype = len(layout(chain).columns), chain.dtype
    tiny = float(np.finfo(dtype).tiny)

    def leaf(name: str, x: Values, least: float | None) -> Float[Array, " m"]:
        return check_values(name, x, m, "elastic joint", dtype, least)

    return ElasticJoints(
        stiffness=leaf("stiffness", stiffness, tiny),
        damping=leaf("damping", damping, 0.0),
        rest=leaf("rest", rest, None),
        gear_ratio=leaf("gear_ratio", gear_ratio, tiny),
        rotor_inertia=leaf("rotor_inertia", rotor_inertia, tiny),
        rotor_friction=leaf("rotor_friction", rotor_friction, 0.0),
    )


def elastic_chain(chain: Chain, elastic: ElasticJoints) -> Chain:
    """Combine a chain and its elastic joints into one chain, with the link and rotor angles (q, theta) as coordinates [rad].

    In the new chain:

    - Each spring is a joint with position q - theta, which carries a massless link. A `Coupling` maps (q, theta) to the joint
      positions.
    - The rotors form a `Transmission`, whose matrix subtracts the spring rates qd - thetad from the link rates qd, so that the
      motor rates are gear_ratio thetad.
    - The generalised forces are those on the link coordinates, followed by gear_ratio times the motor torques (see
      `joint_torques_from_motors`).
    - The mass matrix has the diagonal blocks M(q) and diag(J), with the reflected rotor inertias J.
    - `spring_energy` and `spring_force` include the elastic joints, and `friction_force` includes their damping and the rotor
      friction.
    - The leaves of `elastic` become leaves of the chain, so results can be differentiated with respect to them.

    To simulate the chain with `rollout`, use time steps below about 2 sqrt(J / K), with the stiffness K. In inner loops, prefer
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
    """The topology with a spring link for each coordinate in `columns`.

    The spring links are appended in series to the last link, so that serial chains remain serial.
    """
    n = len(topology.joint_names)
    names = topology.coordinate_names
    if names is None:
        names = topology.joint_names if nv == n else tuple(f"coordinate{i + 1}" for i in range(nv))
    springs = tuple(f"{names[i]}_spring" for i in columns)
    taken = {*topology.joint_names, *topology.link_names, *topology.frame_names, topology.base_name}
    if clash := taken & set(springs):
        raise ModelError(
            f"the name {sorted(clash)[0]!r} is reserved for the spring of an elastic joint; rename the joint, link or frame"
        )
    return dataclasses.replace(
        topology,
        joint_names=(*topology.joint_names, *springs),
        link_names=(*topology.link_names, *springs),
        parents=(*topology.parents, *range(n - 1, n - 1 + len(columns))),
        coordinate_names=(*names, *(f"{names[i]}_motor" for i in columns)),
    )
