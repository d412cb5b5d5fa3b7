"""Regressors of the energies, of the generalised momentum and of the Slotine-Li control law.

The energies, the momentum and the control torques are linear in the inertial parameters pi =
inertial_parameters(chain).reshape(-1). As in `regressor`, column 10 i + k belongs to parameter k of link i. The regressors do
not depend on the inertial parameters of the chain, and exclude armature and rotors.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import Link
from ...spatial._components import add, cross, dot, sub, unrotate, unstack, zeros
from .._equations.regressor import by_parameter, link_axes, power_coefficients
from .._kinematics.coordinates import base_gravity, joint_rates, place
from .._lowering import by_batch
from .._recursions.poses import carry_twist, start_pose, walk
from .._recursions.sweep import outward
from .passivity import accelerate_by_reference, mean, reference_accelerations


@compiled
def kinetic_energy_regressor(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " p"]:
    """Row vector y for which y . pi is the kinetic energy K of the links [J], O(n).

    Columns are ordered as in `regressor`. A link of mass m, first moment h and rotational inertia I has the energy m v^2 / 2 +
    h . (v x w) + w . I w / 2, where (w, v) is its twist in the link frame. The energy of armature and rotors is excluded.
    """
    _, (w, u) = _poses_and_twists(chain, q, v)
    xx, yy, zz = (0.5 * w[i] * w[i] for i in range(3))
    columns = [0.5 * dot(u, u), *cross(u, w), xx, w[0] * w[1], yy, w[0] * w[2], w[1] * w[2], zz]
    return jnp.stack(columns, axis=1).reshape(-1)


@compiled
def potential_energy_regressor(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " p"]:
    """Row vector y for which y . pi is the gravitational `potential_energy` P(q) [J], O(n).

    Columns are ordered as in `regressor`. For link i with the pose (R_i, p_i), the coefficient of the mass is -gravity . p_i,
    and the coefficients of the first moment are -R_i^T gravity.
    """
    gravity = unstack(chain.gravity)

    def out(parent, link: Link, _):
        r, p = walk(parent, link)
        return (r, p), (dot(gravity, p), *unrotate(r, gravity))

    links, x = place(chain, q)
    first = -jnp.stack(outward(links, x, out, start_pose(links, x)), axis=1)
    return jnp.concatenate([first, jnp.zeros((chain.n, 6), first.dtype)], axis=1).reshape(-1)


@compiled
def momentum_regressor(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, "nv p"]:
    """Regressor Y for which Y pi = M(q) v is the generalised momentum of the links [N m s or N s], O(n^2).

    Columns are ordered as in `regressor`; armature and rotors are excluded. M v is computed as the torques that accelerate the
    links from rest with joint accelerations v, without gravity. Since the rate of the momentum follows from measured torques
    (`hamiltonian_flow`), this regressor allows parameters to be identified without accelerations, as Gautier & Khalil (1988) do
    with energies.
    """
    (r, p), (w, u) = _poses_and_twists(chain, q, v)
    w, u = (tuple(x[None] for x in component) for component in (w, u))
    still = tuple(jnp.zeros_like(x) for x in w)
    return by_parameter(chain, power_coefficients(*link_axes(chain, r, p), still, w, u))


@compiled
def passivity_regressor(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    v_ref: Float[Array, " nv"],
    a_ref: Float[Array, " nv"],
) -> Float[Array, "nv p"]:
    """Slotine-Li regressor Y_r(q, v, v_ref, a_ref) with Y_r pi = M(q) a_ref + C(q, v) v_ref + g(q), O(n^2).

    Y_r pi are the torques of `passivity_inverse_dynamics` without armature and rotors [N m or N]. Columns are ordered as in
    `regressor`. Y_r is used in adaptive control (Slotine & Li 1987). For v_ref = v, Y_r equals regressor(chain, q, v, a_ref).
    """

    def out(parent, link: Link, inputs):
        world, motion = parent
        motion = accelerate_by_reference(motion, link, *inputs)
        world = walk(world, link)
        return (world, motion), (world, motion)

    links, x = place(chain, q)
    rates, references = joint_rates(chain, v), joint_rates(chain, v_ref)
    accelerations = reference_accelerations(chain, v, v_ref, a_ref)
    zero = zeros(3, (x, rates, references, accelerations, chain.gravity))
    gravity = sub(zero, unstack(base_gravity(links)))
    start = (start_pose(links, x, rates, references, accelerations), (zero, zero, zero, gravity))
    (r, p), motion = outward(links, x, out, start, (rates, references, accelerations))
    w, wr, dw, a = (tuple(y[None] for y in component) for component in motion)
    return by_parameter(chain, _reference_coefficients(*link_axes(chain, r, p), w, wr, dw, a))


@compiled
def passivity_regressor_product(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    v_ref: Float[Array, " nv"],
    a_ref: Float[Array, " nv"],
    s: Float[Array, " nv"],
) -> Float[Array, "n 10"]:
    """Product Y_r^T s of the `passivity_regressor` Y_r and joint rates s, computed without forming Y_r, O(n).

    The result has one row per link. It drives the adaptation in `control.AdaptiveControl`. The scalar s^T Y_r pi is the power
    [W] that the reference wrenches of the links supply on the link twists caused by the joint rates s.
    """
    links, x = place(chain, q)
    rates, references = joint_rates(chain, v), joint_rates(chain, v_ref)
    accelerations = reference_accelerations(chain, v, v_ref, a_ref)
    return _link_products(links, x, rates, references, accelerations, joint_rates(chain, s), base_gravity(links))


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def _link_products(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    rates: Float[Array, "n *#lanes"],
    references: Float[Array, "n *#lanes"],
    accelerations: Float[Array, "n *#lanes"],
    s: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
) -> Float[Array, "n 10 *#lanes"]:
    """The product Y_r^T s for the rigid links of a chain with ordinary joints."""

    def out(parent, link: Link, inputs):
        motion, twist = parent
        twist = carry_twist(twist, link, inputs[3])
        motion = accelerate_by_reference(motion, link, *inputs[:3])
        return (motion, twist), _reference_coefficients(*twist, *motion)

    zero = zeros(3, (x, rates, references, accelerations, s, gravity))
    up = sub(zero, unstack(gravity))
    rows = outward(chain, x, out, ((zero, zero, zero, up), (zero, zero)), (rates, references, accelerations, s))
    return jnp.stack(rows, axis=1)


def _reference_coefficients(spin, velocity, w, wr, dw, a):
    """The coefficients of `regressor.power_coefficients`, made symmetric in w and w_r as in `passivity.reference_wrench`."""
    centripetal = mean(cross(w, cross(wr, velocity)), cross(wr, cross(w, velocity)))
    by_h = add(cross(velocity, dw), centripetal, cross(a, spin))
    u, ur = cross(spin, w), cross(spin, wr)
    product = lambda i, j: spin[i] * dw[j] + 0.5 * (u[i] * wr[j] + ur[i] * w[j])
    xx, yy, zz = (product(i, i) for i in range(3))
    xy, xz, yz = (product(i, j) + product(j, i) for i, j in ((0, 1), (0, 2), (1, 2)))
    return dot(velocity, a), *by_h, xx, xy, yy, xz, yz, zz


def _poses_and_twists(chain: Chain, q: Array, v: Array):
    """Pose (R, p) of every link in the world and its twist in the link frame; each component is an array over links."""

    def out(parent, link: Link, rate):
        here = walk(parent[0], link), carry_twist(parent[1], link, rate)
        return here, here

    links, x = place(chain, q)
    rates = joint_rates(chain, v)
    zero = zeros(3, (x, rates), (), (chain.rotation,))
    return outward(links, x, out, (start_pose(links, x, rates), (zero, zero)), rates)
