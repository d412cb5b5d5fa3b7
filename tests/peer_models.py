"""The same robot for other programs: a Pinocchio model and a MuJoCo document, built from a chain's leaves."""

import dataclasses

import numpy as np

from jaxdyn import Chain
from jaxdyn.model.chain import Topology, layout
from jaxdyn.spatial import inertia, so3


def axis_offset(screw: np.ndarray) -> np.ndarray:
    """A point on the joint's axis, in the link's frame (the origin for prismatic joints)."""
    return np.cross(screw[:3], screw[3:])


def to_pinocchio(chain: Chain):
    """A `pinocchio.Model` of a chain without coupling and transmission, its joints in the same order.

    Joint frames lie on the axes; frames "link<i>" are the chain's link frames.
    """
    import pinocchio as pin

    model = pin.Model()
    model.gravity.linear = np.array(chain.gravity)
    joint_of, frame_in = {-1: 0}, {-1: pin.SE3.Identity()}  # of every link: its joint, and its frame in the joint's
    curved = {joint.link: joint for joint in layout(chain).curved}
    inner = {i for joint in curved.values() for i in range(joint.link + 1, joint.links.stop)}
    for i in range(chain.n):
        if i in inner:
            continue
        above, before = joint_of[chain.topology.parents[i]], frame_in[chain.topology.parents[i]]
        placement = pin.SE3(np.array(chain.rotation[i]), np.array(chain.translation[i]))
        if i in curved:
            joint = pin.JointModelFreeFlyer() if curved[i].kind == "free" else pin.JointModelSpherical()
            last = curved[i].links.stop - 1
            parent = model.addJoint(above, joint, before * placement, f"joint{i}")
            model.appendBodyToJoint(
                parent, pin.Inertia.FromDynamicParameters(np.array(chain.inertia[last])), pin.SE3.Identity()
            )
            for k in range(i, last + 1):
                joint_of[k], frame_in[k] = parent, pin.SE3.Identity()
                model.addFrame(pin.Frame(f"link{k}", parent, pin.SE3.Identity(), pin.FrameType.OP_FRAME))
            continue
        screw = np.array(chain.screw[i])
        w, v = screw[:3], screw[3:]
        if not w.any():
            joint = pin.JointModelPrismaticUnaligned(v)
        elif abs(w @ v) > 1e-12:
            joint = pin.JointModelHelicalUnaligned(w, w @ v)
        else:
            joint = pin.JointModelRevoluteUnaligned(w)
        on_axis = pin.SE3(np.eye(3), axis_offset(screw))  # the joint's frame in the link's
        parent = model.addJoint(above, joint, before * placement * on_axis, f"joint{i}")
        before = on_axis.inverse()
        joint_of[i], frame_in[i] = parent, before
        body = pin.Inertia.FromDynamicParameters(np.array(chain.inertia[i]))
        model.appendBodyToJoint(parent, body, before)
        model.addFrame(pin.Frame(f"link{i}", parent, before, pin.FrameType.OP_FRAME))
    for k, name in enumerate(chain.topology.frame_names):
        link = chain.topology.frame_links[k]
        pose = pin.SE3(np.array(chain.frame_poses[k]))
        model.addFrame(pin.Frame(name, joint_of[link], frame_in[link] * pose, pin.FrameType.OP_FRAME))
    model.armature = velocity_to_pinocchio(chain, np.array(chain.armature))
    return model


def velocity_to_pinocchio(chain: Chain, v: np.ndarray) -> np.ndarray:
    """Velocities, accelerations or forces (last axis) in Pinocchio's order: a free joint's linear part first."""
    v = np.array(v)
    for link, kind in chain.topology.compound_joints:
        if kind == "free":
            v[..., link : link + 6] = v[..., [*range(link + 3, link + 6), *range(link, link + 3)]]
    return v


def configuration_to_pinocchio(chain: Chain, q: np.ndarray) -> np.ndarray:
    """Positions with Pinocchio's quaternions (x, y, z, w)."""
    q = np.array(q)
    for joint in layout(chain).curved:
        q[joint.quaternion] = np.roll(q[joint.quaternion], -1)
    return q


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


def full_mass_matrix(model, data) -> np.ndarray:
    """MuJoCo's mass matrix, dense, of data that have been evaluated."""
    import mujoco

    dense = np.zeros((model.nv, model.nv))
    try:
        mujoco.mj_fullM(model, data, dense)
    except TypeError:  # before MuJoCo 4
        mujoco.mj_fullM(model, dense, data.qM)
    return dense


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
    topology = Topology(
        chain.topology.parents, names, links, tip_name="tool", frame_names=("tool",), frame_links=(chain.n - 1,)
    )
    return dataclasses.replace(chain, frame_poses=tool, topology=topology)
