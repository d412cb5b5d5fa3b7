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
    names = tuple(f"{axis}{i + 1}" for i in range(k) for axis in "xyz")
    parents = tuple(p for i in range(k) for p in (-1, 3 * i, 3 * i + 1))
    bodies = np.zeros((3 * k, 10))
    bodies[2::3, 0] = masses
    topology = Topology(parents, joint_names=names, tip_name="tip")
    return parallel_chain([X, Y, Z] * k, bodies, gravity, prismatic=tuple(range(3 * k)), topology=topology)


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
    chain = _on_plane([Z], body, gravity, ("heading",), up=np.cos(slope) * Z - np.sin(slope) * X)
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
    chain = _on_plane([Z, Y], body, 0.0, ("heading", "spin"))
    return chain, PfaffianConstraint(jnp.asarray(radius), _rolling)


def _on_plane(axes, body, gravity, names, up=Z) -> Chain:
    """A body that moves along x and y and rotates about the given axes, one after the other."""
    bodies = [*np.zeros((len(axes) + 1, 10)), body]
    topology = Topology.serial(len(bodies), joint_names=("x", "y", *names), tip_name="tip")
    return parallel_chain([X, Y, *axes], bodies, gravity, up=up, prismatic=(0, 1), topology=topology)


def _along_the_edge(chain, q, _):
    return jnp.array([[jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]])


def _rolling(chain, q, radius):
    return jnp.array([[1.0, 0.0, 0.0, -radius * jnp.cos(q[2])], [0.0, 1.0, 0.0, -radius * jnp.sin(q[2])]])
