"""Conversion of user-supplied wrenches to wrenches on each link, in the link's frame."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain, frame_index
from ...model._compiled import checked
from ...spatial.se3 import adjoint, pose_inverse


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
