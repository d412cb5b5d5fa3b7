"""Steps of the outward recursion that compute a link's pose or twist from that of its parent."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._joints import Link
from ...spatial._components import add, cross, matmul, rotate, scale, sub, unrotate, zeros


def walk(parent, link: Link):
    """Pose (R, p) of a link in the world, from that of its parent: R = R_p R_pi, p = p_p + R_p p_pi."""
    rotation, position = parent
    return matmul(rotation, link.rotation), add(position, rotate(rotation, link.translation))


def walk_finely(parent, link: Link):
    """Pose of a link as (R, p, rest) with the position p + rest, from that of its parent.

    The rest is the part of the position that p has no digits for, so that (p_a - p_b) + (rest_a - rest_b) is accurate for
    nearby links at a large distance from the origin (Knuth's sum of two numbers and its rounding error).
    """
    rotation, position, rest = parent
    turned, step = hop(rotation, link)
    total = add(position, step)
    taken = sub(total, position)
    lost = add(sub(position, sub(total, taken)), sub(step, taken))
    return turned, total, add(rest, lost)


def hop(rotation, link: Link):
    """Rotation R of a link in the world, and the vector from the origin of its parent to its own, in world axes."""
    return matmul(rotation, link.rotation), rotate(rotation, link.translation)


def carry_twist(parent, link: Link, rate):
    """Twist (w, v) of a link in its frame, from the parent's twist in the parent's frame and the joint rate."""
    w_parent, v_parent = parent
    at_joint = add(v_parent, cross(w_parent, link.translation))
    w = add(unrotate(link.rotation, w_parent), scale(rate, link.screw[:3]))
    return w, add(unrotate(link.rotation, at_joint), scale(rate, link.screw[3:]))


def start_pose(chain: Chain, *inputs: Float[Array, "n *#lanes"]):
    """Pose (R, p) of the base in the world; components have the type and the lanes of the inputs of a sweep."""
    (zero,) = zeros(1, inputs, (), (chain.rotation,))
    if chain.base_pose is not None:
        t = chain.base_pose
        return tuple(t[i, j] + zero for i in range(3) for j in range(3)), tuple(t[i, 3] + zero for i in range(3))
    one = jnp.ones_like(zero)
    return (one, zero, zero, zero, one, zero, zero, zero, one), (zero, zero, zero)
