"""Intermediate results of the recursive Newton-Euler algorithm: motions of all links, and wrenches at all joints."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._joints import Link
from ...spatial._components import sub, zeros
from .newton_euler import accelerate, body_wrench, transmit
from .sweep import inward, outward
from .wrench import wrench_columns


def link_motions(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    qdd: Float[Array, "n *#lanes"],
    base: Float[Array, "9 *#lanes"] | None = None,
) -> Float[Array, "n 9 *#lanes"]:
    """Motion of every link in its own axes: w, dw and the conventional acceleration a of its origin (`accelerate`).

    Args:
        base: w, dw and a of the base in its axes, where a = -gravity accounts for gravity; zero by default.
    """

    def out(parent, link: Link, inputs):
        motion = accelerate(parent, link, *inputs)
        return motion, tuple(component for part in motion for component in part)

    inputs = (q, qd, qdd) if base is None else (q, qd, qdd, base)
    still = zeros(9, inputs, (chain.screw,))
    start = still if base is None else tuple(z + base[i] for i, z in enumerate(still))
    return jnp.stack(outward(chain, q, out, (start[:3], start[3:6], start[6:]), (qd, qdd)), axis=1)


def transmitted_wrenches(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    motions: Float[Array, "n 9 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
) -> tuple[Float[Array, "n 6 *#lanes"], Float[Array, "n *#lanes"]]:
    """Wrench (n, f) that each joint exerts on its link, in the link's frame, and its component along the joint's screw.

    F_i is the sum of Ad^T F_j over the children j of link i, plus the Newton-Euler wrench of the link, minus the external
    wrench on it.
    """

    def pass_on(children, link: Link, x):
        motion, acting = x
        own = body_wrench(link.inertia, motion[:3], motion[3:6], motion[6:])
        own = (*own[0], *own[1]) if acting is None else sub((*own[0], *own[1]), acting)
        handed, torque = transmit(children, link, own)
        return handed, (*(a + b for a, b in zip(children, own, strict=True)), torque)

    columns = (tuple(motions[:, i] for i in range(9)), wrench_columns(wrenches))
    tables = (motions, chain.inertia) if wrenches is None else (motions, chain.inertia, wrenches)
    *found, torques = inward(chain, q, pass_on, zeros(6, (q,), tables), columns)
    return jnp.stack(found, axis=1), torques
