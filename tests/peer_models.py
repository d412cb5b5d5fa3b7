"""The same robot for other programs: a Pinocchio model and a MuJoCo document, built from a chain's leaves."""

import dataclasses

import numpy as np

from jaxdyn.model.chain import Chain, Topology
from jaxdyn.spatial import inertia, so3


def axis_offset(screw: np.ndarray) -> np.ndarray:
    """A point on the joint's axis, in the link's frame (the origin for prismatic joints)."""
    return np.cross(screw[:3], screw[3:])


def to_pinocchio(chain: Chain):
    """A `pinocchio.Model` of a serial chain. Its joint frames lie on the axes; frames "link<i>" are the chain's link frames."""
    import pinocchio as pin

    model = pin.Model()
    model.gravity.linear = np.array(chain.gravity)
    before, parent = pin.SE3.Identity(), 0
    for i in range(chain.n):
        screw = np.array(chain.screw[i])
        w, v = screw[:3], screw[3:]
        if not w.any():
            joint = pin.JointModelPrismaticUnaligned(v)
        elif abs(w @ v) > 1e-12:
            joint = pin.JointModelHelicalUnaligned(w, w @ v)
        else:
            joint = pin.JointModelRevoluteUnaligned(w)
        on_axis = pin.SE3(np.eye(3), axis_offset(screw))  # the joint's frame in the link's
        placement = pin.SE3(np.array(chain.rotation[i]), np.array(chain.translation[i]))
        parent = model.addJoint(parent, joint, before * placement * on_axis, f"joint{i}")
        before = on_axis.inverse()
        body = pin.Inertia.FromDynamicParameters(np.array(chain.inertia[i]))
        model.appendBodyToJoint(parent, body, before)
        model.addFrame(pin.Frame(f"link{i}", parent, before, pin.FrameType.OP_FRAME))
    for k, name in enumerate(chain.topology.frame_names):
        link = chain.topology.frame_links[k]
        pose = pin.SE3(np.array(chain.frame_poses[k]))
        in_joint = pin.SE3(np.eye(3), -axis_offset(np.array(chain.screw[link]))) if link >= 0 else pin.SE3.Identity()
        model.addFrame(pin.Frame(name, link + 1, in_joint * pose, pin.FrameType.OP_FRAME))
    model.armature = np.array(chain.armature)
    return model


def to_mjcf(chain: Chain) -> str:
    """An MJCF document of a serial chain of revolute and prismatic joints, without contacts, limits or friction."""
    text = lambda x: " ".join(repr(float(y)) for y in np.ravel(x))
    nested, closing = [], []
    for i in range(chain.n):
        w, v = np.array(chain.screw[i]).reshape(2, 3)
        kind, axis = ("hinge", w) if w.any() else ("slide", v)
        mass, com, about = (np.asarray(x) for x in inertia.inertial_parameters_to_com(chain.inertia[i]))
        moments, axes = np.linalg.eigh(about)
        axes = axes * np.linalg.det(axes)
        turn = so3.rotation_to_quaternion(chain.rotation[i])
        principal = so3.rotation_to_quaternion(np_to_jax(axes))
        nested.append(
            f'<body pos="{text(chain.translation[i])}" quat="{text(turn)}">'
            f'<inertial mass="{text(mass)}" pos="{text(com)}" quat="{text(principal)}" diaginertia="{text(moments)}"/>'
            f'<joint type="{kind}" axis="{text(axis)}" pos="{text(axis_offset(np.array(chain.screw[i])))}" '
            f'armature="{text(chain.armature[i])}"/>'
        )
        closing.append("</body>")
    return (
        f'<mujoco><compiler angle="radian"/><option gravity="{text(chain.gravity)}"/>'
        f"<worldbody>{''.join(nested)}{''.join(closing)}</worldbody></mujoco>"
    )


def np_to_jax(x: np.ndarray):
    """A JAX array of the same numbers."""
    import jax.numpy as jnp

    return jnp.asarray(x)


def anonymous(chain: Chain) -> Chain:
    """The same numbers under names that all robots with as many joints share, so that they share compiled functions too."""
    import jax.numpy as jnp

    names = tuple(f"joint{i}" for i in range(chain.n))
    links = tuple(f"link{i}" for i in range(chain.n))
    tool = jnp.eye(4).at[:3, 3].set(jnp.asarray([0.1, -0.2, 0.3]))[None]
    topology = Topology(names, links, chain.topology.parents, ("tool",), (chain.n - 1,), "base", "tool")
    return dataclasses.replace(chain, frame_poses=tool, topology=topology)
