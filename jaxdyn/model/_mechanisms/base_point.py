"""A base that translates in space, on three additional prismatic joints."""

import dataclasses
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ...errors import ModelError
from .._build import JOINT_LEAVES
from .._chain import Chain, Coupling, Topology, with_leaves

AXES = ("base_x", "base_y", "base_z")


def with_moving_base_point(chain: Chain) -> Chain:
    """Prepend the Cartesian coordinates of the base origin to those of a robot: q_e = (x0, y0, z0, q).

    The base is carried by three prismatic joints along the world axes, with massless links; it does not rotate. The mass
    matrix becomes [[m eye(3), m J_c], [m J_c^T, M(q)]], with the total mass m and the Jacobian J_c of the centre of mass. The
    first three generalised forces are the components of the force that supports the base [N].

    The third massless link takes the name of the base; the mass of the base is not included. Only the rotation of
    `base_pose` is retained, since the new coordinates replace its translation.

    Raises:
        ModelError: the robot has a free joint, so its base already moves, or a joint, link or frame with one of the new
            names.
    """
    old = chain.topology
    if any(size == 6 for _, size in old.quaternion_joints):
        raise ModelError("the robot has a free joint, whose coordinates already include the position of the base")
    links = (*AXES[:2], old.base_name)
    world = "world" if old.base_name != "world" else "fixed_world"
    taken = (set(AXES) & set(old.joint_names)) | ({*AXES[:2], world} & {*old.link_names, *old.frame_names, *links[2:]})
    if taken:
        raise ModelError(
            f"the robot has a joint, link or frame called {sorted(taken)[0]!r}, which is reserved for the base "
            "point; rename it"
        )
    topology = Topology(
        joint_names=(*AXES, *old.joint_names),
        link_names=(*links, *old.link_names),
        parents=(-1, 0, 1, *(p + 3 for p in old.parents)),
        frame_names=old.frame_names,
        frame_links=tuple(k + 3 for k in old.frame_links),
        base_name=world,
        tip_name=old.tip_name,
        quaternion_joints=tuple((link + 3, size) for link, size in old.quaternion_joints),
        coordinate_names=None if old.coordinate_names is None else (*AXES, *old.coordinate_names),
    )
    base = jnp.eye(3, dtype=chain.dtype) if chain.base_pose is None else chain.base_pose[:3, :3].astype(chain.dtype)
    straight = jnp.broadcast_to(jnp.eye(3, dtype=chain.dtype), (2, 3, 3))
    # the third link is the base: in its frame, the world's z axis is R^T e_z
    slides = jnp.concatenate([jnp.eye(2, 3, dtype=chain.dtype), base[2][None]])
    front: dict[str, Any] = {
        "rotation": jnp.concatenate([straight, base[None]]),
        "translation": 0.0,
        "screw": jnp.concatenate([jnp.zeros_like(slides), slides], axis=1),
        "inertia": 0.0,
        **JOINT_LEAVES,
    }
    longer = with_leaves(chain, {name: _stack(values, attrgetter(name)(chain)) for name, values in front.items()})
    coupling, transmission = chain.coupling, chain.transmission
    if coupling is not None:
        rows, columns = coupling.matrix.shape
        matrix = jnp.zeros((rows + 3, columns + 3), coupling.matrix.dtype).at[3:, 3:].set(coupling.matrix)
        coupling = Coupling(matrix.at[:3, :3].set(jnp.eye(3, dtype=matrix.dtype)), _stack(0.0, coupling.offset))
    if transmission is not None:
        ratios = jnp.pad(transmission.matrix, ((0, 0), (3, 0)))
        transmission = eqx.tree_at(lambda t: t.matrix, transmission, ratios)
    return dataclasses.replace(longer, topology=topology, base_pose=None, coupling=coupling, transmission=transmission)


def _stack(first: Any, rest: Array) -> Array:
    """Prepend three rows to an array; `first` contains these rows, or one value for all their entries."""
    rows = jnp.broadcast_to(jnp.asarray(first, rest.dtype), (3, *rest.shape[1:]))
    return jnp.concatenate([rows, rest])
