"""MJCF against MuJoCo itself: dynamics, poses, energies, drives, a rollout; and every way a file can be unfit."""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from helpers import mechanism_state, once, random_mechanism, relative
from jaxdyn import integrate, neutral_configuration, resistive_force
from jaxdyn.dynamics import spring_energy
from jaxdyn.model import layouts
from peer_models import full_mass_matrix

mujoco = pytest.importorskip("mujoco")

OFF = '<flag contact="disable"/>'
# a free root, several joints on a body with anchors off the origin and references, bodies fused, ball joints mid-tree
WALKER = f"""<mujoco><compiler angle="radian"/><option gravity="0.3 -1 -9">{OFF}</option><worldbody>
<body name="torso" pos="1 2 3" euler="0.3 0.2 0.1"><freejoint name="root"/>
 <geom size="0.1 0.2 0.3" type="box" pos=".05 .1 0"/><site name="torso" pos="0.1 0.2 0.3" euler="1 0 0"/>
 <body name="leg" pos="0.1 0.2 -0.2" euler="0.5 0 0.3">
  <joint name="hx" axis="1 0.2 0" pos="0.02 0.03 0.1" ref="0.3"/>
  <joint name="hy" axis="0 1 0" pos="-0.1 0 0.1" armature="0.1"/>
  <joint name="s" type="slide" axis="0 1 1" ref="0.1" damping="3"/>
  <geom size="0.1 0.2 0.3" type="box" pos=".05 .1 0"/>
  <body pos="0 0 -0.4"><geom size="0.07"/>
   <body name="foot" pos="0.1 0 0.2" euler="1 1 1">
    <joint type="slide" axis="1 1 0"/>
    <joint type="ball" name="ankle" pos="0.1 0.2 0.05" armature="0.02" damping="0.2"/>
    <joint type="slide" axis="0 0 1"/>
    <geom size="0.1 0.2 0.03" type="box" mass="2"/><site/></body></body></body>
 <body name="arm" pos="-0.1 0.2 0.3"><joint type="ball" name="shoulder" pos="0.05 0 0"/>
  <geom size="0.1 0.2 0.03" type="box" mass="2"/>
  <body name="hand" pos="0 0 0.3" euler="0 0.4 0"><joint name="wrist" axis="1 0 0"/>
   <geom size="0.05 0.1" type="capsule"/></body></body></body>
<body name="loose"><joint name="away" type="free" damping="0.5"/><geom size="0.2 0.1" type="cylinder"/></body>
</worldbody></mujoco>"""
# springs, damping, limits, actuators; degrees; a post that does not move
DRIVEN = f"""<mujoco><option integrator="RK4" timestep="1e-3">{OFF}</option>
<default><joint damping="0.4" armature="0.02"/></default><worldbody>
<body name="post" pos="0 0 1"><site name="top" pos="0 0 0.2"/>
 <body name="cart" pos="0.1 0 0"><joint name="rail" type="slide" axis="1 0 1" stiffness="30" springref="0.2" range="-1 2"/>
  <geom type="box" size="0.1 0.1 0.1" pos="0 0.02 0"/>
  <body name="pole" euler="10 20 30"><joint name="turn" pos="0 0.1 0" ref="20" springref="50" stiffness="4" range="-90 45"/>
   <geom type="capsule" size="0.03" fromto="0 0 0 0.2 0.1 0.5"/>
   <body name="tip" pos="0.2 0.1 0.5"><joint name="roll" axis="1 0 0" actuatorfrcrange="-3 2"/>
    <geom size="0.08 0.02 0.05" type="box"/></body></body></body></body></worldbody>
<actuator><motor joint="rail" gear="5" ctrlrange="-2 1"/><motor joint="turn" gear="2" forcerange="-4 3"/>
 <motor joint="turn" gear="-1" ctrlrange="-1 1"/></actuator></mujoco>"""
# a ball joint on a ball joint: a chain that swings every way
PENDULUM = f"""<mujoco><option integrator="RK4">{OFF}</option><worldbody>
<body name="upper" pos="0.1 0 1"><joint type="ball" name="first"/><geom type="box" size="0.03 0.05 0.2" pos="0.02 0 -0.2"/>
 <body name="lower" pos="0 0 -0.4"><joint name="hinge" axis="1 0 0" pos="0 0 0.01"/><joint name="slide" type="slide"
  stiffness="300"/><geom type="box" size="0.02 0.06 0.15" pos="0 0.01 -0.15"/>
  <body name="end" pos="0 0 -0.3"><joint type="ball" name="second" pos="0 0.02 0"/>
   <geom type="box" size="0.1 0.04 0.02"/></body></body></body></worldbody></mujoco>"""
