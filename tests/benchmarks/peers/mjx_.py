"""MJX: MuJoCo's dynamics in JAX, from the same URDF, without contacts, limits and other constraints."""

import jax.numpy as jnp
import numpy as np

from ..subjects import Subject
from . import Entry
from .mujoco_layout import MujocoLayout


def mujoco_model(robot: Subject):
    """The robot compiled by MuJoCo, with smooth dynamics only."""
    import mujoco

    spec = mujoco.MjSpec.from_string(robot.urdf)
    spec.compiler.fusestatic = True  # fewer bodies; the root is not fused, because it has a free joint
    if robot.floating:
        spec.worldbody.first_body().add_freejoint(name="root_joint")
    off = mujoco.mjtDisableBit
    spec.option.disableflags |= int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_LIMIT) | int(off.mjDSBL_CONTACT)
    return spec.compile()


def build(robot: Subject, state: dict, precision: str) -> dict[str, Entry]:
    model = mujoco_model(robot)
    from mujoco import mjx

    there = mjx.put_model(model)
    blank = mjx.make_data(there)
    names = [model.joint(i).name for i in range(model.njnt)]
    layout = MujocoLayout(robot, [name for name in names if name != "root_joint"], state)
    given = layout.arguments()
    q, v, a, tau = (given[name] for name in ("q", "v", "a", "tau"))
    body = model.body(robot.frame).id

    def inverse(q, v, a):
        return mjx.inverse(there, blank.replace(qpos=q, qvel=v, qacc=a)).qfrc_inverse

    def mass(q):
        data = mjx.fwd_position(there, blank.replace(qpos=q))
        return mjx.full_m(there, data)

    def forward(q, v, tau):
        return mjx.forward(there, blank.replace(qpos=q, qvel=v, qfrc_applied=tau)).qacc

    def pose(q):
        data = mjx.kinematics(there, blank.replace(qpos=q))
        rows = jnp.concatenate([data.xmat[body].reshape(3, 3), data.xpos[body][:, None]], axis=1)
        return jnp.concatenate([rows, jnp.asarray([[0, 0, 0, 1]], rows.dtype)])

    return {
        "inverse_dynamics": Entry(inverse, (q, v, a), layout.vector),
        "crba": Entry(mass, (q,), layout.matrix),
        "forward_dynamics": Entry(forward, (q, v, tau), layout.acceleration),
        "frame_pose": Entry(pose, (q,), lambda x: [np.asarray(x, float)]),
    }
