"""Particles, a knife edge and a rolling coin: examples of holonomic and nonholonomic constraints."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..model.chain import Chain, Topology
from ..model.mechanisms import PfaffianConstraint
from ..spatial.inertia import inertial_parameters_from_com
from .systems import X, Y, Z, parallel_chain


def particles(masses: Sequence[float], *, gravity: float = 9.81) -> Chain:
    """Free particles in space with q = (x1, y1, z1, x2, ..) [m] (Spong, Hutchinson & Vidyasagar 2020, sec. 6.1).

    The mass matrix is M = diag(m1, m1, m1, m2, ..), and the gravity force in z_i is m_i gravity. Add constraints to
    restrict the motion: for example, a `FunctionConstraint` |r1 - r2|^2 = l^2 connects two particles by a rigid wire.

    Raises:
        ModelError: there are no particles.
    """
    k = len(masses)
    if k == 0:
        raise ModelError("there are no particles; pass at least one mass")
    none = np.zeros(10)
    names = tuple(f"{axis}{i + 1}" for i in range(k) for axis in "xyz")
    return parallel_chain(
        axes=[X, Y, Z] * k,
        offsets=[0 * X] * (3 * k),
        bodies=[
            row for m in masses for row in (none, none, inertial_parameters_from_com(m, np.zeros(3), np.zeros((3, 3))))
        ],
        tip=0 * X,
        gravity=-gravity * Z,
        prismatic=tuple(range(3 * k)),
        topology=Topology(
            tuple(p for i in range(k) for p in (-1, 3 * i, 3 * i + 1)), joint_names=names, tip_name="tip"
        ),
    )


def knife_edge(
    *, mass: float = 1.0, inertia: float = 0.1, slope: float = 0.0, gravity: float = 9.81
) -> tuple[Chain, PfaffianConstraint]:
    """Body on a knife edge (a skate) below its centre of mass, on a plane that slopes down along x.

    The body, with q = (x, y, heading h) [m, m, rad], moves only along its edge: xd sin h - yd cos h = 0. It can
    nevertheless reach every configuration, since this constraint cannot be integrated to a constraint on q. If the body
    starts at q = 0 with the turning rate w and no linear velocity, then

        h = w t,
        x = gravity sin(slope) sin^2(h) / (2 w^2),
        y = gravity sin(slope) (h - sin(2 h) / 2) / (2 w^2),

    so the body drifts across the slope instead of sliding down.

    Args:
        inertia: moment of inertia about the centre of mass, normal to the plane [kg m^2].
        slope: inclination of the plane [rad].

    Returns:
        The body and the constraint. The multiplier of the constraint is the force across the edge [N].
    """
    body = inertial_parameters_from_com(mass, np.zeros(3), np.diag([inertia, inertia, inertia]))
    chain = parallel_chain(
        axes=[X, Y, Z],
        offsets=[0 * X] * 3,
        bodies=[np.zeros(10), np.zeros(10), body],
        tip=0 * X,
        gravity=gravity * (np.sin(slope) * X - np.cos(slope) * Z),
        prismatic=(0, 1),
        topology=Topology.serial(3, joint_names=("x", "y", "heading"), tip_name="tip"),
    )
    return chain, PfaffianConstraint(None, _along_the_edge)


def rolling_coin(
    *, mass: float = 1.0, radius: float = 0.1, spin_inertia: float = 0.005, turn_inertia: float = 0.0025
) -> tuple[Chain, PfaffianConstraint]:
    """Coin that rolls upright on a plane without slipping, with q = (x, y, heading h, spin s) [m, m, rad, rad].

    The constraints are xd = radius sd cos h and yd = radius sd sin h. The torque about the spin axis is (spin_inertia +
    mass radius^2) sdd, and the torque about the heading axis is turn_inertia hdd. Without torques the rates are
    constant, and the coin rolls in a circle of radius (radius sd / hd).

    Args:
        spin_inertia: moment of inertia about the coin's axis [kg m^2].
        turn_inertia: moment of inertia about a diameter [kg m^2].

    Returns:
        The coin and the constraints. The multipliers are the components along x and y of the ground's force on the coin
        [N].
    """
    body = inertial_parameters_from_com(mass, np.zeros(3), np.diag([turn_inertia, spin_inertia, turn_inertia]))
    chain = parallel_chain(
        axes=[X, Y, Z, Y],
        offsets=[0 * X] * 4,
        bodies=[*np.zeros((3, 10)), body],
        tip=0 * X,
        gravity=0 * Z,
        prismatic=(0, 1),
        topology=Topology.serial(4, joint_names=("x", "y", "heading", "spin"), tip_name="tip"),
    )
    return chain, PfaffianConstraint(jnp.asarray(radius), _rolling)


def _along_the_edge(chain, q, _):
    zero = jnp.zeros_like(q[2])
    return jnp.stack([jnp.sin(q[2]), -jnp.cos(q[2]), zero])[None]


def _rolling(chain, q, radius):
    zero, one = jnp.zeros_like(q[2]), jnp.ones_like(q[2])
    rows = [one, zero, zero, -radius * jnp.cos(q[2])], [zero, one, zero, -radius * jnp.sin(q[2])]
    return jnp.stack([jnp.stack(row) for row in rows])
