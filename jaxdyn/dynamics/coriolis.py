"""The Coriolis matrix and velocity products, and two forms of the equations of motion for teaching and as checks.

These are the Newton-Euler recursion in matrix form, M = A^T L^T G L A, and the decomposition of M and C into
contributions of the links' rotation and translation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Position, Velocity, Wrench, ancestor_mask, is_ordinary
from ..model.compiled import compiled
from ..model.configuration import integrate, place
from ..spatial.components import add, cross, dot, scale, unrotate, zeros
from ..spatial.inertia import inertial_parameters_to_com, spatial_inertia
from ..spatial.se3 import adjoint, pose_inverse, twist_cross
from ..spatial.so3 import skew
from . import rnea
from .composite_body import (
    carried_wrench,
    link_mass_matrix,
    reach,
    screws_and_inertias,
    stretches,
    twist_at,
    wrench_at,
)
from .coordinates import (
    base_gravity,
    by_coordinates,
    joint_rates,
    joints_of,
    link_wrenches,
    rate_matrix,
    times_rate_matrix,
)
from .derivatives import coriolis_turn, coriolis_wrench, moved_system, twist_bracket, velocity_moments
from .engine.kernel import defined_by
from .engine.lanes import PerLink, by_batch
from .engine.matrices import entries_size, over_pairs, pairs_of, spread, spread_sides
from .engine.sweep import Beside, Link, inward, outward
from .kinematics import forward_kinematics, link_poses


@compiled
@defined_by(rnea.christoffel_symbols)
def christoffel_symbols(chain: Chain, q: Position) -> Float[Array, "nv nv nv"]:
    """Christoffel symbols of the first kind of the mass matrix, by automatic differentiation of M(q), O(n^3).

    The symbols Gamma_ijk = (dM_ij/dq_k + dM_ik/dq_j - dM_jk/dq_i) / 2 are symmetric in j and k (Lynch & Park 2017, sec.
    8.1.2) and yield the Coriolis and centrifugal torques c(q, qd)_i = sum_jk Gamma_ijk qd_j qd_k; the unit is [N m
    s^2/rad^2] for revolute joints. The symbols of quaternion joints are those of local coordinates u about the current
    placement, minus M dB/dt (see the module `coordinates`), and are not symmetric in j and k.
    """
    links, x = place(chain, q)
    dm = jax.jacfwd(link_mass_matrix, argnums=1)(links, x)
    symbols = 0.5 * (dm + dm.transpose(0, 2, 1) - dm.transpose(2, 0, 1))
    if chain.coupling is not None:
        s = chain.coupling.matrix
        symbols = jnp.einsum("ijk,ia,jb,kc->abc", symbols, s, s, s)
    if not chain.topology.has_curved_joints:
        return symbols
    structure = jax.jacfwd(lambda v: rate_matrix(chain, v))(jnp.zeros(chain.nv, symbols.dtype))
    return symbols - jnp.einsum("il,ljk->ijk", by_coordinates(chain, link_mass_matrix(links, x)), structure)


class VelocityProducts(NamedTuple):
    """The result of `velocity_products`, which describes it."""

    coriolis: Float[Array, "nv pairs"]
    centrifugal: Float[Array, "nv nv"]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (j, k) of joints, j < k, in the order of the columns of `coriolis`."""
        return tuple(zip(*(x.tolist() for x in np.triu_indices(self.centrifugal.shape[-1], 1)), strict=True))


@compiled
def velocity_products(chain: Chain, q: Position) -> VelocityProducts:
    """The velocity terms c(q, qd), split into Coriolis terms qd_j qd_k and centrifugal terms qd_j^2, O(n^3).

    With Gamma = `christoffel_symbols`, c_i = sum_{j<k} (Gamma_ijk + Gamma_ikj) qd_j qd_k + sum_j Gamma_ijj qd_j^2. The
    names follow Spong, Hutchinson & Vidyasagar (2020, sec. 6.3), and the two matrices are those of Craig (2005, sec.
    6.8). The split depends on the choice of coordinates; the equations of `textbook.remotely_driven_elbow` contain no
    Coriolis terms.

    Returns:
        - coriolis: coefficients of qd_1 qd_2, qd_1 qd_3, ..., qd_2 qd_3, ... [N m s^2/rad^2 for revolute joints].
        - centrifugal: coefficients of qd_1^2, qd_2^2, ...
        - pairs: pairs (j, k) of joints, counted from 0, in the order of the columns of `coriolis`.
    """
    symbols = christoffel_symbols(chain, q)
    j, k = np.triu_indices(chain.nv, 1)
    return VelocityProducts(symbols[:, j, k] + symbols[:, k, j], jnp.diagonal(symbols, axis1=1, axis2=2))


