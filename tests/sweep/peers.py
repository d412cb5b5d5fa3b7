"""Results of Pinocchio and MuJoCo for a robot and state, in jaxdyn's coordinates."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin

import jaxdyn
from jaxdyn.model import layouts
from jaxdyn.model.chain import layout
from peer_models import configuration_to_pinocchio, full_mass_matrix, to_pinocchio, velocity_to_pinocchio

from .models import Model

_TWIST = [3, 4, 5, 0, 1, 2]  # Pinocchio's twists are (v, w)
Values = dict[str, np.ndarray]


class NoPeer(Exception):
    """The reason why no other program can compute a model."""


def moving_joints(model: Model) -> int:
    """Number of velocities of a file's robot in another program.

    Raises:
        NoPeer: it cannot read the file, in its words.
    """
    try:
        if model.kind == "mjcf":
            return int(mujoco.MjModel.from_xml_path(model.source).nv)
        return int(_read(model).nv)
    except ValueError as error:
        raise NoPeer(str(error).strip()[:200]) from None


def truth(model: Model, chain: jaxdyn.Chain, frame: str, q, v, a) -> Values:
    """Quantities by the name of jaxdyn's function; for `forward_dynamics` M and b, and the peer's own error.

    Raises:
        NoPeer: the other program holds the robot in coordinates that jaxdyn does not have.
    """
    if model.kind == "mjcf":
        return _of_mujoco(mujoco.MjModel.from_xml_path(model.source), chain, frame, q, v, a)
    bare = dataclasses.replace(chain, coupling=None, transmission=None)
    if chain.coupling is None:
        s, full_q, full_v, full_a = np.eye(chain.n), q, v, a
    else:
        s = np.asarray(chain.coupling.matrix)
        full_q, full_v, full_a = _uncoupled(chain, bare, q), s @ v, s @ a
    return _reduced(_of_pinocchio(model, bare, frame, full_q, full_v, full_a), s, rotor_matrix(chain), full_a)


def rotor_matrix(chain: jaxdyn.Chain) -> np.ndarray:
    """Contribution of the rotors to the joints' mass matrix."""
    if (motors := chain.transmission) is None:
        return np.zeros((chain.n, chain.n))
    ratios = np.asarray(motors.matrix)
    return ratios.T @ np.diag(motors.rotor_inertia) @ ratios


def _reduced(full: Values, s: np.ndarray, rotors: np.ndarray, a: np.ndarray) -> Values:
    """With the rotors that motors turn, in the coordinates that joints follow by their rates s."""
    found = dict(full)
    found["inverse_dynamics"] = s.T @ (full["inverse_dynamics"] + rotors @ a)
    found["crba"] = s.T @ (full["crba"] + rotors) @ s
    for name in ("bias_force", "gravity_force", "coriolis_force"):
        found[name] = s.T @ full[name]
    for name in ("jacobian", "centroidal_momentum_matrix"):
        found[name] = full[name] @ s
    return found


def _uncoupled(chain: jaxdyn.Chain, bare: jaxdyn.Chain, q: np.ndarray) -> np.ndarray:
    """Positions of all joints, of coordinates that they follow."""
    coupling, there, here = chain.coupling, layout(chain), layout(bare)
    assert coupling is not None
    y, full = np.zeros(chain.nv), np.zeros(bare.nq)
    y[there.columns] = q[there.entries]
    joints = np.asarray(coupling.matrix) @ y + np.asarray(coupling.offset)
    full[here.entries] = joints[here.columns]
    for one, other in zip(here.curved, there.curved, strict=True):
        full[one.start : one.start + one.size + 1] = q[other.start : other.start + other.size + 1]
    return full


def _read(model: Model) -> pin.Model:
    free = [pin.JointModelFreeFlyer()] if model.floating else []
    try:
        return pin.buildModelFromUrdf(model.source, *free)
    except Exception as error:  # of any kind: Boost's, ValueError
        raise NoPeer(f"it cannot read the file: {str(error).strip()[:200]}") from None


def _of_pinocchio(model: Model, bare: jaxdyn.Chain, frame: str, q, v, a) -> Values:
    if model.kind == "random":
        other = to_pinocchio(bare)
        x, there = configuration_to_pinocchio(bare, q), velocity_to_pinocchio(bare, np.arange(bare.nv))
        names = {name: f"link{i}" for i, name in enumerate(bare.link_names)}
    else:
        other = _read(model)
        other.gravity.linear = np.asarray(bare.gravity)
        joints = list(other.names)[1:]
        circles = [n for n, j in zip(joints, list(other.joints)[1:], strict=True) if (j.nq, j.nv) == (2, 1)]
        try:
            x = np.asarray(layouts.to_pinocchio_state(bare, jnp.asarray(q), jnp.asarray(v), joints, circles)[0])
            there = np.asarray(layouts.to_pinocchio_vector(bare, jnp.arange(bare.nv), joints))
        except jaxdyn.ModelError as error:
            raise NoPeer(f"other coordinates: {error}") from None
        names = {f.name: f.name for f in other.frames if f.type == pin.BODY}
    here = np.argsort(there)  # ours of theirs
    data = other.createData()
    vp, ap = v[there], a[there]
    tau = pin.rnea(other, data, x, vp, ap)
    upper = np.triu(pin.crba(other, data, x))
    mass = (upper + np.triu(upper, 1).T)[np.ix_(here, here)]
    bias = pin.nonLinearEffects(other, data, x, vp)
    gravity = pin.computeGeneralizedGravity(other, data, x)
    pin.computeJointJacobians(other, data, x)
    pin.updateFramePlacements(other, data)
    kind = pin.OP_FRAME if model.kind == "random" else pin.BODY  # a joint may have the same name
    body = lambda name: other.getFrameId(names[name], kind)
    of_twists = lambda matrix: np.reshape(matrix, (6, bare.nv))[np.ix_(_TWIST, here)]  # of one joint it is a vector
    found = {
        "inverse_dynamics": tau[here],
        "crba": mass,
        "bias_force": bias[here],
        "gravity_force": gravity[here],
        "coriolis_force": (bias - gravity)[here],
        "forward_kinematics": np.array(
            [data.oMf[body(n)].homogeneous if n in names else np.full((4, 4), np.nan) for n in bare.link_names]
        ),
        "centroidal_momentum_matrix": of_twists(pin.ccrba(other, data, x, vp)),
        "jacobian": np.full((6, bare.nv), np.nan),
    }
    if frame in names:
        found["jacobian"] = of_twists(pin.getFrameJacobian(other, data, body(frame), pin.LOCAL))
    found["peer's error"] = np.asarray(_error_of(pin.aba(other, data, x, vp, tau)[here], mass, (tau - bias)[here]))
    return found


