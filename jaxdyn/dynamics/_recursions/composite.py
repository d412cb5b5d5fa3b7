"""Composite inertias, as sums of the inertias of several bodies in the world frame."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._joints import Link
from ...spatial._components import add, cross, dot, rotate, scale, sub, sym_apply, sym_congruence, zeros
from .poses import start_pose, walk
from .sweep import inward, outward


def composite_momenta(chain: Chain, q: Float[Array, "n *lanes"]):
    """Screw of every joint, and momentum (l, p) of all links that the joint carries at unit rate, in the world frame.

    The momentum is G^c_j A_j about the world's origin, with the composite inertia G^c_j and the screw A_j. Screws and momenta
    are tuples of components, each an array over links.
    """
    axes, inertias = world_screws_and_inertias(chain, q)

    def compose(children, link, x):
        axis, inertia = x
        composite = add(children, inertia)
        return composite, momentum(composite, axis[:3], axis[3:])

    momenta = inward(chain, q, compose, zeros(10, (*axes, *inertias)), (axes, inertias))
    return axes, momenta


def momentum(inertia, w, v):
    """Momentum (l, p) = G (w, v) of a body with given inertial parameters: l = I w + h x v, p = m v - h x w."""
    mass, h = inertia[0], inertia[1:4]
    return add(sym_apply(inertia[4:10], w), cross(h, v)), sub(scale(mass, v), cross(h, w))


def move_inertia(rotation, p, inertia):
    """Ten inertial parameters of a body in frame a, from those in frame b, whose pose in a is (R, p).

    By the parallel-axis theorem, h_a = R h + m p and I_a = R I R^T + (p . c) 1 - sym(p c^T) with c = 2 R h + m p.
    """
    mass = inertia[0]
    h = rotate(rotation, inertia[1:4])
    turned = sym_congruence(rotation, inertia[4:10])
    c = add(scale(2 * jnp.ones_like(mass), h), scale(mass, p))
    s = dot(p, c)
    half = jnp.asarray(0.5, mass.dtype)
    shift = (
        s - p[0] * c[0],
        -half * (p[0] * c[1] + p[1] * c[0]),
        s - p[1] * c[1],
        -half * (p[0] * c[2] + p[2] * c[0]),
        -half * (p[1] * c[2] + p[2] * c[1]),
        s - p[2] * c[2],
    )
    return (mass, *add(h, scale(mass, p)), *add(turned, shift))


def world_screws_and_inertias(chain: Chain, q: Float[Array, "n *lanes"]):
    """The screws of all joints and the inertial parameters of all links in the world frame, as tuples of arrays over links."""

    def out(parent, link: Link, _):
        r, p = walk(parent, link)
        w = rotate(r, link.screw[:3])
        v = add(rotate(r, link.screw[3:]), cross(p, w))
        return (r, p), ((*w, *v), move_inertia(r, p, link.inertia))

    return outward(chain, q, out, start_pose(chain, q))
