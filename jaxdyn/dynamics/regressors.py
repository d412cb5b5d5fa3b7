"""Regressors: torques, energies, the momentum and the Slotine-Li control law as linear functions of parameters.

Those of the links are linear in the inertial parameters pi, ordered as in `regressor`. They do not depend on the
chain's own inertial parameters, and exclude armature and rotors, which have regressors of their own, as have friction
and springs.
"""

import functools
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Position, Velocity
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, cross, dot, rotate, sub, unrotate, unstack, zeros
from . import rnea
from .coordinates import base_at_rest, base_gravity, generalised_force, joint_accelerations, joint_rates
from .engine.kernel import defined_by
from .engine.lanes import BaseGravity, PerLink, by_batch
from .engine.matrices import entries_size, over_pairs, pairs_of, spread
from .engine.sweep import Link, carry_twist, next_pose, outward, start_pose
from .newton_euler import accelerate, by_reference, reference_motion


@compiled
@defined_by(rnea.regressor)
def regressor(chain: Chain, q: Position, qd: Velocity, qdd: Acceleration) -> Float[Array, "nv p"]:
    """Regressor Y(q, qd, qdd) with Y pi = M_l qdd + C qd + g, the joint torques due to the links [N m or N], O(n^2).

    The parameters are pi = inertial_parameters(chain).reshape(-1), so that column 10 i + k belongs to parameter k of
    link i: m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz and Izz, about the origin of the link frame, in its axes. M_l
    is the links' mass matrix; `inverse_dynamics` also includes armature (`drive_regressor`) and rotors
    (`motor_regressor`). If joint j carries link i, then Y_j,i = A_j^T Ad^T W_i, where W_i is the 6x10 regressor of a
    single body (Atkeson, An & Hollerbach 1986); otherwise Y_j,i = 0.
    """
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    entries = regressor_entries(links, x, rates, accelerations, base_gravity(links))
    return _filled(chain, links, entries)


def _filled(chain: Chain, links: Chain, entries: Float[Array, " entries"]) -> Float[Array, "nv p"]:
    """The regressor at the robot's coordinates, from its nonzero entries."""
    return generalised_force(chain, spread(_places(links.topology.parents), entries))


@by_batch(size=lambda chain: entries_size(chain, 10))
def regressor_entries(
    chain: Chain, x: PerLink, rates: PerLink, accelerations: PerLink, gravity: BaseGravity
) -> Float[Array, "entries *#lanes"]:
    """Entries of the regressor of a chain with ordinary joints, ten for each pair in `pairs_of`."""
    of_links, of_joints = _motion(chain, x, rates, accelerations, gravity)
    entries = lambda of_joint, of_link, same: (_coefficients(of_link, of_joint),)
    return over_pairs(pairs_of(chain.topology.parents), entries, of_joints, of_links)[0]


def _places(parents: tuple[int, ...]) -> np.ndarray:
    """Indices into `regressor_entries` (see `Pairs`): [j, 10 i + k] is that of joint j and parameter k of link i."""
    pairs = pairs_of(parents)
    rows = pairs.above.T[:, :, None]
    return np.where(rows < pairs.count, 10 * rows + np.arange(10), 10 * pairs.count).reshape(len(parents), -1)


def _motion(chain: Chain, x, rates, accelerations, gravity):
    """Poses and motion (w, dw, a) of all links, and screws and origins of all joints."""
    zero = zeros(3, (x, rates, accelerations, gravity))
    step = lambda parent, link, inputs: accelerate(parent, link, *inputs)
    return _placed(chain, x, step, base_at_rest(gravity, zero), (rates, accelerations))


def _placed(chain: Chain, x, step, at_base, inputs):
    """As `_motion`, for a motion with step(that of the parent, link, inputs), which is `at_base` at the base."""

    def out(parent, link: Link, i):
        motion = step(parent[1], link, i)
        r, p = next_pose(parent[0], link)
        return ((r, p), motion), ((r, p), (rotate(r, link.screw[:3]), rotate(r, link.screw[3:])), motion)

    (r, p), screws, motion = outward(chain, x, out, (start_pose(chain, x), at_base), inputs)
    return (r, p, motion), (screws, p)


