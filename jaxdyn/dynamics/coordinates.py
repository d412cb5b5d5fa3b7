"""Conversion between a robot's generalised coordinates and the ordinary joints of its links, used by all recursions.

Joint rates are S v with the coupling matrix S. A quaternion joint consists of several links with local coordinates u
about the current placement (`configuration.place`). At the current placement, u = 0 and du/dt = v; elsewhere, du/dt =
B(u)^-1 v. Hence dv/dt = d2u/dt2 + g(v), where g(v) depends on the order of the screws of the joint (see `CurvedJoint`). Its
angular part is (wy wz, -wx wz, wx wy), and its linear part is w x v.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Chain, Velocity, Wrench, Wrenches, frame_index, layout
from ..model.compiled import any_axis_types, checked
from ..spatial.components import sub, unstack
from ..spatial.se3 import adjoint, pose_inverse


def joint_rates(chain: Chain, v: Velocity) -> Float[Array, " n"]:
    """Rates S v of the links' joints."""
    return v if chain.coupling is None else chain.coupling.matrix @ v


def joint_accelerations(chain: Chain, v: Velocity, a: Float[Array, " nv"]) -> Float[Array, " n"]:
    """Accelerations S (a - g(v)) of the links' joints."""
    return joint_rates(chain, a - rate_terms(chain, v) if chain.topology.has_curved_joints else a)


@any_axis_types
def rate_terms(chain: Chain, v: Velocity) -> Float[Array, " nv"]:
    """The difference g(v) between the accelerations of quaternion joints and those of their local coordinates."""
    out = jnp.zeros_like(v)
    for joint in layout(chain).curved:
        out = out.at[joint.columns].set(joint.rate_terms(v[joint.columns]))
    return out


@any_axis_types
def rate_matrix(chain: Chain, v: Velocity) -> Float[Array, "nv nv"]:
    """The matrix dB/dt at u = 0, which is linear in v and satisfies dB/dt v = g(v)."""
    out = jnp.zeros((chain.nv, chain.nv), v.dtype)
    for joint in layout(chain).curved:
        out = out.at[joint.columns, joint.columns].set(joint.rate_block(v[joint.columns]))
    return out


@any_axis_types
def times_rate_matrix(
    chain: Chain, matrix: Float[Array, "rows nv"], v: Velocity
) -> Float[Array, "rows nv"] | Float[Array, ""]:
    """The product of a matrix and `rate_matrix`, from the columns of the quaternion joints; 0 without quaternion joints."""
    total = jnp.zeros((), matrix.dtype)
    for joint in layout(chain).curved:
        beyond = chain.nv - joint.column - joint.size
        total = total + jnp.pad(
            matrix[:, joint.columns] @ joint.rate_block(v[joint.columns]), ((0, 0), (joint.column, beyond))
        )
    return total


def generalised_force(chain: Chain, torques: Float[Array, "n *columns"]) -> Float[Array, "nv *columns"]:
    """Generalised forces from joint torques: S^T tau."""
    return torques if chain.coupling is None else chain.coupling.matrix.T @ torques


def generalised_inertia(chain: Chain, matrix: Float[Array, "n n"]) -> Float[Array, "nv nv"]:
    """The mass matrix with rotors in generalised coordinates, S^T (M + R^T J R) S, from the links' mass matrix M."""
    return by_coordinates(chain, matrix + rotor_inertia(chain))


def by_coordinates(chain: Chain, matrix: Float[Array, "n n"]) -> Float[Array, "nv nv"]:
    """The matrix S^T X S, for X with one row and one column per joint; S is the coupling matrix."""
    return matrix if chain.coupling is None else chain.coupling.matrix.T @ matrix @ chain.coupling.matrix


def rotor_inertia(chain: Chain) -> Float[Array, "n n"] | Float[Array, ""]:
    """Rotor inertia reflected to the joints, R^T J R, where R is the transmission matrix; 0 without a transmission."""
    if chain.transmission is None:
        return jnp.zeros((), chain.dtype)
    ratios = chain.transmission.matrix
    return ratios.T @ (chain.transmission.rotor_inertia[:, None] * ratios)


def rotor_torques(chain: Chain, accelerations: Float[Array, " n"]) -> Float[Array, " n"] | Float[Array, ""]:
    """Torques R^T J R qdd of the rotors, where R is the transmission matrix; 0 without a transmission."""
    if chain.transmission is None:
        return jnp.zeros((), chain.dtype)
    ratios = chain.transmission.matrix
    return ratios.T @ (chain.transmission.rotor_inertia * (ratios @ accelerations))


def with_drives(chain: Chain, torques: Float[Array, " n"], a: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Generalised forces from the links' torques, with those of armature and rotors at the accelerations a."""
    # an armature resists dv/dt, also that of quaternion joints, which have no rotors
    spins = joint_rates(chain, a)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


def base_gravity(chain: Chain) -> Float[Array, "3"]:
    """The gravity vector g in the axes of the base; formulas in world axes use `chain.gravity` instead."""
    return chain.gravity if chain.base_pose is None else chain.base_pose[:3, :3].T @ chain.gravity


def base_at_rest(gravity: Array, zero: tuple[Array, ...]) -> tuple[tuple[Array, ...], ...]:
    """Angular velocity, its rate and `base_acceleration` -g of a base at rest, which acts on links like their weights."""
    base_acceleration = sub(zero, unstack(gravity))
    return zero, zero, base_acceleration


def joints_of(chain: Chain, matrix: Array) -> Array:
    """The matrix J S with one column per coordinate, from J with one column per joint; S is the coupling matrix."""
    return matrix if chain.coupling is None else matrix @ chain.coupling.matrix


@checked
def link_wrenches(
    chain: Chain, external_wrenches: Wrenches | None = None, wrench_by_tip: Wrench | None = None
) -> Float[Array, "n 6"] | None:
    """Wrenches (n, f) that act on each link, in the link's frame [N m, N]; None if there are none.

    `wrench_by_tip` is the wrench F_t of the tip on the world, in the tip's frame t. It acts on the tip's link i with
    the opposite sign, and F_i = Ad_{T_ti}^T F_t in the frame of that link.

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