@compiled
@defined_by(rnea.coriolis_matrix)
def coriolis_matrix(chain: Chain, q: Position, qd: Velocity) -> Float[Array, "nv nv"]:
    """Coriolis matrix C(q, qd), C_ij = sum_k Gamma_ijk qd_k with Gamma = `christoffel_symbols`, O(n depth) [N m s/rad].

    dM/dt - 2 C is skew-symmetric, and C qd = c with c = `coriolis_force`. C is computed as (d c / d qd) / 2, which is
    exact because c is quadratic in qd and Gamma_ijk is symmetric in j and k. For quaternion joints, M dB/dt is
    subtracted, as in `christoffel_symbols`; both properties still hold.
    """
    links, x = place(chain, q)
    pairs, turning = pairs_of(links.topology.parents), chain.topology.has_curved_joints
    above, below, *mass = coriolis_entries(links, x, joint_rates(chain, qd), turning)
    matrix = by_coordinates(chain, spread_sides(pairs, above, below))
    if not turning:
        return matrix
    return matrix - times_rate_matrix(chain, by_coordinates(chain, spread(pairs.symmetric, *mass)), qd)


@by_batch(size=entries_size)
def coriolis_entries(
    chain: Chain, q: PerLink, qd: PerLink, mass: bool = False
) -> tuple[Float[Array, "entries *#lanes"], ...]:
    """Half of d tau / d qd at qdd = 0 without gravity, for `spread_sides`; with `mass`, also the links' mass matrix."""
    s, inertia, hops, _ = screws_and_inertias(chain, q)

    def out(parent, _: Link, x):
        s, inertia, step, rate = x
        v = twist_at(step, parent)
        twist = add(v, scale(rate, s))
        return twist, (v, velocity_moments(inertia, twist), carried_wrench(inertia, twist)[3:])

    (zero,) = zeros(1, (q, qd), (chain.inertia,))
    v, moments, p = outward(chain, q, out, (zero,) * 6, (s, inertia, hops.step, qd))
    first = twist_bracket(v, s)

    def gather(children, _: Link, x):
        children, last = children
        own, (s, first), stretch = x
        inertia, moments, p = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        carried = carried_wrench(inertia, s)
        transposed = add(coriolis_turn(unrotate, moments, s), cross(p, s[3:]))
        moved = add(carried_wrench(inertia, first), scale(0.5, coriolis_wrench(moments, p, s)))
        at_parent = moved_system(stretch.step, inertia, moments, p)
        return Beside(at_parent, from_parent), (carried, transposed, moved, to_pivot)

    own = (inertia, moments, p)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, p))
    inputs = (own, (s, first), stretches(chain, hops))
    momenta, transposed, by_velocity, r = inward(chain, q, gather, nothing, inputs)
    of_carried = (wrench_at(r, momenta), transposed, wrench_at(r, by_velocity))

    def entries(of_carrier, of_carried, same):
        s, first = of_carrier
        carried, transposed, moved = of_carried
        found = (dot((*carried, *transposed), (*first, *s[:3])),), (dot(s, moved),)
        return (*found, (dot(carried, s),)) if mass else found

    return over_pairs(pairs_of(chain.topology.parents), entries, (twist_at(r, s), twist_at(r, first)), of_carried)


class MatrixForm(NamedTuple):
    """The result of `matrix_form`, which describes it."""

    screws: Float[Array, "6n n"]
    inertias: Float[Array, "6n 6n"]
    transport: Float[Array, "6n 6n"]
    propagation: Float[Array, "6n 6n"]
    base_twist: Float[Array, " 6n"]
    base_acceleration: Float[Array, " 6n"]
    tip_wrench: Float[Array, " 6n"]
    twists: Float[Array, " 6n"]
    accelerations: Float[Array, " 6n"]
    wrenches: Float[Array, " 6n"]
    mass_matrix: Float[Array, "n n"]
    velocity_force: Float[Array, " n"]
    gravity_force: Float[Array, " n"]
    tip_force: Float[Array, " n"]
    torques: Float[Array, " n"]


