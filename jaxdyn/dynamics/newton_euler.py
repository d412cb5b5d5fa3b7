"""Conversion of user-supplied wrenches to wrenches on each link, in the link's frame.

The recursive Newton-Euler algorithm for the links of a chain: the recursion and its two step functions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Chain, frame_index
from ..model.compiled import checked
from ..model.joints import Link
from ..spatial.components import (
    add,
    cross,
    dot,
    move_wrench,
    scale,
    sub,
    sym_apply,
    unrotate,
    unstack,
    zeros,
)
from ..spatial.se3 import adjoint, pose_inverse
from .engine.sweep import inward, outward


@checked
def link_wrenches(
    chain: Chain,
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, "n 6"] | None:
    """Wrenches (n, f) that act on each link, in the link's frame; None if there are none.

    The wrench F_t of the tip on the world acts on the tip's link with the opposite sign. It is transformed from the tip
    frame t to the frame i of the link by F_i = Ad_{T_ti}^T F_t.

    Args:
        external_wrenches: wrenches on each link, in the link's frame [N m, N].
        wrench_by_tip: wrench that the tip exerts on the world, in the tip's frame [N m, N].

    Raises:
        ModelError: the wrenches do not have one row of six entries per link, or the tip is fixed to the base.
    """
    if external_wrenches is not None and jnp.shape(external_wrenches) != (chain.n, 6):
        raise ModelError(
            f"external_wrenches has shape {jnp.shape(external_wrenches)}, but must be ({chain.n}, 6)",
            "pass one row per moving link, and use jax.vmap for batches",
        )
    if wrench_by_tip is None:
        return external_wrenches
    link, frame = frame_index(chain, None)
    if link < 0:
        raise ModelError(
            "the chain's tip is fixed to the base, so a wrench at the tip cannot load the joints; omit wrench_by_tip"
        )
    on_link = -jnp.asarray(wrench_by_tip)
    if frame is not None:
        on_link = adjoint(pose_inverse(chain.frame_poses[frame])).T @ on_link
    tip_row = jnp.zeros((chain.n, 6), on_link.dtype).at[link].set(on_link)
    return tip_row if external_wrenches is None else external_wrenches + tip_row


def wrench_columns(wrenches: Float[Array, "n 6 *#lanes"] | None) -> tuple[Float[Array, "n *#lanes"], ...] | None:
    """The six components of wrenches, each as an array over links, for a sweep; None if there are no wrenches."""
    return None if wrenches is None else tuple(wrenches[:, i] for i in range(6))


# -- newton euler


def newton_euler(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    qdd: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
) -> Float[Array, "n *#lanes"]:
    """The contribution of the rigid links to `inverse_dynamics`, without armature, for a given gravity vector.

    The recursion carries the conventional acceleration a of the frame's origin instead of the spatial acceleration. The
    motion of a link then depends only on w, dw and a of its parent, and linear velocities are not needed.
    """

    def accelerations(parent, link: Link, x):
        qdi, qddi, wrench = x
        motion = accelerate(parent, link, qdi, qddi)
        moment, force = body_wrench(link.inertia, *motion)
        if wrench is not None:
            moment, force = sub(moment, wrench[:3]), sub(force, wrench[3:])
        return motion, (*moment, *force)

    zero = zeros(3, (q, qd, qdd, gravity), (chain.inertia,))
    base = (zero, zero, sub(zero, unstack(gravity)))
    wrenches_needed = outward(chain, q, accelerations, base, (qd, qdd, wrench_columns(wrenches)))
    return inward(chain, q, transmit, zero * 2, wrenches_needed)


def transmit(children, link: Link, wrench):
    """The wrench that a link passes to its parent (its own plus its children's), and the resulting joint torque."""
    wrench = add(children, wrench)
    return move_wrench(link.rotation, link.translation, wrench), dot(link.screw, wrench)


def accelerate(parent, link: Link, qd, qdd):
    """Angular velocity w, its rate dw and the origin's conventional acceleration a of a link, from those of its parent.

    w = R^T w_p + A_w qd;  dw = R^T dw_p + A_w qdd + (R^T w_p) x A_w qd;
    a = R^T (a_p + dw_p x p + w_p x (w_p x p)) + A_v qdd + (R^T w_p + w) x A_v qd.
    """
    w_parent, dw_parent, a_parent = parent
    p = link.translation
    axis, slide = link.screw[:3], link.screw[3:]
    w_before = unrotate(link.rotation, w_parent)
    spin = scale(qd, axis)
    w = add(w_before, spin)
    dw = add(unrotate(link.rotation, dw_parent), scale(qdd, axis), cross(w_before, spin))
    at_joint = add(a_parent, cross(dw_parent, p), cross(w_parent, cross(w_parent, p)))
    a = add(unrotate(link.rotation, at_joint), scale(qdd, slide), cross(add(w_before, w), scale(qd, slide)))
    return w, dw, a


def body_wrench(inertia, w, dw, a):
    """Wrench, about the frame's origin, that the motion of a body with the given ten inertial parameters requires.

    By the Newton-Euler equations, f = m a + dw x h + w x (w x h) and n = I dw + w x I w + h x a, with h = m c and the
    conventional acceleration a of the origin.
    """
    mass, h, rotational = inertia[0], inertia[1:4], inertia[4:10]
    force = add(scale(mass, a), cross(dw, h), cross(w, cross(w, h)))
    moment = add(sym_apply(rotational, dw), cross(w, sym_apply(rotational, w)), cross(h, a))
    return moment, force