MODELS = {"walker": WALKER, "driven": DRIVEN, "pendulum": PENDULUM}


def compiled(text: str, seed: int):
    """A model without constraints, and data at a random state and acceleration, evaluated by `mj_inverse`."""
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    data, rng = mujoco.MjData(model), np.random.default_rng(seed)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 1.0)
    data.qvel[:], data.qacc[:] = rng.normal(size=(2, model.nv))
    mujoco.mj_inverse(model, data)
    mujoco.mj_energyPos(model, data)
    mujoco.mj_energyVel(model, data)
    return model, data


@once
def evaluate(chain, qpos, qvel, qacc):
    """MuJoCo's results, in its layout."""
    q, v = layouts.from_mujoco_state(chain, qpos, qvel)
    a = layouts.from_mujoco_acceleration(chain, qpos, qvel, qacc)
    to_force = lambda tau: layouts.to_mujoco_force(chain, q, tau)
    passive = resistive_force(chain, q, v)
    force = jaxdyn.inverse_dynamics(chain, q, v, a)
    # MuJoCo's qfrc_bias is the force at qacc = 0, which is no rest of a free body's twist
    bias = jaxdyn.inverse_dynamics(chain, q, v, layouts.from_mujoco_acceleration(chain, qpos, qvel, 0 * qacc))
    return {
        "inverse": to_force(force + passive),
        "bias": to_force(bias),
        "passive": to_force(-passive),
        "mass": jax.vmap(to_force, 1, 1)(jax.vmap(to_force)(jaxdyn.crba(chain, q))),
        "kinetic": jaxdyn.kinetic_energy(chain, q, v),
        "potential": jaxdyn.potential_energy(chain, q) + spring_energy(chain, q),
        "back": (*layouts.to_mujoco_state(chain, q, v), layouts.to_mujoco_acceleration(chain, q, v, a)),
        "force": layouts.from_mujoco_force(chain, qpos, to_force(force)) - force,
        "poses": jaxdyn.forward_kinematics(chain, q),
    }


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.nightly if x in ("walker", "pendulum") else ()) for x in MODELS]
)
def test_models_that_are_read_have_the_dynamics_of_mujoco(name):
    chain = jaxdyn.io.loads(MODELS[name])
    for seed in (1, 2):
        model, data = compiled(MODELS[name], seed)
        ours = evaluate(chain, *(jnp.asarray(np.array(x)) for x in (data.qpos, data.qvel, data.qacc)))
        truth = {
            "inverse": data.qfrc_inverse,
            "bias": data.qfrc_bias,
            "passive": data.qfrc_passive,
            "mass": full_mass_matrix(model, data),
            "kinetic": data.energy[1],
        }
        for key, value in truth.items():
            assert relative(ours[key], value) < 1e-11, key
        assert abs(ours["potential"] - data.energy[0]) < 1e-11 * (1 + abs(data.energy[0]))
        for mine, theirs in zip(ours["back"], (data.qpos, data.qvel, data.qacc), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)
        assert np.abs(ours["force"]).max() < 1e-10
        where = {link: ours["poses"][i] for i, link in enumerate(chain.link_names)}
        for frame, link, pose in zip(chain.frame_names, chain.topology.frame_links, chain.frame_poses, strict=True):
            where[frame] = (ours["poses"][link] if link >= 0 else np.eye(4)) @ pose
        for b in range(1, model.nbody):
            pose = where[model.body(b).name or f"body{b}"]
            np.testing.assert_allclose(pose[:3, 3], data.xpos[b], atol=1e-12)
            np.testing.assert_allclose(pose[:3, :3], data.xmat[b].reshape(3, 3), atol=1e-12)
        for s in range(model.nsite):
            site = {"torso": "torso_site"}.get(model.site(s).name, model.site(s).name) or f"site{s}"
            np.testing.assert_allclose(where[site][:3, 3], data.site_xpos[s], atol=1e-12)
            np.testing.assert_allclose(where[site][:3, :3], data.site_xmat[s].reshape(3, 3), atol=1e-12)