def _twist_in_link(r, p, of_joint):
    """Twist (w, v) of a link at unit rate of a joint that carries it, in the link's frame."""
    (w, v), at = of_joint
    return unrotate(r, w), unrotate(r, add(v, cross(w, sub(p, at))))


def _coefficients(of_links, of_joint):
    """The ten coefficients of the links' parameters in the torque of a joint that carries them."""
    r, p, motion = of_links
    return power_coefficients(*_twist_in_link(r, p, of_joint), *motion)


def power_coefficients(spin, velocity, w, dw, a):
    """Coefficients of the ten parameters in spin . n + velocity . f, the power of a body's wrench (n, f) on a twist.

    With f = m a + dw x h + w x (w x h) and n = I dw + w x I w + h x a, they are those of `product_coefficients`, plus
    w x (w x velocity) for h, and those of (spin x w) . I w.
    """
    mass, h, inertia = product_coefficients(spin, velocity, dw, a)
    h = add(h, cross(w, cross(w, velocity)))
    return mass, *h, *add(inertia, _inertia_coefficients(cross(spin, w), w))


def product_coefficients(w, v, b, a):
    """Coefficients of m, h and I in the product of the twist (w, v) and the momentum of a body with the twist (b, a)."""
    return dot(v, a), add(cross(v, b), cross(a, w)), _inertia_coefficients(w, b)


def _inertia_coefficients(a, b):
    """Coefficients of the six entries of I in a . I b."""
    mixed = lambda i, j: a[i] * b[j] + a[j] * b[i]
    return a[0] * b[0], mixed(0, 1), a[1] * b[1], mixed(0, 2), mixed(1, 2), a[2] * b[2]


DriveTerm = Literal["armature", "viscous", "coulomb", "offset"]
DRIVE_LEAVES: dict[str, str] = {
    "armature": "armature",
    "viscous": "friction.viscous",
    "coulomb": "friction.coulomb",
    "offset": "friction.offset",
}
MotorTerm = Literal["inertia", "viscous", "coulomb"]
MOTOR_LEAVES: dict[str, str] = {
    "inertia": "transmission.rotor_inertia",
    "viscous": "transmission.friction.viscous",
    "coulomb": "transmission.friction.coulomb",
}


@compiled
def drive_regressor(
    chain: Chain,
    qd: Velocity,
    qdd: Acceleration,
    terms: tuple[DriveTerm, ...] = ("armature", "viscous", "coulomb", "offset"),
) -> Float[Array, "nv m"]:
    """Regressor of the drives of all joints; of its n len(terms) columns, column len(terms) j + k belongs to term k of joint j.

    The entries of joint j are qdd_j for armature, qd_j for viscous friction, tanh(qd_j / v_c) for Coulomb friction (v_c
    is `friction.coulomb_velocity`), and 1 for the offset. Multiplied by the parameters (armature, fv, fc, offset) of
    every joint, the regressor yields the torques armature * qdd + friction_force(chain, qd) [N m or N]. Stribeck
    friction, which is nonlinear in its width, has no column.

    Raises:
        ModelError: a term is unknown.
    """
    qd, qdd = joint_rates(chain, qd), joint_rates(chain, qdd)
    columns = {"armature": qdd, "viscous": qd, "coulomb": chain.friction.sign(qd), "offset": jnp.ones_like(qd)}
    return _by_drive(chain, jnp.eye(chain.n, dtype=qd.dtype), columns, terms, "drive")