@compiled
def matrix_form(
    chain: Chain,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    base_twist: Float[Array, "6"] | None = None,
    base_acceleration: Float[Array, "6"] | None = None,
    wrench_by_tip: Wrench | None = None,
) -> MatrixForm:
    """All terms of the dynamics as matrix products, O(n^3); the velocity terms contain no derivatives of M.

    Armature, rotors and friction are not included. If the base moves, `velocity_force` includes the terms that depend
    on its velocity, and `gravity_force` those that depend on its acceleration. The equations differ from those printed
    in Lynch & Park 2017, sec. 8.4: the joint screw is in the link frame, A_i = Ad_{M_i^-1} S_i; the base acceleration
    is (0, -g), where the gravity vector g points down; and ad_{A qd} has a minus sign, because [V_i, A_i qd_i] equals
    -ad_{A_i qd_i} V_i. Stacked quantities have six rows per link, in the link frames and SI units.

    Args:
        base_twist: twist V_0 = (w, v) of the base in its own frame [rad/s, m/s].
        base_acceleration: spatial acceleration dV_0/dt of the base in its own frame, without gravity [rad/s^2, m/s^2].
        wrench_by_tip: wrench F_t = (n, f) that the tip exerts on the world, in the tip's frame [N m, N].

    Returns:
        - screws: block-diagonal matrix A of the joint screws A_i.
        - inertias: block-diagonal matrix G of the spatial inertias.
        - transport: matrix Gamma, with Ad_{T_ip} in the row of link i and the column of its parent p; Gamma^n = 0.
        - propagation: matrix L = (1 - Gamma)^-1, with Ad_{T_ij} in row i and column j if j is i or an ancestor of i.
        - base_twist: vector V_base, with Ad_{T_i0} V_0 in the rows of links attached to the base.
        - base_acceleration: vector dV_base, with Ad_{T_i0} (dV_0 + (0, -g)) in the rows of links attached to the base.
        - tip_wrench: vector F_tip, with Ad_{T_ti}^T F_t in the rows of the tip's link (F_t acts on the world).
        - twists: link twists V = L (A qd + V_base).
        - accelerations: link accelerations dV = L (A qdd - ad_{A qd} (Gamma V + V_base) + dV_base), including -g.
        - wrenches: joint wrenches F = L^T (G dV - ad_V^T G V + F_tip).
        - mass_matrix: mass matrix M = A^T L^T G L A.
        - velocity_force: velocity torques c = A^T L^T (G L (-ad_{A qd}) (Gamma V + V_base) - ad_V^T G V).
        - gravity_force: gravity torques g = A^T L^T G L dV_base.
        - tip_force: torques due to the wrench at the tip, J^T F_t = A^T L^T F_tip.
        - torques: joint torques tau = A^T F = M qdd + c + g + J^T F_t.

    Raises:
        ModelError: the chain has quaternion joints or a coupling.
    """
    if not is_ordinary(chain):
        raise ModelError("matrix_form supports ordinary joints only, without quaternion joints or couplings")
    n, parents = chain.n, chain.topology.parents
    poses = link_poses(chain, q)
    dtype = jnp.result_type(poses, qd, qdd)
    blocks = _adjoints(poses)
    mask = jnp.asarray(ancestor_mask(parents).T)[:, :, None, None]
    direct = np.arange(n) == np.array(parents)[:, None]
    zero = jnp.zeros_like(blocks)
    transport = _matrix(jnp.where(jnp.asarray(direct)[:, :, None, None], blocks, zero))
    propagation = _matrix(jnp.where(mask, blocks, zero))
    screws = _diagonal(chain.screw[:, :, None].astype(dtype))
    inertias = _diagonal(jax.vmap(spatial_inertia)(chain.inertia).astype(dtype))
    base = jnp.eye(4, dtype=dtype) if chain.base_pose is None else chain.base_pose.astype(dtype)
    on_base = jnp.asarray(np.array(parents) < 0, dtype)[:, None]

    def from_base(motion: Array) -> Array:
        carried = jax.vmap(lambda t: adjoint(pose_inverse(t) @ base) @ motion)(poses)
        return (on_base * carried).reshape(-1)

    still = jnp.zeros(6, dtype)
    minus_gravity = jnp.concatenate([jnp.zeros(3, dtype), -base_gravity(chain).astype(dtype)])
    twist = from_base(still if base_twist is None else base_twist)
    acceleration = from_base(minus_gravity if base_acceleration is None else minus_gravity + base_acceleration)
    acting = link_wrenches(chain, None, wrench_by_tip)
    tip = jnp.zeros(6 * n, dtype) if acting is None else -acting.reshape(-1)

    twists = propagation @ (screws @ qd + twist)
    turn = -_diagonal(jax.vmap(twist_cross)((screws @ qd).reshape(n, 6))) @ (transport @ twists + twist)
    gyroscopic = -_diagonal(jax.vmap(twist_cross)(twists.reshape(n, 6))).T @ (inertias @ twists)
    accelerations = propagation @ (screws @ qdd + turn + acceleration)
    wrenches = propagation.T @ (inertias @ accelerations + gyroscopic + tip)
    inward = screws.T @ propagation.T
    return MatrixForm(
        screws=screws,
        inertias=inertias,
        transport=transport,
        propagation=propagation,
        base_twist=twist,
        base_acceleration=acceleration,
        tip_wrench=tip,
        twists=twists,
        accelerations=accelerations,
        wrenches=wrenches,
        mass_matrix=inward @ inertias @ propagation @ screws,
        velocity_force=inward @ (inertias @ propagation @ turn + gyroscopic),
        gravity_force=inward @ inertias @ propagation @ acceleration,
        tip_force=inward @ tip,
        torques=screws.T @ wrenches,
    )


