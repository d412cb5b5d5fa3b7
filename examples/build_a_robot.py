"""Four ways to build a robot: URDF text, screws, Denavit-Hartenberg parameters, and a built-in arm."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn

jax.config.update("jax_enable_x64", True)

# a URDF: the fixed tool is fused into its parent link and remains available as a frame
arm = jaxdyn.io.loads("""<robot name="two_link">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0.2 0 0"/><mass value="2"/>
    <inertia ixx="0.002" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.15 0 0"/><mass value="1"/>
    <inertia ixx="0.001" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tool"><inertial><mass value="0.3"/>
    <inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="3"/><dynamics damping="0.4" friction="0.2"/></joint>
  <joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0.4 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-2.5" upper="2.5" effort="30" velocity="3"/></joint>
  <joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/><origin xyz="0.3 0 0"/></joint>
</robot>""")
q = jnp.array([0.3, -0.8])
print(arm)
print("tool at", jaxdyn.frame_pose(arm, q, "tool")[:3, 3], "m")
print("holding torques", jaxdyn.gravity_force(arm, q), "N m")

# the same kinematics from space screws and home poses (Lynch & Park), with the inertias of uniform solids
rods = [jaxdyn.spatial.solids.rod(2.0, 0.4, axis=(1, 0, 0)), jaxdyn.spatial.solids.rod(1.0, 0.3, axis=(1, 0, 0))]
homes = np.tile(np.eye(4), (2, 1, 1))
homes[:, 0, 3] = 0.2, 0.55  # link frames at the centres of mass
screws = [[0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0.4]]  # (w, v) with v = -w x p
tip = np.eye(4)
tip[0, 3] = 0.7
by_screws = jaxdyn.from_screws(screws, homes, rods, tip_pose=tip)
print("from screws, tip at", jaxdyn.frame_pose(by_screws, q)[:3, 3], "m")
assert jnp.allclose(jaxdyn.frame_pose(by_screws, q)[:3, 3], jaxdyn.frame_pose(arm, q, "tool")[:3, 3])

# a Denavit-Hartenberg table: a planar arm in the x-y plane
planar = jaxdyn.from_dh(
    a=[0.4, 0.3], alpha=[0, 0], d=[0, 0], theta=[0, 0], inertia=np.stack([np.asarray(r) for r in rods])
)
print("from DH, tip at", jaxdyn.frame_pose(planar, q)[:3, 3], "m")

# joint torques with which the tool exerts a force of 10 N along x
jacobian = jaxdyn.jacobian(arm, q, "tool", reference="mixed")
push = jnp.array([0, 0, 0, 10.0, 0, 0])
print("10 N along x require", jacobian.T @ push, "N m")
