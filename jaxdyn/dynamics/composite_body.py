"""The mass matrix M(q), by composite rigid bodies and as a derivative of inverse dynamics; its inverse and linear solves.

Vectors of the composite-rigid-body algorithm are in world axes, but the quantities of a link are about the link's own
origin: an inertia about a distant point would lose digits. A sweep therefore moves a sum to the parent's origin before
the links are added. The products of a screw and a momentum of two links need a common point near the links that are
carried: the *pivot*, the origin of the last link before the robot branches (the pelvis of a humanoid), or of the last
link of a serial chain.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ..model.chain import Chain, Position, ancestor_mask
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, cross, dot, rotate, scale, sub, sym_apply, sym_congruence, zeros
from . import rnea
from .coordinates import generalised_inertia
from .engine.kernel import defined_by
from .engine.lanes import PerLink, by_batch, sparse_jvp, spread_over_lanes
from .engine.matrices import Pairs, entries_size, jacobian_by_column, over_pairs, pairs_of, spread
from .engine.sweep import Beside, Link, hop, inward, is_known, outward, start_pose
from .newton_euler import newton_euler

Masses = Float[np.ndarray | Array, "n *#lanes"]
WHOLE = 16  # up to this number of rows, elimination of a batch in one kernel is faster than elimination by blocks
ELIMINATED = (
    24  # up to this number of velocities, elimination in a kernel is at least as fast as LAPACK (docs/design.md)
)


@compiled
@defined_by(rnea.mass_matrix)
def crba(chain: Chain, q: Position) -> Float[Array, "nv nv"]:
    """Mass matrix M(q) by the composite-rigid-body algorithm, M_ij = A_i^T G^c_j A_j, O(n depth) [kg m^2].

    G^c_j is the composite inertia of link j and all links that it carries (Walker & Orin 1982; Featherstone 2008, sec.
    6.2). M_ij = 0 if neither of the joints i and j carries the other. The result equals that of `mass_matrix`.
    """
    links, x = place(chain, q)
    pairs = pairs_of(links.topology.parents)
    masses = carried_masses(links.topology.parents, links.inertia)
    return generalised_inertia(chain, spread(pairs.symmetric, crba_entries(links, x, masses)))


@by_batch(size=entries_size)
def crba_entries(chain: Chain, x: PerLink, masses: Masses) -> Float[Array, "entries *#lanes"]:
    """Entries of the mass matrix, including armature, from composite bodies, in the order of `pairs_of`."""
    composite = composite_momenta(chain, x, masses)
    return mass_entries(pairs_of(chain.topology.parents), composite.screw, composite.momentum, chain.armature)


def mass_entries(pairs: Pairs, screws, momenta, armature: Array) -> Float[Array, "entries *#lanes"]:
    """Entries of the mass matrix from the screw of the carrier and the momentum of what the carried joint moves."""

    def entry(screw, of_carried, same):
        momentum, armature = of_carried
        return ((dot(screw, momentum) + jnp.where(same, armature, jnp.zeros_like(armature)),),)

    return over_pairs(pairs, entry, screws, (momenta, spread_over_lanes(armature)))[0]


@compiled
@defined_by(rnea.mass_matrix)
def mass_matrix(chain: Chain, q: Position) -> Float[Array, "nv nv"]:
    """Mass matrix M(q) = d inverse_dynamics / d qdd, by forward-mode differentiation of Newton-Euler, O(n^2) [kg m^2].

    The diagonal includes the armature. Lynch & Park (2017, sec. 8.5) compute the columns by inverse dynamics. `crba`
    computes the same matrix by another algorithm.
    """
    links, x = place(chain, q)
    return generalised_inertia(chain, link_mass_matrix(links, x) + jnp.diag(chain.armature))


@by_batch(size=lambda chain: max(100 + 80 * chain.n, 2 * chain.n**2))
def link_mass_matrix(chain: Chain, x: PerLink) -> Float[Array, "n n *#lanes"]:
    """Mass matrix of the rigid links, without armature, of a chain with ordinary joints."""
    zero, no_gravity = jnp.zeros_like(x, jnp.result_type(x, chain.inertia)), jnp.zeros_like(chain.gravity)
    return jacobian_by_column(lambda qdd: newton_euler(chain, x, zero, qdd, no_gravity, None), zero)


def carried_masses(
    parents: tuple[int, ...], inertia: Float[np.ndarray | Array, "n 10 *lanes"]
) -> Float[np.ndarray | Array, "n *lanes"]:
    """Mass of every link and all links that it carries; like `link_rows`, computed with NumPy if it is concrete."""
    carries, mass = ancestor_mask(parents), inertia[:, 0]
    if is_known(inertia):
        return carries @ np.asarray(inertia)[:, 0]
    return jnp.where(carries.reshape(*carries.shape, *(1,) * (mass.ndim - 1)), mass, 0).sum(1)


class Trunks(NamedTuple):
    """The links before a robot branches, except the last one of each trunk (`before`), and those outside trunks (`beyond`)."""

    before: np.ndarray
    beyond: np.ndarray


@functools.lru_cache(maxsize=256)
def trunks_of(parents: tuple[int, ...]) -> Trunks:
    """Return the `Trunks` of a tree whose parents are given as in `Topology`."""
    single = np.bincount(np.array(parents, int) + 1, minlength=len(parents) + 1)[1:] == 1
    beyond = np.zeros(len(parents), bool)
    for i, p in enumerate(parents):
        beyond[i] = p >= 0 and (beyond[p] or not single[p])
    return Trunks(single & ~beyond, beyond)


class Momenta(NamedTuple):
    """Results of `composite_momenta`: tuples of components in world axes, each an array over links."""

    screw: tuple[Array, ...]  # of the joint, about the pivot
    momentum: tuple[Array, ...]  # (l, p) of all links that the joint carries at unit rate, about the pivot
    moment: tuple[Array, ...]  # first moment of these links about the pivot, sum m_i (c_i - pivot)
    to_pivot: tuple[Array, ...]  # from the link's origin
    from_parent: tuple[Array, ...]  # from the parent's origin to the pivot


def composite_momenta(chain: Chain, q: Float[Array, "n ..."], masses: Masses) -> Momenta:
    """Screws A_j and momenta G^c_j A_j of all joints, with composite inertias G^c_j, for the `carried_masses`."""
    axes, inertias, hops, _ = screws_and_inertias(chain, q)

    def compose(children, link, x):
        axis, own, mass, stretch = x
        composite = (mass, *add(children.total, own))
        to_pivot, from_parent = reach(stretch, children.last)
        moment = sub(composite[1:4], scale(mass, to_pivot))
        carried = wrench_at(to_pivot, carried_wrench(composite, axis))
        found = Momenta(twist_at(to_pivot, axis), carried, moment, to_pivot, from_parent)
        return Beside(moved_inertia(stretch.step, composite)[1:], from_parent), found, composite[1:]

    zero = zeros(12, (*axes, *inertias))
    inputs = axes, inertias[1:], masses, stretches(chain, hops)
    return inward(chain, q, compose, Beside(zero[:9], zero[9:]), inputs, shares=True)


class Hops(NamedTuple):
    """Vectors between the origins of links, in world axes, as tuples of components."""

    step: tuple[Array, ...]  # from the origin of the parent to that of the link
    # from the pivot to the link, or zero for links between the base and the pivot; None if there are only such links
    beyond: tuple[Array, ...] | None


def screws_and_inertias(chain: Chain, q: Float[Array, "n *lanes"]):
    """Joint screws and inertial parameters of all links in world axes, the `Hops` between them, and their rotations."""

    def out(parent, link: Link, outside):
        rotation, beyond = parent
        r, step = hop(rotation, link)
        if outside is not None:
            beyond = tuple(jnp.where(outside, x + y, jnp.zeros_like(x)) for x, y in zip(beyond, step, strict=True))
        screw = (*rotate(r, link.screw[:3]), *rotate(r, link.screw[3:]))
        shared = () if outside is None else (*rotation, *parent[1])
        return (r, beyond), (screw, turned_inertia(r, link.inertia), Hops(step, beyond), r), shared

    beyond = trunks_of(chain.topology.parents).beyond
    outside = beyond if beyond.any() else None
    rotation, position = start_pose(chain, q)
    start = (rotation, None if outside is None else tuple(jnp.zeros_like(x) for x in position))
    return outward(chain, q, out, start, outside, shares=True)


class Stretch(NamedTuple):
    """Inputs of an inward sweep for `reach`: the fields of `Hops`, and `Trunks.before`, or None for a serial chain."""

    step: tuple[Array, ...]
    beyond: tuple[Array, ...] | None
    before: np.ndarray | None


def stretches(chain: Chain, hops: Hops) -> Stretch:
    """The `Stretch` of every link."""
    before = trunks_of(chain.topology.parents).before
    return Stretch(*hops, None if before[:-1].all() else before)


def reach(stretch: Stretch, to_pivot):
    """Vectors to the pivot, from a link and from its parent, given the vector that the child hands over (`Beside.last`)."""
    if stretch.before is not None:
        beyond = tuple(jnp.zeros_like(x) for x in to_pivot) if stretch.beyond is None else stretch.beyond
        to_pivot = tuple(jnp.where(stretch.before, x, -y) for x, y in zip(to_pivot, beyond, strict=True))
    return to_pivot, add(to_pivot, stretch.step)


def twist_at(r, x):
    """A twist at the point that is at r from the point of the given twist."""
    return (*x[:3], *add(x[3:], cross(x[:3], r)))


def wrench_at(r, x):
    """A wrench or momentum about the point that is at r from the point of the given one."""
    return (*add(x[:3], cross(x[3:], r)), *x[3:])


def wrench_from(p, x):
    """A wrench about a point, from the wrench about another point, which is at p from the first."""
    return (*add(x[:3], cross(p, x[3:])), *x[3:])


def momentum(inertia, w, v):
    """Momentum (l, p) = G (w, v) of a body with given inertial parameters: l = I w + h x v, p = m v - h x w."""
    mass, h = inertia[0], inertia[1:4]
    return add(sym_apply(inertia[4:10], w), cross(h, v)), sub(scale(mass, v), cross(h, w))


def carried_wrench(inertia, x):
    """The wrench I x of an inertia I and a twist x, as a tuple of six components."""
    angular, linear = momentum(inertia, x[:3], x[3:])
    return (*angular, *linear)


def turned_inertia(rotation, inertia):
    """Ten inertial parameters of a body in the axes of frame a, from those in frame b with the same origin."""
    return (inertia[0], *rotate(rotation, inertia[1:4]), *sym_congruence(rotation, inertia[4:10]))


def moved_inertia(p, inertia):
    """Ten inertial parameters of a body about a point, from those about another point, which is at p from the first."""
    # parallel axes: h_a = h + m p and I_a = I + 2 (p . g) 1 - p g^T - g p^T with g = h + m p / 2
    mass, h = inertia[0], inertia[1:4]
    to = add(h, scale(mass, p))
    c = add(h, to)
    half = jnp.asarray(0.5, mass.dtype)
    x, y, z = (p[i] * c[i] for i in range(3))
    shift = (
        y + z,
        -half * (p[0] * c[1] + p[1] * c[0]),
        x + z,
        -half * (p[0] * c[2] + p[2] * c[0]),
        -half * (p[1] * c[2] + p[2] * c[1]),
        x + y,
    )
    return (mass, *to, *add(inertia[4:10], shift))


@compiled
def mass_matrix_inverse(chain: Chain, q: Position) -> Float[Array, "nv nv"]:
    """Inverse M(q)^-1 of the mass matrix, by `crba` and elimination, O(n^3) but fast for small n [1/(kg m^2)].

    The derivative of the inverse is computed as -M^-1 dM M^-1. If M(q) is singular, the result is meaningless (huge,
    infinite or NaN).
    """
    return _inverse(chain, q)


@jax.custom_jvp
def _inverse(chain: Chain, q: Array) -> Array:
    return inverse_of_mass_matrix(crba(chain, q))


def _inverse_jvp(primals, tangents):
    inverse = _inverse(*primals)
    _, change = sparse_jvp(crba, primals, tangents)
    return inverse, -inverse @ change @ inverse


_inverse.defjvp(_inverse_jvp, symbolic_zeros=True)


def inverse_of_mass_matrix(matrix: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
    """The inverse of a symmetric positive definite matrix, by elimination, or by blocks beyond 16 rows."""
    n = matrix.shape[0]
    if n <= WHOLE:
        return positive_inverse(matrix)
    first, second = slice(0, n // 2), slice(n // 2, n)
    upper = inverse_of_mass_matrix(matrix[first, first])
    x = upper @ matrix[first, second]
    lower = inverse_of_mass_matrix(matrix[second, second] - x.T @ matrix[first, second])
    beside = -x @ lower
    return jnp.block([[upper - beside @ x.T, beside], [beside.T, lower]])


@by_batch(size=lambda matrix: 6 * matrix.shape[0] ** 2)
def positive_inverse(matrix: Float[Array, "n n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """The inverse of a symmetric positive definite matrix, by one symmetric sweep per row (Goodnight 1979), O(n^3)."""
    n = matrix.shape[0]

    def body(a, k):
        row = a[k]
        pivot = row[k][None]
        here = (jnp.arange(n) == k).reshape(n, *(1,) * (a.ndim - 2))
        # with 1 in place of the pivot, one product also yields the row and the column of the pivot
        scaled = jnp.where(here, -jnp.ones_like(row), row) / pivot
        kept = jnp.where(here[:, None] | here[None], jnp.zeros_like(a), a)
        return kept - jnp.where(here, -jnp.ones_like(row), row)[:, None] * scaled[None], None

    return -jax.lax.scan(body, matrix, jnp.arange(n))[0]


@compiled
def mass_matrix_solve(chain: Chain, q: Position, b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Solution x of M(q) x = b, O(n^3).

    Robots with up to 24 velocities use `mass_matrix_inverse`; larger robots use a Cholesky factor of the mass matrix.
    """
    if chain.nv <= ELIMINATED:
        return mass_matrix_inverse(chain, q) @ b
    return cho_solve(cho_factor(crba(chain, q), lower=True), b)
