"""Acceleration of a frame, by one outward sweep."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain, frame_index
from ...model._compiled import compiled
from .._lowering import by_batch
from .._recursions.link_forces import link_motions
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
    """Acceleration dV/dt = J a + dJ/dt v of a frame in mixed coordinates, computed without Jacobians, O(n) [rad/s^2, m/s^2].

    Components are in world axes, with the angular part first. The linear part is the acceleration of the frame's origin,
    without gravity.

    Args:
        frame: name of a link or frame; by default, the chain's tip.

    Raises:
        ModelError: the frame is unknown.
    """
    link, k = frame_index(chain, frame)
    links, x = place(chain, q)
    motions = _link_motions(links, x, joint_rates(chain, v), joint_accelerations(chain, v, a), None)
    if link < 0:
        return jnp.zeros(6, motions.dtype)
    rotation = link_poses(links, x)[link, :3, :3]
    w, dw, linear = motions[link].reshape(3, 3)
    if k is not None:
        p = chain.frame_poses[k, :3, 3].astype(motions.dtype)
        linear = linear + jnp.cross(dw, p) + jnp.cross(w, jnp.cross(w, p))
    return jnp.concatenate([rotation @ dw, rotation @ linear])


_link_motions = by_batch(size=lambda chain: 100 + 20 * chain.n)(link_motions)