def _of_mujoco(model: Any, chain: jaxdyn.Chain, frame: str, q, v, a) -> Values:
    # passive forces too, which would only be taken off again: 1e11 N s/m on the base of a Fetch leaves five digits
    for name in ("CONSTRAINT", "SPRING", "DAMPER", "PASSIVE"):  # older versions have PASSIVE for the two before
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0))
    model.opt.density = model.opt.viscosity = 0  # left out by jaxdyn, as are tendons and what moves a free joint alone
    if model.ntendon and np.any(getattr(model, "tendon_armature", 0)):
        raise NoPeer("tendons with armature, which are part of its mass matrix")
    if np.any(np.asarray(model.dof_armature)[_free_linear(model)]):
        raise NoPeer("armature of a free joint's linear motion, which is part of its mass matrix")
    data, state = mujoco.MjData(model), (jnp.asarray(q), jnp.asarray(v))

    def inverse(v, a):
        mine = jnp.asarray(v), jnp.asarray(a)
        data.qpos[:], data.qvel[:] = layouts.to_mujoco_state(chain, state[0], mine[0])
        data.qacc[:] = layouts.to_mujoco_acceleration(chain, state[0], *mine)
        mujoco.mj_inverse(model, data)
        force = np.array(data.qfrc_inverse) + np.array(data.qfrc_passive)
        return np.asarray(layouts.from_mujoco_force(chain, jnp.asarray(np.array(data.qpos)), jnp.asarray(force)))

    still = np.zeros(chain.nv)
    gravity, bias, force = inverse(still, still), inverse(v, still), inverse(v, a)
    turned = np.asarray(
        jax.vmap(lambda x: layouts.from_mujoco_force(chain, jnp.asarray(np.array(data.qpos)), x))(jnp.eye(chain.nv))
    ).T  # generalised forces, ours of theirs
    mass = turned @ full_mass_matrix(model, data) @ turned.T
    bodies = {model.body(b).name or f"body{b}": b for b in range(1, model.nbody)}
    found = {
        "inverse_dynamics": force,
        "crba": mass,
        "bias_force": bias,
        "gravity_force": gravity,
        "coriolis_force": bias - gravity,
        "forward_kinematics": np.full((chain.n, 4, 4), np.nan),
        "jacobian": np.full((6, chain.nv), np.nan),
        "peer's error": np.asarray(_error_of(np.linalg.solve(mass, force - bias), mass, force - bias)),
    }
    for i, name in enumerate(chain.link_names):
        if name in bodies:
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = data.xmat[bodies[name]].reshape(3, 3), data.xpos[bodies[name]]
            found["forward_kinematics"][i] = pose
    if frame in bodies:
        linear, angular = np.zeros((2, 3, model.nv))
        mujoco.mj_jacBody(model, data, linear, angular, bodies[frame])
        axes = data.xmat[bodies[frame]].reshape(3, 3).T
        # velocities, theirs of ours, are the transpose of forces, ours of theirs
        found["jacobian"] = np.vstack([axes @ angular, axes @ linear]) @ turned.T
    return found


def _free_linear(model: Any) -> np.ndarray:
    starts = np.asarray(model.jnt_dofadr)[np.asarray(model.jnt_type) == int(mujoco.mjtJoint.mjJNT_FREE)]
    return np.array([s + k for s in starts for k in range(3)], int)


def solved(mass: np.ndarray, force: np.ndarray) -> np.ndarray:
    """M^-1 f to the last bit or so, by iterative refinement in extended precision."""
    try:
        x = np.linalg.solve(mass, force).astype(np.longdouble)
    except np.linalg.LinAlgError:
        raise NoPeer("its mass matrix is singular") from None
    wide, wanted = mass.astype(np.longdouble), force.astype(np.longdouble)
    for _ in range(8):
        x = x + np.linalg.solve(mass, (wanted - wide @ x).astype(float))
    return x.astype(float)


def _error_of(found: np.ndarray, mass: np.ndarray, force: np.ndarray) -> float:
    exact = solved(mass, force)
    return float(np.abs(found - exact).max() / np.abs(exact).max())