@compiled
def motor_regressor(
    chain: Chain, qd: Velocity, qdd: Acceleration, terms: tuple[MotorTerm, ...] = ("inertia", "viscous", "coulomb")
) -> Float[Array, "nv m"]:
    """Regressor of the motors of a transmission; column len(terms) k + i belongs to term i of motor k.

    The motors turn at the rates w = R S qd, where R is the transmission matrix and S the coupling matrix. The columns
    of motor k are (R S)_k^T x_k, where x is dw/dt for the rotor inertia J, w for viscous friction B, and tanh(w / v_c)
    for Coulomb friction F_c. Multiplied by the parameters (J, B, F_c) of every motor, the regressor yields the torques
    [N m or N] that rotors add to inverse_dynamics and that motor friction adds to friction_force. For example,

        inverse_dynamics = regressor pi + drive_regressor(.., ("armature",)) armature + motor_regressor(.., ("inertia",)) J.

    Raises:
        ModelError: the chain has no transmission, or a term is unknown.
    """
    if chain.transmission is None:
        raise ModelError("the chain has no transmission and therefore no motors; use with_transmission to add one")
    ratios = chain.transmission.matrix
    rates, accelerations = ratios @ joint_rates(chain, qd), ratios @ joint_rates(chain, qdd)
    columns = {"inertia": accelerations, "viscous": rates, "coulomb": chain.transmission.friction.sign(rates)}
    return _by_drive(chain, ratios.T, columns, terms, "motor")


def _by_drive(chain: Chain, on_joints: Array, columns: dict[str, Array], terms: Sequence[str], kind: str) -> Array:
    """The columns of drives, which act on the joints by the matrix `on_joints` (n, drives)."""
    unknown = [t for t in terms if t not in columns]
    if unknown:
        raise ModelError(f"unknown {kind} term {unknown[0]!r}; the terms are {', '.join(columns)}")
    if not terms:
        return jnp.zeros((chain.nv, 0), on_joints.dtype)
    values = jnp.stack([columns[t] for t in terms], axis=1)  # (drives, len(terms))
    return generalised_force(chain, (on_joints[:, :, None] * values[None]).reshape(chain.n, -1))


@compiled
def spring_regressor(chain: Chain, q: Position) -> Float[Array, "nv n"]:
    """Regressor Y of the joint stiffnesses: Y @ chain.springs.stiffness = spring_force(chain, q).

    Without coupled joints, the regressor is the diagonal matrix of the deflections q - q_rest [rad or m].
    """
    _, x = place(chain, q)
    return generalised_force(chain, jnp.diag(x - chain.springs.rest_position))


@compiled
def kinetic_energy_regressor(chain: Chain, q: Position, qd: Velocity) -> Float[Array, " p"]:
    """Row vector y for which y . pi is the kinetic energy of the links [J], O(n).

    A link has the energy m v^2 / 2 + h . (v x w) + w . I w / 2, with its twist (w, v) in the link frame and h = m c.
    """

    def out(parent, link: Link, rate):
        twist = carry_twist(parent, link, rate)
        mass, h, inertia = product_coefficients(*twist, *twist)
        return twist, (mass, *h, *inertia)

    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    zero = zeros(3, (x, rates), (), (chain.rotation,))
    return 0.5 * jnp.stack(outward(links, x, out, (zero, zero), rates), axis=1).reshape(-1)


@compiled
def potential_energy_regressor(chain: Chain, q: Position) -> Float[Array, " p"]:
    """Row vector y for which y . pi is the gravitational `potential_energy` P(q) [J], O(n).

    For link i with the pose (R_i, p_i), the coefficients of m and m c are -gravity . p_i and -R_i^T gravity.
    """
    gravity = unstack(chain.gravity)

    def out(parent, link: Link, _):
        r, p = next_pose(parent, link)
        return (r, p), (dot(gravity, p), *unrotate(r, gravity))

    links, x = place(chain, q)
    first = -jnp.stack(outward(links, x, out, start_pose(links, x)), axis=1)
    return jnp.concatenate([first, jnp.zeros((chain.n, 6), first.dtype)], axis=1).reshape(-1)


@compiled
def momentum_regressor(chain: Chain, q: Position, qd: Velocity) -> Float[Array, "nv p"]:
    """Regressor Y for which Y pi = M(q) qd is the generalised momentum of the links [N m s or N s], O(n^2).

    Since the rate of the momentum follows from measured torques (`hamiltonian_flow`), this regressor allows parameters
    to be identified without accelerations, as Gautier & Khalil (1988) do with energies.
    """
    links, x = place(chain, q)
    return _filled(chain, links, _momentum_entries(links, x, joint_rates(chain, qd)))


