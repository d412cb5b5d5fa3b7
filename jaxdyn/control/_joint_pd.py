"""Control with only the gravity model: compensation, and proportional-derivative control about a goal."""

from jaxtyping import Array, Float

from ..dynamics import gravity_force, spring_force
from ..model._chain import Chain
from ..model._compiled import compiled
from ..model._configuration import difference
from ._reference import Gain, apply_gain


@compiled
def gravity_compensation(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], damping: Gain = 0.0
) -> Float[Array, " nv"]:
    """tau = g(q) + k(q) - D v: the robot floats, can be guided by hand, and comes to rest if D is positive [N m].

    The kinetic energy K obeys dK/dt = -v . D v - v . f + v . tau_ext with the robot's own friction f: passive for every
    non-negative D. k is `spring_force`; friction is not compensated.

    Args:
        damping: D, one number, one per joint, or a matrix [N m s/rad].

    Raises:
        ControlError: a gain of wrong shape.
    """
    return gravity_force(chain, q) + spring_force(chain, q) - apply_gain("damping", damping, v)


@compiled
def pd_gravity_control(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    goal: Float[Array, " nq"],
    kp: Gain,
    kd: Gain,
) -> Float[Array, " nv"]:
    """tau = g(q) + k(q) + Kp e - Kd v with e = difference(q, goal): holds a configuration (Takegaki & Arimoto 1981) [N m].

    V = K(q, v) + e . Kp e / 2 never increases: dV/dt = -v . Kd v minus the power of friction; with Kp and Kd positive
    definite the goal is globally asymptotically stable (LaSalle), for any masses as long as gravity is
    compensated. A quaternion joint needs one gain for all its directions.

    Args:
        kp: stiffness, one number, one per joint, or a symmetric matrix [N m/rad].
        kd: damping, likewise [N m s/rad].

    Raises:
        ControlError: a gain of wrong shape.
    """
    error = apply_gain("kp", kp, difference(chain, q, goal))
    return gravity_compensation(chain, q, v, kd) + error
