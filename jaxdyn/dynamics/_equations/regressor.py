"""The regressor Y of inverse dynamics, which is linear in the inertial parameters pi: tau = Y(q, qd, qdd) pi."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import Link
from ...model._tree import ancestor_mask
from ...spatial._components import add, cross, dot, rotate, sub, unrotate, unstack, zeros
from .._kinematics.coordinates import base_gravity, generalised_force, joint_accelerations, joint_rates, place
from .._lowering import by_batch
from .._recursions.newton_euler import accelerate
from .._recursions.pairs import over_pairs, pairs_of, spread
from .._recursions.poses import start_pose, walk
from .._recursions.sweep import outward


@compiled
def regressor(
    chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], qdd: Float[Array, " nv"]
) -> Float[Array, "nv p"]:
    """Regressor Y(q, qd, qdd) with Y pi = M_l qdd + C qd + g, the joint torques due to the links [N m or N], O(n^2).

    The parameters are pi = inertial_parameters(chain).reshape(-1), so that column 10 i + k belongs to parameter k of link i.
    The parameters of a link are m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz and Izz, about the origin of the link frame and in
    its axes. Y does not depend on the inertial parameters of the chain.

    M_l is the mass matrix of the links; the torques of `inverse_dynamics` also include armature (`drive_regressor`) and rotors
    (`motor_regressor`).

    If joint j carries link i, that is, if j is between i and the base, then Y_j,i = A_j^T Ad^T W_i, where W_i is the 6x10
    regressor of a single body (Atkeson, An & Hollerbach 1986); otherwise Y_j,i = 0. For coupled joints, Y is multiplied from
    the left by the transpose of the coupling matrix.
    """

    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    entries = regressor_entries(links, x, rates, accelerations, base_gravity(links))
    return generalised_force(chain, spread(_places(links.topology.parents), entries))


@by_batch(size=lambda chain: 100 + 2 * chain.n + 10 * pairs_of(chain.topology.parents).count)
def regressor_entries(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    rates: Float[Array, "n *#lanes"],
    accelerations: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
) -> Float[Array, "entries *#lanes"]:
    """Entries of the regressor of a chain with ordinary joints, ten for each pair in `pairs_of`."""
    of_links, of_joints = _motion(chain, x, rates, accelerations, gravity)
    entries = lambda of_joint, of_link, same: (_coefficients(of_link, of_joint),)
    return over_pairs(pairs_of(chain.topology.parents), entries, of_joints, of_links)[0]


def _places(parents: tuple[int, ...]) -> np.ndarray:
    """Indices into `regressor_entries`: [j, 10 i + k] locates the entry for joint j and parameter k of link i."""
    pairs = pairs_of(parents)
    rows = pairs.above.T[:, :, None]
    return np.where(rows < pairs.count, 10 * rows + np.arange(10), 10 * pairs.count).reshape(len(parents), -1)


# numbers of joints for which rows are computed one by one: with fewer, a group is as fast; with more, compiling takes
# too long
ROW_BY_ROW = range(4, 9)


def row_groups(n: int) -> tuple[tuple[int, int], ...]:
    """Ranges (first, stop) of joints whose rows `carried_regressor` computes together, for all links from `first` on."""
    if n in ROW_BY_ROW:
        return tuple((j, j + 1) for j in range(n))
    return ((0, n // 2), (n // 2, n)) if n >= 4 else ((0, n),)


def carried_regressor(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    rates: Float[Array, "n *#lanes"],
    accelerations: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    weights: Float[Array, "n *#lanes"],
    beside: Float[Array, "n m *#lanes"],
) -> tuple[Float[Array, "rows columns *#lanes"], ...]:
    """Rows of the regressor in groups (`row_groups`); entries for links that the joint does not carry are meaningless.

    To save time, the meaningless entries are not set to zero. Each joint's row is multiplied by the joint's weight at no extra
    cost, since the row is linear in the joint's screw. The columns `beside` are appended unchanged, without a copy of the rows.
    """
    of_links, (screws, at) = _motion(chain, x, rates, accelerations, gravity)
    of_joints = jax.tree.map(lambda s: s * weights, screws), at
    found = []
    for first, stop in row_groups(chain.n):
        links = jax.tree.map(lambda y, first=first: y[first:], of_links)

        def row(of_joint, more, links=links):
            columns = jnp.stack(_coefficients(links, jax.tree.map(lambda y: y[None], of_joint)), axis=1)
            return jnp.concatenate([columns.reshape(columns.shape[0] * columns.shape[1], *columns.shape[2:]), more])

        rows = jax.tree.map(lambda y, first=first, stop=stop: y[first:stop], (of_joints, beside))
        if stop == first + 1:
            found.append(row(*jax.tree.map(lambda y: y[0], rows))[None])
        else:
            found.append(jax.lax.scan(lambda _, z, row=row: (None, row(*z)), None, rows)[1])
    return tuple(found)


def _motion(chain: Chain, x, rates, accelerations, gravity):
    """Poses and motion of all links, and screws and origins of all joints."""

    def out(parent, link: Link, x):
        world, motion = parent
        motion = accelerate(motion, link, *x)
        r, p = walk(world, link)
        w = rotate(r, link.screw[:3])
        return ((r, p), motion), ((r, p), (w, rotate(r, link.screw[3:])), motion)

    zero = zeros(3, (x, rates, accelerations, gravity))
    up = sub(zero, unstack(gravity))
    start = (start_pose(chain, x), (zero, zero, up))
    (r, p), screws, motion = outward(chain, x, out, start, (rates, accelerations))
    return (r, p, motion), (screws, p)


def _coefficients(of_links, of_joint):
    """The ten coefficients of the links' parameters in the torque of a joint that carries them."""
    r, p, motion = of_links
    (w, v), at = of_joint
    spin, velocity = unrotate(r, w), unrotate(r, add(v, cross(w, sub(p, at))))
    return power_coefficients(spin, velocity, *motion)