def test_names_and_order_of_coordinates_are_those_of_the_file():
    chain = jaxdyn.io.loads(WALKER)
    assert chain.joint_names[:7] == (*(f"root_{x}" for x in ("wx", "wy", "wz", "vx", "vy", "vz")), "hx")
    assert "leg" in chain.link_names and "hand" in chain.link_names  # the last joint's link is the body
    assert {"body3", "arm", "torso_site", "site1"} == set(
        chain.frame_names
    )  # `arm` turns about an anchor off its origin
    assert chain.topology.base_name == "world"
    assert (chain.nq, chain.nv) == (28, 24)


def test_drives_springs_and_limits_are_read():
    chain = jaxdyn.io.loads(DRIVEN)
    assert chain.joint_names == ("rail", "turn", "roll") and chain.link_names == ("cart", "pole", "tip")
    near = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12)
    near(chain.springs.stiffness, [30, 4, 0])
    near(chain.springs.rest_position, [0.2, np.radians(50), 0])
    near(chain.friction.viscous, 3 * [0.4])
    near(chain.armature, 3 * [0.02])
    near(chain.limits.position, [[-1, 2], np.radians([-90, 45]), [-np.inf, np.inf]])
    near(chain.limits.effort, [10, 9, 3])
    near(chain.gravity, [0, 0, -9.81])
    near(jaxdyn.io.loads(DRIVEN, gravity=(1.0, 2.0, 3.0)).gravity, [1, 2, 3])
    model = mujoco.MjModel.from_xml_string(DRIVEN)
    for name in ("GRAVITY", "LIMIT", "SPRING", "PASSIVE"):  # older versions have PASSIVE for SPRING and DAMPER
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0))
    switched = jaxdyn.from_mujoco(model)
    assert (
        not switched.springs.stiffness.any() and not switched.gravity.any() and np.isinf(switched.limits.position).all()
    )


def test_rotors_of_actuators_become_armature_and_friction():
    text = DRIVEN.replace('gear="5"', 'gear="5" armature="0.01" damping="0.3"')
    try:
        model, data = compiled(text, 3)
    except ValueError:
        pytest.skip("this version of MuJoCo has no armature of actuators")
    chain = jaxdyn.from_mujoco(model)
    state = (jnp.asarray(np.array(x)) for x in (data.qpos, data.qvel, data.qacc))
    assert relative(evaluate(chain, *state)["mass"], full_mass_matrix(model, data)) < 1e-12
    assert abs(chain.friction.viscous[0] - (0.4 + 25 * 0.3)) < 1e-12


def test_friction_is_mujocos_away_from_rest():
    text = DRIVEN.replace('damping="0.4"', 'damping="0.4" frictionloss="0.7"')
    text = text.replace(OFF, '<flag contact="disable" limit="disable"/>')
    model = mujoco.MjModel.from_xml_string(text)
    chain, data = jaxdyn.from_mujoco(model), mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.1, 0.5, -0.4], [1.5, -2.0, 1.0]
    mujoco.mj_forward(model, data)
    q, v = jnp.asarray(np.array(data.qpos)), jnp.asarray(np.array(data.qvel))
    assert chain.friction.coulomb.tolist() == [0.7] * 3
    ours = evaluate(chain, q, v, jnp.asarray(np.array(data.qacc)))
    assert np.abs(ours["inverse"]).max() < 1e-9 * np.abs(ours["passive"]).max()  # no torque acts
    wide = jaxdyn.from_mujoco(model, coulomb_velocity=0.5)
    assert relative(jaxdyn.friction_force(wide, v), 0.4 * v + 0.7 * jnp.tanh(v / 0.5)) < 1e-12


@pytest.mark.ci
def test_rollouts_converge_to_those_of_mujoco():
    chain, model = jaxdyn.io.loads(PENDULUM), mujoco.MjModel.from_xml_string(PENDULUM)
    start = np.array([1.0, -2, 0.5, 0.3, 0.1, 2, 1, -1])
    rest, still = neutral_configuration(chain), jnp.zeros((100, chain.nv))
    roll = once(lambda dt: jaxdyn.rollout(chain, rest, jnp.asarray(start), still, dt, method="rk4")[0])
    errors = []
    for steps in (50, 100):
        model.opt.timestep = 0.3 / steps
        data = mujoco.MjData(model)
        data.qvel[:] = start
        for _ in range(steps):
            mujoco.mj_step(model, data)
        errors.append(np.abs(np.asarray(roll(0.3 / steps)[steps]) - data.qpos).max())
    bound = 1e-10 if int(mujoco.__version__.split(".")[0]) >= 4 else 5e-5  # 3.2 is of second order on quaternions
    assert errors[1] < bound and errors[1] < errors[0] / 3.5, errors