def _adjoints(poses: Float[Array, "n 4 4"]) -> Float[Array, "n n 6 6"]:
    """Ad_{T_ij} of every pair of links."""
    return jax.vmap(lambda a: jax.vmap(lambda b: adjoint(pose_inverse(a) @ b))(poses))(poses)


def _matrix(blocks: Float[Array, "n m a b"]) -> Float[Array, "rows columns"]:
    n, m, a, b = blocks.shape
    return blocks.transpose(0, 2, 1, 3).reshape(n * a, m * b)


def _diagonal(blocks: Float[Array, "n a b"]) -> Float[Array, "rows columns"]:
    return _matrix(jnp.eye(len(blocks), dtype=blocks.dtype)[:, :, None, None] * blocks[:, None])


class Decomposition(NamedTuple):
    """The result of `decomposition`, which describes it."""

    rotational_mass_matrix: Float[Array, "nv nv"]
    translational_mass_matrix: Float[Array, "nv nv"]
    rotational_coriolis_matrix: Float[Array, "nv nv"]
    translational_coriolis_matrix: Float[Array, "nv nv"]
    gravity_force: Float[Array, " nv"]


@compiled
def decomposition(chain: Chain, q: Position, qd: Velocity) -> Decomposition:
    """Decomposition of M and C into rotational terms D_w and C_w and translational terms D_v and C_v, and g, O(n^3).

    In world axes, w_i = Jw_i qd is the angular velocity of link i, dp_i/dt = Jv_i qd is the velocity of its centre of
    mass, and I_i is its inertia about the centre of mass (the cross-product method; Shih et al. 2012, sec. 2.2 and 3).
    D_w + D_v is the mass matrix without armature and rotors.

    The sum C = C_w + C_v satisfies C qd = `coriolis_force`. dM/dt - 2 C, dD_w/dt - 2 C_w and dD_v/dt - 2 C_v are each
    skew-symmetric. If three joints rotate a link about independent axes, C differs from `coriolis_matrix`.

    Returns:
        - rotational_mass_matrix: D_w = sum_i Jw_i^T I_i Jw_i [kg m^2].
        - translational_mass_matrix: D_v = sum_i m_i Jv_i^T Jv_i [kg m^2].
        - rotational_coriolis_matrix: C_w = sum_i Jw_i^T (I_i dJw_i/dt + w_i x I_i Jw_i) [N m s/rad].
        - translational_coriolis_matrix: C_v = sum_i m_i Jv_i^T dJv_i/dt [N m s/rad].
        - gravity_force: g = -sum_i m_i Jv_i^T gravity [N m].
    """
    mass, com, inertia = jax.vmap(inertial_parameters_to_com)(chain.inertia)
    carries = jnp.asarray(ancestor_mask(chain.topology.parents).T)[:, None, :]  # [link, 1, joint]

    def jacobians(time):
        poses = forward_kinematics(chain, integrate(chain, q, time * qd))
        rotation = poses[:, :3, :3]
        centres = poses[:, :3, 3] + jnp.einsum("nij,nj->ni", rotation, com)
        screws = jnp.einsum("nij,nj->in", jax.vmap(adjoint)(poses), chain.screw.astype(poses.dtype))
        angular, linear = jnp.broadcast_to(screws[None, :3], (chain.n, 3, chain.n)), screws[None, 3:]
        linear = linear - jax.vmap(skew)(centres) @ angular
        jw, jv = (joints_of(chain, jnp.where(carries, x, jnp.zeros_like(x))) for x in (angular, linear))
        return jw, jv, rotation

    zero, one = jnp.zeros((), qd.dtype), jnp.ones((), qd.dtype)
    (jw, jv, rotation), (djw, djv, _) = jax.jvp(jacobians, (zero,), (one,))
    inertia = rotation @ inertia @ rotation.transpose(0, 2, 1)
    gyroscopic = jax.vmap(skew)(jw @ qd) @ inertia @ jw
    together = lambda a, b: jnp.einsum("nij,nik->jk", a, b)
    weighted = mass[:, None, None] * jv
    return Decomposition(
        rotational_mass_matrix=together(jw, inertia @ jw),
        translational_mass_matrix=together(jv, weighted),
        rotational_coriolis_matrix=together(jw, inertia @ djw + gyroscopic),
        translational_coriolis_matrix=together(weighted, djv),
        gravity_force=-jnp.einsum("nij,i->j", weighted, chain.gravity),
    )
