"""Independent references for the dynamics, in NumPy: the closed matrix form, and the recursive Newton-Euler algorithm.

The closed form, M = A^T L^T G L A with the corresponding c and g, follows Lynch & Park 2017, sec. 8.4. Joint screws are given
in link frames, and gravity is represented by the acceleration (0, -g) of the base. Motions are computed by `scipy.linalg.expm`
and inverses by dense linear algebra; no function of jaxdyn is used.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, expm


class ClosedForm(NamedTuple):
    """The terms of M qdd + c + g + J^T F_tip = tau, with the Jacobian J of the tip in the tip's frame."""

    mass_matrix: np.ndarray
    coriolis_force: np.ndarray
    gravity_force: np.ndarray
    jacobian: np.ndarray
    poses: np.ndarray
    twists: np.ndarray


def bracket(v: np.ndarray) -> np.ndarray:
    """The matrix [v] with [v] u = v x u."""
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def ad(v: np.ndarray) -> np.ndarray:
    """The matrix ad_v of the Lie bracket of twists."""
    return np.block([[bracket(v[:3]), np.zeros((3, 3))], [bracket(v[3:]), bracket(v[:3])]])


def adjoint(t: np.ndarray) -> np.ndarray:
    """The adjoint matrix Ad_T of a pose."""
    r = t[:3, :3]
    return np.block([[r, np.zeros((3, 3))], [bracket(t[:3, 3]) @ r, r]])


def spatial_inertia(pi: np.ndarray) -> np.ndarray:
    """The spatial inertia matrix G about the frame's origin, from the ten inertial parameters."""
    m, h = pi[0], bracket(pi[1:4])
    xx, xy, yy, xz, yz, zz = pi[4:]
    return np.block([[np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h], [h.T, m * np.eye(3)]])


def homogeneous(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """The 4x4 matrix of a pose."""
    t = np.eye(4)
    t[:3, :3], t[:3, 3] = rotation, translation
    return t


def closed_form(chain, q, qd, tip: np.ndarray | None = None) -> ClosedForm:
    """All terms of a serial chain's dynamics; `tip` is the pose of the tip in the last link's frame."""
    n = chain.n
    q, qd, gravity = (np.asarray(x) for x in (q, qd, chain.gravity))
    screws = np.asarray(chain.screw)
    poses, chained, world = [], [], np.eye(4)
    for i in range(n):
        twist = np.zeros((4, 4))
        twist[:3, :3], twist[:3, 3] = bracket(screws[i, :3]), screws[i, 3:]
        step = homogeneous(np.asarray(chain.rotation[i]), np.asarray(chain.translation[i])) @ expm(twist * q[i])
        world = world @ step
        poses.append(world)
        chained.append(adjoint(np.linalg.inv(step)))  # Ad of T_{i,i-1}
    gamma = np.zeros((6 * n, 6 * n))
    for i in range(1, n):
        gamma[6 * i : 6 * i + 6, 6 * i - 6 : 6 * i] = chained[i]
    axes = block_diag(*(s[:, None] for s in screws))  # A
    inertias = block_diag(*(spatial_inertia(pi) for pi in np.asarray(chain.inertia)))  # G
    reach = np.linalg.inv(np.eye(6 * n) - gamma)  # L
    base = np.zeros(6 * n)
    base[:6] = chained[0] @ np.concatenate([np.zeros(3), -gravity])
    twists = reach @ axes @ qd
    ad_joint = block_diag(*(ad(s * x) for s, x in zip(screws, qd, strict=True)))
    ad_link = block_diag(*(ad(v) for v in twists.reshape(n, 6)))
    to_joints = axes.T @ reach.T
    inward = -inertias @ reach @ ad_joint @ gamma - ad_link.T @ inertias  # [V, A] qd = -ad_{A qd} V
    return ClosedForm(
        mass_matrix=to_joints @ inertias @ reach @ axes + np.diag(chain.armature),
        coriolis_force=to_joints @ inward @ twists,
        gravity_force=to_joints @ inertias @ reach @ base,
        jacobian=adjoint(np.linalg.inv(np.eye(4) if tip is None else tip)) @ (reach @ axes)[-6:],
        poses=np.array(poses),
        twists=twists.reshape(n, 6),
    )


class Recursion(NamedTuple):
    """Results of the recursive Newton-Euler algorithm: V_i, dV_i (including -g), F_i and tau_i."""

    twists: np.ndarray
    accelerations: np.ndarray
    wrenches: np.ndarray
    torques: np.ndarray


def recursion(chain, q, qd, qdd, base_twist=None, base_acceleration=None, wrench_by_tip=None) -> Recursion:
    """The forward and backward iterations of Lynch & Park 2017, sec. 8.3, over a tree whose base has a prescribed motion."""
    q, qd, qdd, gravity = (np.asarray(x) for x in (q, qd, qdd, chain.gravity))
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose)
    screws, n = np.asarray(chain.screw), chain.n
    twist = np.zeros(6) if base_twist is None else np.asarray(base_twist)
    start = np.concatenate([np.zeros(3), -base[:3, :3].T @ gravity])
    start = start + (0 if base_acceleration is None else np.asarray(base_acceleration))
    v, dv, carried = [], [], []
    for i, p in enumerate(chain.topology.parents):
        bracketed = np.zeros((4, 4))
        bracketed[:3, :3], bracketed[:3, 3] = bracket(screws[i, :3]), screws[i, 3:]
        step = homogeneous(np.asarray(chain.rotation[i]), np.asarray(chain.translation[i])) @ expm(bracketed * q[i])
        carried.append(adjoint(np.linalg.inv(step)))
        before, rate = (twist, start) if p < 0 else (v[p], dv[p])
        v.append(carried[i] @ before + screws[i] * qd[i])
        dv.append(carried[i] @ rate + ad(v[i]) @ screws[i] * qd[i] + screws[i] * qdd[i])
    wrenches = np.zeros((n, 6))
    if wrench_by_tip is not None:
        tip = chain.topology.frame_names.index(chain.topology.tip_name)
        pose = np.asarray(chain.frame_poses[tip])
        wrenches[chain.topology.frame_links[tip]] = adjoint(np.linalg.inv(pose)).T @ np.asarray(wrench_by_tip)
    for i in reversed(range(n)):
        inertia = spatial_inertia(np.asarray(chain.inertia[i]))
        wrenches[i] += inertia @ dv[i] - ad(v[i]).T @ inertia @ v[i]
        if (p := chain.topology.parents[i]) >= 0:
            wrenches[p] += carried[i].T @ wrenches[i]
    return Recursion(np.array(v), np.array(dv), wrenches, (screws * wrenches).sum(1))
