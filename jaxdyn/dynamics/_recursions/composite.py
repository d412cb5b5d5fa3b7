"""Composite inertias, as sums of the inertias of several bodies in world axes.

All vectors are in world axes, but the quantities of a link are about the link's own origin: an inertia about a distant point
would lose the digits in which it differs from that of a particle. A sweep therefore carries the vector from the origin of the
parent to that of the link, and moves a sum to the parent's origin before the links are added. The products of a screw and a
momentum of two links need a common point, which must be close to the links that are carried. It is the origin of the last link
of their branch (`branches_of`) if both are in one branch, and otherwise that of the last link of the branch at the base.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._joints import Link
from ...model._tree import branches_of
from ...spatial._components import add, cross, rotate, scale, sub, sym_apply, sym_congruence, zeros
from .poses import hop, start_pose
from .sweep import inward, outward


class Hops(NamedTuple):
    """Vectors between the origins of links, in world axes, as tuples of components.

    Attributes:
        step: from the origin of the parent to that of the link.
        beyond: from the last link of the branch at the base to the link, or zero for the links of that branch; None if no link
            is outside such a branch.
    """

    step: tuple[Array, ...]
    beyond: tuple[Array, ...] | None


class Points(NamedTuple):
    """Vectors from the origins of the links to the points about which pairs of links are evaluated.

    Attributes:
        branch: to the last link of the link's branch.
        base: to the last link of the branch at the base; None if no link is outside such a branch.
    """

    branch: tuple[Array, ...]
    base: tuple[Array, ...] | None


def composite_momenta(chain: Chain, q: Float[Array, "n *lanes"]):
    """Screw of every joint, momentum (l, p) of all links that the joint carries at unit rate, and the `Points` of the links.

    The momentum is G^c_j A_j with the composite inertia G^c_j and the screw A_j, about the link's origin and in world axes.
    Screws and momenta are tuples of components, each an array over links.
    """
    axes, inertias, hops, _ = screws_and_inertias(chain, q)

    def compose(children, link, x):
        beyond, inertia = children
        (axis, own), stretch = x
        composite = add(inertia, own)
        beyond, at_parent = reach(stretch, beyond)
        found = carried_wrench(composite, axis), beyond
        return (at_parent, moved_inertia(stretch[0], composite)), found

    zero = zeros(13, (*axes, *inertias))
    momenta, point = inward(chain, q, compose, (zero[:3], zero[3:]), ((axes, inertias), stretches(chain, hops)))
    return axes, momenta, points(chain, hops, point)


def stretches(chain: Chain, hops: Hops):
    """The inputs of an inward sweep for `reach`: the steps, and for a tree whether the link is the last one of its branch."""
    ends = branches_of(chain.topology.parents).ends
    return (hops.step, ends) if ends.sum() > 1 else (hops.step, None)


def reach(stretch, beyond):
    """Vectors to the last link of the branch, from a link and from its parent, given the vector that the child hands over."""
    step, ends = stretch
    if ends is not None:
        beyond = tuple(jnp.where(ends, jnp.zeros_like(x), x) for x in beyond)
    return beyond, add(beyond, step)


def points(chain: Chain, hops: Hops, branch) -> Points:
    """The `Points` of the links, from the vectors to the last links of their branches."""
    if hops.beyond is None:
        return Points(branch, None)
    beyond = branches_of(chain.topology.parents).beyond
    beyond = beyond.reshape(-1, *(1,) * (branch[0].ndim - 1))
    return Points(branch, tuple(jnp.where(beyond, -x, y) for x, y in zip(hops.beyond, branch, strict=True)))


def twist_at(points: Points, x):
    """Twists of links at their points: rows for the links of a branch, followed by rows for those in other branches."""
    return (*x[:3], *_both(lambda r: add(x[3:], cross(x[:3], r)), points))


def wrench_at(points: Points, x):
    """Wrenches or momenta of links about their points, with the rows of `twist_at`."""
    return (*_both(lambda r: add(x[:3], cross(x[3:], r)), points), *x[3:])


def _both(move, points: Points):
    near = move(points.branch)
    if points.base is None:
        return near
    return tuple(jnp.concatenate(xy) for xy in zip(near, move(points.base), strict=True))


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


def moved_twist(p, x):
    """A twist at the point that is at p from the point of the given twist."""
    return (*x[:3], *add(x[3:], cross(x[:3], p)))


def moved_wrench(p, x):
    """A wrench about a point, from the wrench about another point, which is at p from the first."""
    return (*add(x[:3], cross(p, x[3:])), *x[3:])


def beyond_branch(chain: Chain) -> np.ndarray | None:
    """For an outward sweep: 1 for links outside the branches at the base, 0 for others; None if there are none."""
    beyond = branches_of(chain.topology.parents).beyond
    return beyond if beyond.any() else None


def farther(beyond, outside, step):
    """The vector from the last link of the branch at the base, from that of the parent (`Hops.beyond`)."""
    if outside is None:
        return beyond
    return tuple(jnp.where(outside, x + y, jnp.zeros_like(x)) for x, y in zip(beyond, step, strict=True))


def screws_and_inertias(chain: Chain, q: Float[Array, "n *lanes"]):
    """Joint screws and inertial parameters of all links in world axes, the `Hops` between them, and their rotations."""

    def out(parent, link: Link, outside):
        rotation, beyond = parent
        r, step = hop(rotation, link)
        beyond = farther(beyond, outside, step)
        screw = (*rotate(r, link.screw[:3]), *rotate(r, link.screw[3:]))
        return (r, beyond), (screw, turned_inertia(r, link.inertia), Hops(step, beyond), r)

    outside = beyond_branch(chain)
    rotation, position = start_pose(chain, q)
    start = (rotation, None if outside is None else tuple(jnp.zeros_like(x) for x in position))
    return outward(chain, q, out, start, outside)
