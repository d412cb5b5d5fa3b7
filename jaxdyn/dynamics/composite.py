"""Composite inertias, as sums of the inertias of several bodies in world axes.

All vectors are in world axes, but the quantities of a link are about the link's own origin: an inertia about a distant point
would lose the digits in which it differs from that of a particle. A sweep therefore moves a sum to the parent's origin before
the links are added. The products of a screw and a momentum of two links need a common point, which must be close to the links
that are carried: the `pivot`, the origin of the last link before the robot branches (the pelvis of a humanoid, the wrist of an
arm with several fingers), or of the last link of a serial chain. Links that do not carry each other may have different pivots.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.joints import Link
from ..model.tree import trunks_of
from ..spatial.components import add, cross, rotate, scale, sub, sym_apply, sym_congruence, zeros
from .engine.sweep import Beside, hop, inward, outward, start_pose

Masses = Float[np.ndarray | Array, "n *#lanes"]


class Hops(NamedTuple):
    """Vectors between the origins of links, in world axes, as tuples of components.

    Attributes:
        step: from the origin of the parent to that of the link.
        beyond: from the pivot to the link, or zero for links between the base and the pivot; None if there are only such links.
    """

    step: tuple[Array, ...]
    beyond: tuple[Array, ...] | None


class Momenta(NamedTuple):
    """Results of `composite_momenta`: tuples of components in world axes, each an array over links.

    Attributes:
        screw: screw of the joint, about the pivot.
        momentum: momentum (l, p) of all links that the joint carries at unit rate, about the pivot.
        moment: first moment of these links about the pivot, sum m_i (c_i - pivot).
        to_pivot: vector from the link's origin to the pivot.
        from_parent: vector from the parent's origin to the pivot.
    """

    screw: tuple[Array, ...]
    momentum: tuple[Array, ...]
    moment: tuple[Array, ...]
    to_pivot: tuple[Array, ...]
    from_parent: tuple[Array, ...]


def composite_momenta(chain: Chain, q: Float[Array, "n *lanes"], masses: Masses) -> Momenta:
    """Screws, and momenta G^c_j A_j with the composite inertia G^c_j and the screw A_j of every joint.

    Args:
        masses: result of `carried_masses`, which a kernel cannot compute: XLA may hand reductions to a library.
    """
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
    return inward(chain, q, compose, Beside(zero[:9], zero[9:]), inputs, shared=9)


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
    """Ten inertial parameters of a body about a point, from those about another point, which is at p from the first.

    By the parallel-axis theorem, h_a = h + m p and I_a = I + 2 (p . g) 1 - p g^T - g p^T with g = h + m p / 2.
    """
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


def wrench_from(p, x):
    """A wrench about a point, from the wrench about another point, which is at p from the first."""
    return (*add(x[:3], cross(p, x[3:])), *x[3:])


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
    return outward(chain, q, out, start, outside, shared=0 if outside is None else 12)
