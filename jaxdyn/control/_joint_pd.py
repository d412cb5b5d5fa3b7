"""Control that needs only the gravity model: gravity compensation, and PD control about a goal."""

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
    """Gravity compensation with optional damping: tau = g(q) + k(q) - D v [N m or N].

    The robot can be guided by hand, and comes to rest if D is positive definite. Its kinetic energy K satisfies dK/dt = -v . D
    v - v . f + v . tau_ext, where f are the friction torques and tau_ext the external torques, so the robot is passive for
    every positive semidefinite D. Gravity g and spring torques k (`spring_force`) are compensated; friction is not.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        damping: damping gain D, given as a scalar, one value per joint, or a matrix [N m s/rad or N s/m].

    Raises:
        ControlError: the damping has the wrong shape.
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
    """PD control with gravity compensation about a goal (Takegaki & Arimoto 1981): tau = g(q) + k(q) + Kp e - Kd v [N m or N].

    Here e = difference(q, goal). The function V = K(q, v) + e . Kp e / 2, where K is the kinetic energy, never increases, since
    dV/dt is -v . Kd v minus the power dissipated by friction. By LaSalle's theorem, the goal is globally asymptotically stable
    for any masses if Kp and Kd are positive definite and gravity is compensated exactly. The gains of a quaternion joint must
    be equal in all directions.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        goal: configuration to hold [rad or m].
        kp: stiffness, given as a scalar, one value per joint, or a symmetric matrix [N m/rad or N/m].
        kd: damping, given as a scalar, one value per joint, or a matrix [N m s/rad or N s/m].

    Raises:
        ControlError: a gain has the wrong shape.
    """
    error = apply_gain("kp", kp, difference(chain, q, goal))
    return gravity_compensation(chain, q, v, kd) + error