def by_parameter(chain: Chain, coefficients: Sequence[Float[Array, "n n"]]) -> Float[Array, "nv p"]:
    """The regressor from the coefficients [j, i] of link i's parameters in joint j's torque, with 0 if j does not carry i."""
    mask = ancestor_mask(chain.topology.parents)
    columns = [jnp.where(mask, c, jnp.zeros_like(c)) for c in coefficients]
    return generalised_force(chain, jnp.stack(columns, axis=2).reshape(chain.n, 10 * chain.n))


def link_axes(chain: Chain, r, p):
    """Velocities (w, v) of link i's frame, in its axes, at unit rate of joint j, as components (n, n) indexed [j, i].

    r and p are the rotations and positions of the links in the base frame; each component is an array over links.
    """
    axis, slide = tuple(chain.screw[:, :3].T), tuple(chain.screw[:, 3:].T)
    w = rotate(r, axis)
    v = add(rotate(r, slide), cross(p, w))
    by_joint = lambda xs: tuple(x[:, None] for x in xs)
    by_link = lambda xs: tuple(x[None, :] for x in xs)
    angular = unrotate(by_link(r), by_joint(w))
    linear = unrotate(by_link(r), add(by_joint(v), cross(by_joint(w), by_link(p))))
    return angular, linear


def power_coefficients(spin, velocity, w, dw, a):
    """Coefficients of the ten parameters in spin . n + velocity . f, the power of a body's wrench (n, f) on a twist.

    The wrench is f = m a + dw x h + w x (w x h) and n = I dw + w x I w + h x a, with the first moment h = m c. The coefficients
    are therefore

    - velocity . a for m,
    - velocity x dw + w x (w x velocity) + a x spin for h,
    - those of spin . I dw + (spin x w) . I w for I.
    """
    by_h = add(cross(velocity, dw), cross(w, cross(w, velocity)), cross(a, spin))
    u = cross(spin, w)
    xx, yy, zz = (spin[i] * dw[i] + u[i] * w[i] for i in range(3))
    xy, xz, yz = (spin[i] * dw[j] + spin[j] * dw[i] + u[i] * w[j] + u[j] * w[i] for i, j in ((0, 1), (0, 2), (1, 2)))
    return dot(velocity, a), *by_h, xx, xy, yy, xz, yz, zz
