"""Accelerations of links and frames, by one sweep."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain, frame_index
from ...model._compiled import compiled
from ...model._joints import Link
from ...spatial._components import zeros
from .._lowering import by_batch
from .._recursions.newton_euler import accelerate
from .._recursions.sweep import outward
from .coordinates import joint_accelerations, joint_rates, place
from .forward_kinematics import link_poses


@compiled
def frame_acceleration(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    a: Float[Array, " nv"],
    frame: str | None = None,
) -> Float[Array, "6"]:
    """dV/dt = J a + dJ/dt v of a frame's twist in world axes, v that of its origin ("mixed"), O(n), without Jacobians.

    The linear part is the origin's acceleration as an accelerometer that does not feel gravity has it [rad/s^2, m/s^2].

    Args:
        frame: link or frame; the chain's tip where None.

    Raises:
        ModelError: no such frame.
    """
    link, k = frame_index(chain, frame)
    links, x = place(chain, q)
    motions = _link_motions(links, x, joint_rates(chain, v), joint_accelerations(chain, v, a))
    if link < 0:
        return jnp.zeros(6, motions.dtype)
    rotation = link_poses(links, x)[link, :3, :3]
    w, dw, linear = motions[link].reshape(3, 3)
    if k is not None:
        p = chain.frame_poses[k, :3, 3].astype(motions.dtype)
        linear = linear + jnp.cross(dw, p) + jnp.cross(w, jnp.cross(w, p))
    return jnp.concatenate([rotation @ dw, rotation @ linear])


@by_batch(size=lambda chain: 100 + 20 * chain.n)
def _link_motions(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    rates: Float[Array, "n *#lanes"],
    accelerations: Float[Array, "n *#lanes"],
) -> Float[Array, "n 9 *#lanes"]:
    """Angular velocity, its rate and the origin's acceleration of every link in its own axes, of ordinary joints."""

    def out(parent, link: Link, inputs):
        motion = accelerate(parent, link, *inputs)
        return motion, tuple(component for part in motion for component in part)

    zero = zeros(3, (x, rates, accelerations), (), (chain.rotation,))
    return jnp.stack(outward(chain, x, out, (zero, zero, zero), (rates, accelerations)), axis=1)
