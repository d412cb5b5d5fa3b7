"""Inverse inertias of links and velocities, which MuJoCo uses to scale the softness of constraints."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics.composite_body import mass_matrix_inverse
from ..dynamics.kinematics import forward_kinematics, link_twists
from ..model.chain import Chain, layout
from ..model.configuration import neutral_configuration


def inverse_weights(chain: Chain) -> tuple[Float[Array, "n 2"], Float[Array, " nv"]]:
    """Inverse inertias of links (translation of the centre of mass [1/kg], rotation [1/(kg m^2)]) and of velocities.

    These are MuJoCo's `invweight0`, at the neutral configuration: a third of the traces of both blocks of J M^-1 J^T, and the
    diagonal of M^-1, averaged over the three rotations and the three translations of a quaternion joint.
    """
    q = neutral_configuration(chain)
    inverse = mass_matrix_inverse(chain, q)
    poses = forward_kinematics(chain, q)
    mass, first = chain.inertia[:, 0], chain.inertia[:, 1:4]
    centre = first / jnp.where(mass > 0, mass, 1)[:, None]
    point = jnp.einsum("nij,nj->ni", poses[:, :3, :3], centre) + poses[:, :3, 3]
    twists = jax.jacfwd(lambda v: link_twists(chain, q, v, "space"))(jnp.zeros(chain.nv, q.dtype))
    linear = twists[:, 3:] + jnp.cross(twists[:, :3], point[:, :, None], axis=1)
    third = lambda j: jnp.einsum("nki,ij,nkj->n", j, inverse, j) / 3
    diagonal = jnp.diag(inverse)
    for joint in layout(chain).curved:
        for start in range(joint.columns.start, joint.columns.stop, 3):
            part = slice(start, start + 3)
            diagonal = diagonal.at[part].set(diagonal[part].mean())
    return jnp.stack([third(linear), third(twists[:, :3])], axis=1), diagonal