@by_batch(size=lambda chain: entries_size(chain, 10))
def _momentum_entries(chain: Chain, x: PerLink, rates: PerLink) -> Float[Array, "entries *#lanes"]:
    """Entries of the momentum regressor, as in `regressor_entries`."""
    zero = zeros(3, (x, rates), (), (chain.rotation,))
    of_links, of_joints = _placed(chain, x, carry_twist, (zero, zero), rates)

    def entries(of_joint, of_link, same):
        r, p, twist = of_link
        mass, h, inertia = product_coefficients(*_twist_in_link(r, p, of_joint), *twist)
        return ((mass, *h, *inertia),)

    return over_pairs(pairs_of(chain.topology.parents), entries, of_joints, of_links)[0]


@compiled
def passivity_regressor(
    chain: Chain, q: Position, qd: Velocity, qd_ref: Velocity, qdd_ref: Acceleration
) -> Float[Array, "nv p"]:
    """Slotine-Li regressor Y_r(q, qd, qd_ref, qdd_ref) with Y_r pi = M(q) qdd_ref + C(q, qd) qd_ref + g(q), O(n^2).

    Y_r pi are the torques of `passivity_inverse_dynamics` without armature and rotors [N m or N] (Slotine & Li 1987).
    For qd_ref = qd, Y_r equals regressor(chain, q, qd, qdd_ref).
    """
    links, x = place(chain, q)
    entries = _reference_entries(links, x, *reference_motion(chain, links, qd, qd_ref, qdd_ref))
    return _filled(chain, links, entries)


@by_batch(size=lambda chain: entries_size(chain, 10))
def _reference_entries(
    chain: Chain, x: PerLink, rates: PerLink, references: PerLink, accelerations: PerLink, gravity: BaseGravity
) -> Float[Array, "entries *#lanes"]:
    """Entries of the Slotine-Li regressor, as in `regressor_entries`."""
    moving = lambda *inputs: _motion(chain, x, *inputs)
    ((r, p, motion), of_joints), ((_, _, change), _) = by_reference(moving, rates, references, accelerations, gravity)

    def entries(of_joint, of_link, same):
        r, p, motion, change = of_link
        power = functools.partial(power_coefficients, *_twist_in_link(r, p, of_joint))
        return (jax.jvp(power, motion, change)[1],)

    return over_pairs(pairs_of(chain.topology.parents), entries, of_joints, (r, p, motion, change))[0]


@compiled
def passivity_regressor_product(
    chain: Chain, q: Position, qd: Velocity, qd_ref: Velocity, qdd_ref: Acceleration, s: Float[Array, " nv"]
) -> Float[Array, "n 10"]:
    """Product Y_r^T s of the `passivity_regressor` Y_r and joint rates s, without forming Y_r, one row per link, O(n).

    s^T Y_r pi is the power [W] of the links' reference wrenches on the link twists that the joint rates s cause.
    """
    links, x = place(chain, q)
    return _link_products(links, x, joint_rates(chain, s), *reference_motion(chain, links, qd, qd_ref, qdd_ref))


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def _link_products(
    chain: Chain,
    x: PerLink,
    s: PerLink,
    rates: PerLink,
    references: PerLink,
    accelerations: PerLink,
    gravity: BaseGravity,
) -> Float[Array, "n 10 *#lanes"]:
    """The product Y_r^T s for the rigid links of a chain with ordinary joints."""

    def products(qd, qdd, gravity):
        def out(parent, link: Link, inputs):
            twist, motion = parent
            twist, motion = carry_twist(twist, link, inputs[0]), accelerate(motion, link, *inputs[1:])
            return (twist, motion), power_coefficients(*twist, *motion)

        zero = zeros(3, (x, s, qd, qdd, gravity))
        at_base = (zero, zero), base_at_rest(gravity, zero)
        return jnp.stack(outward(chain, x, out, at_base, (s, qd, qdd)), axis=1)

    return by_reference(products, rates, references, accelerations, gravity)[1]