def test_configurations_are_converted_to_the_layout_of_pinocchio():
    pin = pytest.importorskip("pinocchio")
    body = """<link name="{}"><inertial><origin xyz="0.1 0 0.2"/><mass value="2"/>
      <inertia ixx="0.1" iyy="0.2" izz="0.15" ixy="0.01" ixz="0" iyz="0.02"/></inertial></link>"""
    text = f"""<robot name="r">{"".join(body.format(name) for name in ("base", "b", "c"))}
      <joint name="z" type="continuous"><parent link="base"/><child link="b"/><axis xyz="0 1 0"/><origin xyz="0 0 1"/></joint>
      <joint name="a" type="prismatic"><parent link="base"/><child link="c"/><axis xyz="1 0 0"/><origin rpy="0 1 0"/>
      <limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""
    model = pin.buildModelFromXML(text, pin.JointModelFreeFlyer())
    chain = jaxdyn.io.loads(text, floating_base="root_joint")
    names = list(model.names)[1:]
    assert names == ["root_joint", "a", "z"] and chain.joint_names[-2:] == ("z", "a")
    rng = np.random.default_rng(0)
    x = pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv))
    speed, rate = rng.normal(size=(2, model.nv))
    q, v = layouts.from_pinocchio_state(chain, jnp.asarray(x), jnp.asarray(speed), names, ["z"])
    a = layouts.from_pinocchio_vector(chain, jnp.asarray(rate), names)
    tau = layouts.to_pinocchio_vector(chain, once(jaxdyn.inverse_dynamics)(chain, q, v, a), names)
    assert relative(tau, pin.rnea(model, model.createData(), x, speed, rate)) < 1e-12
    for mine, theirs in zip(layouts.to_pinocchio_state(chain, q, v, names, ["z"]), (x, speed), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-14)
    with pytest.raises(jaxdyn.ModelError, match="'joint9', 'z' are missing, unknown or repeated"):
        layouts.to_pinocchio_vector(chain, v, ["root_joint", "a", "joint9"])
    with pytest.raises(jaxdyn.ModelError, match="not a joint with one degree of freedom"):
        layouts.to_pinocchio_state(chain, q, v, names, ["root_joint"])
    with pytest.raises(jaxdyn.ModelError, match=r"has shape \(12,\).* has 10 positions"):
        layouts.from_pinocchio_state(chain, jnp.zeros(12), v, names, ["z"])


def test_ball_joints_are_converted_to_the_layout_of_pinocchio():
    pin = pytest.importorskip("pinocchio")
    chain = jaxdyn.io.loads(
        f"""<mujoco><option>{OFF}</option><worldbody><body pos="0 0.1 0.2" euler="10 20 30"><joint type="ball"/>
        <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/><body pos="0 0.3 0"><joint name="turn"/><geom size="0.1"/>
        <body pos="0 0 1" euler="0 50 0"><joint type="ball"/><geom type="box" size="0.3 0.2 0.1" pos="0.1 0 0"/></body>
        </body></body></worldbody></mujoco>"""
    )
    model, joint = pin.Model(), 0
    for first, last, kind in (
        (0, 2, pin.JointModelSpherical),
        (3, 3, pin.JointModelRZ),
        (4, 6, pin.JointModelSpherical),
    ):
        placement = pin.SE3(np.array(chain.rotation[first]), np.array(chain.translation[first]))
        joint = model.addJoint(joint, kind(), placement, f"j{first}")
        model.appendBodyToJoint(
            joint, pin.Inertia.FromDynamicParameters(np.array(chain.inertia[last])), pin.SE3.Identity()
        )
    rng = np.random.default_rng(0)
    x = pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv))
    speed, rate = rng.normal(size=(2, model.nv))
    q, v = layouts.from_pinocchio_state(chain, jnp.asarray(x), jnp.asarray(speed))
    a = layouts.from_pinocchio_vector(chain, jnp.asarray(rate))
    tau = layouts.to_pinocchio_vector(chain, once(jaxdyn.inverse_dynamics)(chain, q, v, a))
    assert relative(tau, pin.rnea(model, model.createData(), x, speed, rate)) < 1e-12


@pytest.mark.ci
def test_conversions_of_layouts_can_be_differentiated_and_batched():
    chain = jaxdyn.io.loads(WALKER)
    rng = np.random.default_rng(4)
    q = jnp.asarray(rng.normal(size=(2, chain.nq)))
    v, a = jnp.asarray(rng.normal(size=(2, 2, chain.nv)))

    @once
    def there_and_back(q, v, a):
        def one(q, v, a):
            qpos, qvel = layouts.to_mujoco_state(chain, q, v)
            qacc = layouts.to_mujoco_acceleration(chain, q, v, a)
            back = layouts.from_mujoco_state(chain, qpos, qvel)
            pinocchio = layouts.from_pinocchio_state(chain, *layouts.to_pinocchio_state(chain, q, v))
            return back, layouts.from_mujoco_acceleration(chain, qpos, qvel, qacc), pinocchio

        # qacc is the rate of qvel
        def along(t):
            moved = integrate(chain, q[0], t * v[0])
            return layouts.to_mujoco_state(chain, moved, v[0] + t * a[0])[1]

        rate = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))[1]
        return jax.vmap(one)(q, v, a), rate - layouts.to_mujoco_acceleration(chain, q[0], v[0], a[0])

    (back, acceleration, pinocchio), rest = there_and_back(q, v, a)
    for x, y in ((back[0], q), (back[1], v), (acceleration, a), (pinocchio[0], q), (pinocchio[1], v), (rest, 0 * rest)):
        np.testing.assert_allclose(x, y, atol=1e-13)
    single = lambda x: x.astype(jnp.float32)
    assert layouts.to_mujoco_state(chain, single(q[0]), single(v[0]))[1].dtype == jnp.float32


ONE = '<body name="link"><joint name="j" {joint}/><geom size="0.1"/></body>'


def model_with(outside="", joint="", option="", body=ONE) -> str:
    return f"<mujoco>{option}<worldbody>{body.format(joint=joint)}</worldbody>{outside}</mujoco>"


TENDON = '<tendon><fixed name="t" {}><joint joint="j" coef="1"/></fixed></tendon>'
ACTING = {
    "equality": (model_with('<equality><joint name="tie" joint1="j"/></equality>'), r"equality constraints \(tie\)"),
    "tendon": (model_with(TENDON.format('stiffness="2"')), r"tendons with stiffness, .* \(t\)"),
    "quaternion_spring": (model_with(joint='type="ball" stiffness="3"'), r"springs on ball and free joints \(j\)"),
    "fluid": (model_with(option='<option density="1.2"/>'), "a fluid .density 1.2"),
    "gravcomp": (
        model_with(body=ONE.replace('name="link"', 'name="link" gravcomp="1"')),
        r"gravity compensation \(link\)",
    ),
    "free_joint": (
        model_with(joint='type="free" armature="1"'),
        "armature, frictionloss or unequal damping of the linear",
    ),
}


@pytest.mark.parametrize("feature", ACTING)
def test_what_acts_is_left_out_with_a_warning_or_refused_by_name(feature):
    text, message = ACTING[feature]
    if feature in ("quaternion_spring", "gravcomp"):
        with pytest.raises(jaxdyn.ModelError, match=f"<text>: not supported: {message}.*ignore=\\['{feature}'\\]"):
            jaxdyn.io.loads(text)
    else:
        with pytest.warns(jaxdyn.ModelWarning, match=f"<text>: omitted: {message}"):
            jaxdyn.io.loads(text)
    with pytest.warns(jaxdyn.ModelWarning, match=f"omitted: {message}"):
        chain = jaxdyn.io.loads(text, ignore=[feature])
    assert chain.nv in (1, 3, 6) and not chain.armature[3:].any() and not chain.springs.stiffness.any()


def test_nonlinear_springs_are_refused():
    text = model_with(joint='damping="1 2 3"')
    try:
        model = mujoco.MjModel.from_xml_string(text)
    except ValueError:
        pytest.skip("this version of MuJoCo has linear dampers only")
    with pytest.raises(jaxdyn.ModelError, match=r"the MuJoCo model: not supported: .*not linear \(j\)"):
        jaxdyn.from_mujoco(model)


def test_what_only_acts_from_outside_is_named():
    body = ONE + '<body name="hand" mocap="true"><geom size="0.2"/></body>'
    text = model_with(
        TENDON.format("")
        + '<actuator><position name="servo" joint="j"/></actuator><sensor><jointpos joint="j"/></sensor>',
        body=body,
    )
    with pytest.warns(jaxdyn.ModelWarning) as seen:
        jaxdyn.io.loads(text)
    assert len(seen) == 1
    expected = ("contacts", "tendons (t)", "not plain motors (servo)", "sensors (1)", "mocap bodies (hand)")
    assert all(x in str(seen[0].message) for x in expected), seen[0].message
    with pytest.warns(jaxdyn.ModelWarning, match="omitted: inactive equality constraints$"):
        jaxdyn.io.loads(model_with('<equality><joint joint1="j" active="false"/></equality>'))
    with pytest.warns(jaxdyn.ModelWarning, match=r"omitted: limits of ball joints \(j\)$"):
        jaxdyn.io.loads(model_with(joint='type="ball" range="0 30"'))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nested = ONE.replace("</body>", '<body pos="0 0 .1"><joint/><geom size="0.1"/></body></body>')
        jaxdyn.io.loads(model_with(body=nested))  # parent and child do not touch


def test_models_are_read_from_files_and_bad_files_refused(tmp_path):
    path = tmp_path / "x.xml"
    path.write_text(model_with())
    assert jaxdyn.load(path).joint_names == ("j",)
    bad = {
        "": r"x.xml: the document is empty",
        "<mujoco><worldbody>": r"x.xml: MuJoCo cannot compile this model: XML",
        "<mujoco></worldbody>": r"x.xml",
        "<mujoco><worldbdy/></mujoco>": r"x.xml: MuJoCo cannot compile this model: .*worldbdy",
        "<mujoco/>": "no body has a joint",
        model_with().replace("<joint ", '<joint stiffness="inf" '): "x.xml: springs.stiffness is inf",
        '<mujoco><worldbody><body name="b" pos="inf 0 0"><joint/><geom size="1"/></body></worldbody></mujoco>': (
            r"x.xml: body 'b' has pos = \[inf  0.  0.\]"
        ),
        '<mujoco><worldbody><body><joint name="j" pos="0 nan 0"/><geom size="1"/></body></worldbody></mujoco>': "joint 'j'",
        "<robo/>": "the root element is <robo>",
    }
    for text, message in bad.items():
        path.write_text(text)
        with pytest.raises(jaxdyn.ModelError, match=message):
            jaxdyn.load(path)
    with pytest.raises(jaxdyn.ModelError, match="there is no such file"):
        jaxdyn.load(tmp_path / "none.xml")
    path.write_text(model_with())
    with pytest.raises(jaxdyn.ModelError, match="tip= is for URDF files"):
        jaxdyn.load(path, tip="link")
    with pytest.raises(jaxdyn.ModelError, match="ignore= is for MJCF files"):
        jaxdyn.io.loads("<robot/>", ignore=["equality"])
    with pytest.raises(jaxdyn.ModelError, match="unknown feature 'equalities' in ignore; choose among"):
        jaxdyn.load(path, ignore=["equalities"])


def test_without_mujoco_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(jaxdyn.ModelError, match=r'pip install "jaxdyn\[mjcf\]"'):
        jaxdyn.io.loads(model_with())


def test_accelerations_of_a_free_joint_are_converted_between_layouts():
    """MuJoCo's are of the velocity in the world: R (dv/dt + w x v), then dw/dt in the body."""
    chain = random_mechanism(2, coupled=False)
    q, v, a = mechanism_state(chain, 3)
    w, x, y, z = np.asarray(q[3:7])
    turn = Rotation.from_quat([x, y, z, w]).as_matrix()
    found = layouts.to_mujoco_acceleration(chain, q, v, a)
    np.testing.assert_allclose(found[:3], turn @ (a[3:6] + np.cross(v[:3], v[3:6])), rtol=1e-12)
    np.testing.assert_allclose(found[3:6], a[:3], rtol=1e-14)
    np.testing.assert_allclose(found[6:], a[6:], rtol=1e-14)
    qpos, qvel = layouts.to_mujoco_state(chain, q, v)
    np.testing.assert_allclose(layouts.from_mujoco_acceleration(chain, qpos, qvel, found), a, rtol=1e-12, atol=1e-13)
