"""Contact dynamics against MuJoCo, the definition and differences."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from jaxdyn import contact, geometry
from jaxdyn.contact import definition
from jaxdyn.contact.reading import inverse_weights
from jaxdyn.errors import ModelError, ModelWarning
from jaxdyn.model import layouts

# bodies of all shapes, whose contacts have all dimensions, and which also touch each other
MIXED = """<mujoco><option timestep="0.002" cone="{cone}" impratio="{ratio}"/><worldbody>
<geom name="floor" type="plane" contype="7" conaffinity="7" size="5 5 .1" euler="5 3 0" friction="0.6 .01 .002"/>
<body name="ball" pos="0 0 .1"><freejoint/><geom type="sphere" size=".1" condim="4" friction=".7 .02 .003"/>
  <body name="arm" pos=".2 0 0"><joint name="elbow" axis="0 1 0" range="-.5 .3" limited="true" frictionloss=".2"
      damping=".1" armature=".01"/>
    <geom type="capsule" size=".05 .08" pos=".15 0 0" condim="3" solref=".01 .8" solimp=".8 .97 .01 .4 3"/>
    <body pos=".3 0 0"><joint name="wrist" type="slide" axis="1 0 0" range="-.05 .05" limited="true"/>
      <geom type="box" size=".05 .04 .03" condim="3" solref="-900 -40" contype="4" conaffinity="4"/></body></body></body>
<body name="other" pos="0 .18 .1"><freejoint/>
  <geom type="capsule" size=".06 .1" euler="0 70 0" condim="6" margin=".01" priority="1"/>
  <geom type="ellipsoid" size=".1 .08 .06" pos="0 0 -.05" condim="1" contype="2" conaffinity="2"/>
  <geom type="cylinder" size=".06 .08" pos=".1 0 0" condim="1" contype="2" conaffinity="2"/></body>
</worldbody></mujoco>"""


def compiled(text):
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.solver, model.opt.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.tolerance, model.opt.iterations = 0, 200
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-14, 200
    return model


class States:
    """A model with states (q, qd, tau), and MuJoCo's accelerations in these."""

    def __init__(self, model, count, seed=0, leave_out=False, ignore=()):
        rng = np.random.default_rng(seed)
        with pytest.warns(ModelWarning, match=r"omitted: .*contacts"):
            self.model, self.chain = model, jaxdyn.io.from_mujoco(model, ignore=ignore)
        self.contacts = contact.contacts_from_mujoco(model, self.chain, leave_out)
        self.qpos, self.qvel = np.tile(model.qpos0, (count, 1)), rng.normal(size=(count, model.nv))
        self.force, self.qacc = rng.normal(size=(count, model.nv)), np.zeros((count, model.nv))
        for j in range(model.njnt):
            at = model.jnt_qposadr[j]
            if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
                self.qpos[:, at : at + 2] += 0.1 * rng.normal(size=(count, 2))
                self.qpos[:, at + 2] *= rng.uniform(-0.2, 1.5, count)
                turns = rng.normal(size=(count, 4))
                self.qpos[:, at + 3 : at + 7] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
            elif model.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
                turns = rng.normal(size=(count, 4))
                self.qpos[:, at : at + 4] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
            else:
                low, high = model.jnt_range[j] if model.jnt_limited[j] else (-1, 1)
                self.qpos[:, at] += rng.uniform(1.1 * low - 0.1 * high, 1.1 * high - 0.1 * low, count)
        self.data, self.touching, passive = mujoco.MjData(model), [], []
        for k in range(count):
            self.at(k)
            self.qacc[k] = self.data.qacc
            passive.append(self.data.qfrc_passive.copy())
            self.touching.append([(int(x.geom1), int(x.geom2)) for x in self.data.contact])
        self.q, self.qd = jax.vmap(lambda q, v: layouts.from_mujoco_state(self.chain, q, v))(self.qpos, self.qvel)
        of_mujoco = jax.vmap(lambda q, f: layouts.from_mujoco_force(self.chain, q, f))
        self.tau = of_mujoco(self.qpos, self.force + np.array(passive))

    def at(self, k):
        """MuJoCo's data in state k."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:], self.data.qfrc_applied[:] = self.qpos[k], self.qvel[k], self.force[k]
        mujoco.mj_forward(self.model, self.data)
        return self.data


@functools.cache
def mixed(cone):
    return States(compiled(MIXED.format(cone=cone, ratio=10 if cone == "elliptic" else 1)), 200)


@functools.cache
def solved(cone):
    states = mixed(cone)
    solve = lambda q, v, t: contact.contact_dynamics(states.chain, states.contacts, q, v, t)
    return jax.jit(jax.vmap(solve))(states.q, states.qd, states.tau)


CONES = ("pyramidal", pytest.param("elliptic", marks=pytest.mark.ci))


@pytest.mark.parametrize("cone", CONES)
def test_accelerations_are_those_of_mujoco(cone):
    states, found = mixed(cone), solved(cone)
    to_mujoco = jax.vmap(lambda q, v, a: layouts.to_mujoco_acceleration(states.chain, q, v, a))
    error = np.abs(to_mujoco(states.q, states.qd, found.qdd) - states.qacc).max(axis=1)
    assert (error / (1 + np.abs(states.qacc).max(axis=1))).max() < 1e-11
    assert found.converged.all() and found.iterations.max() < 30


@pytest.mark.parametrize("cone", CONES)
def test_forces_are_those_of_mujoco(cone):
    states, found = mixed(cone), solved(cone)
    forces = jax.jit(jax.vmap(lambda q, v, a: contact.contact_forces(states.chain, states.contacts, q, v, a)))
    forces = jax.tree.map(np.asarray, forces(states.q, states.qd, found.qdd))
    touching = 0
    for k in range(60):
        data, wrench = states.at(k), np.zeros(6)
        expected, gaps = np.zeros(6), []
        for i in range(data.ncon):
            mujoco.mj_contactForce(states.model, data, i, wrench)
            axes = data.contact[i].frame.reshape(3, 3)
            expected += np.concatenate([axes.T @ wrench[:3], axes.T @ wrench[3:]])
            gaps.append(data.contact[i].dist)
        assert_allclose(forces.force[k].sum(0), expected[:3], atol=1e-8 * (1 + np.abs(expected).max()))
        assert_allclose(forces.moment[k].sum(0), expected[3:], atol=1e-8 * (1 + np.abs(expected).max()))
        acting = np.abs(forces.force[k]).max(axis=1) > 0
        assert set(np.round(forces.gap[k][acting], 8)) <= set(np.round(gaps, 8))
        touching += acting.sum()
    assert touching > 60


@pytest.mark.parametrize("cone", CONES)
def test_inverse_dynamics_is_that_of_mujoco_and_the_inverse_of_forward_dynamics(cone):
    states, found = mixed(cone), solved(cone)
    inverse = jax.jit(
        jax.vmap(lambda q, v, a: contact.contact_inverse_dynamics(states.chain, states.contacts, q, v, a))
    )
    scale = 1 + np.abs(states.qacc).max()
    assert_allclose(inverse(states.q, states.qd, found.qdd), states.tau, atol=1e-8 * scale)
    qdd = jnp.asarray(np.random.default_rng(1).normal(size=states.qacc.shape) * 30)
    torques = inverse(states.q, states.qd, qdd)
    for k in range(20):
        data = states.at(k)
        data.qacc[:] = layouts.to_mujoco_acceleration(states.chain, states.q[k], states.qd[k], qdd[k])
        mujoco.mj_inverse(states.model, data)
        of_mujoco = data.qfrc_inverse + data.qfrc_passive  # ours are without damping
        expected = layouts.from_mujoco_force(states.chain, jnp.asarray(states.qpos[k]), jnp.asarray(of_mujoco))
        assert_allclose(torques[k], expected, atol=1e-9 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("cone", CONES)
def test_the_fast_route_equals_the_definition(cone):
    states, found = mixed(cone), solved(cone)
    few = slice(0, 12)
    defined = jax.jit(jax.vmap(lambda q, v, t: definition.contact_dynamics(states.chain, states.contacts, q, v, t)))
    expected = defined(states.q[few], states.qd[few], states.tau[few])
    assert_allclose(found.qdd[few], expected, atol=1e-9 * (1 + np.abs(expected).max()))


@pytest.mark.ci
@pytest.mark.parametrize("cone", ["pyramidal", pytest.param("elliptic", marks=pytest.mark.nightly)])
def test_a_hundred_steps_are_those_of_mujoco(cone):
    states = mixed(cone)
    chain, few = states.chain, slice(0, 20)
    paths = []
    for k in range(20):
        data = states.at(k)
        path = []
        for _ in range(100):
            mujoco.mj_step(states.model, data)
            path.append(np.concatenate([data.qpos, data.qvel]))
        paths.append(path)

    def moved(q, v, force):
        torque = lambda t, q, v: layouts.from_mujoco_force(chain, layouts.to_mujoco_state(chain, q, v)[0], force)
        start = contact.ContactState(q, v, jnp.zeros_like(v))
        motion = contact.contact_rollout(chain, states.contacts, start, torque, 0.002, 100)
        return jnp.concatenate(jax.vmap(lambda q, v: layouts.to_mujoco_state(chain, q, v))(motion.q, motion.qd), axis=1)

    found = jax.jit(jax.vmap(moved))(states.q[few], states.qd[few], states.force[few])
    paths = np.array(paths)
    # tumbling bodies are chaotic: rounding errors grow to at most the bound of the issue
    assert_allclose(found[:, 1:21], paths[:, :20], atol=1e-10 * (1 + np.abs(paths).max()))
    assert np.median(np.abs(found[:, 1:] - paths).max(axis=(1, 2))) < 1e-8


def differences(function, x, step):
    """Central differences of a function of a vector, one column for each entry."""
    columns = [(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(len(x))]
    return np.stack(columns, axis=-1)


@pytest.mark.nightly
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_derivatives_agree_in_four_ways(cone):
    states, found = mixed(cone), solved(cone)
    chain, contacts = states.chain, states.contacts
    closed = jax.jit(lambda q, v, a: contact.contact_dynamics_derivatives(chain, contacts, q, v, a))
    qdd = lambda q, v, t: contact.contact_dynamics(chain, contacts, q, v, t).qdd
    moved = lambda q: lambda dq, v, t: qdd(jaxdyn.model.integrate(chain, q, dq), v, t)
    forward = jax.jit(lambda q, v, t: jax.jacfwd(moved(q), (0, 1, 2))(jnp.zeros(chain.nv), v, t))
    weights = np.random.default_rng(2).normal(size=chain.nv)
    reverse = jax.jit(lambda q, v, t: jax.grad(lambda *x: weights @ moved(q)(*x), (0, 1, 2))(jnp.zeros(chain.nv), v, t))
    value = jax.jit(lambda q, dq, v, t: moved(q)(dq, v, t))
    for k in range(6):
        q, v, t = states.q[k], states.qd[k], states.tau[k]
        jacobians = closed(q, v, found.qdd[k])
        for mine, other, gradient in zip(jacobians, forward(q, v, t), reverse(q, v, t), strict=True):
            size = 1 + np.abs(other).max()
            assert_allclose(mine, other, atol=1e-10 * size)
            assert_allclose(weights @ other, gradient, atol=1e-10 * size)
        zero = jnp.zeros(chain.nv)
        for mine, place, step in zip(jacobians, range(3), (1e-6, 1e-6, 1e-4), strict=True):
            arguments = [zero, v, t]
            along = lambda x, q=q, at=place, given=arguments: value(q, *given[:at], x, *given[at + 1 :])
            assert_allclose(mine, differences(along, arguments[place], step), atol=1e-6 * (1 + np.abs(mine).max()))


def test_derivatives_of_a_sliding_block_are_differences():
    chain, contacts = thrown("box")
    # off the depth of 1 mm, at which the impedance has a kink
    q, qd = REST.at[2].add(-7e-4), jnp.array([0.3, -0.2, 0.1, 0.5, 0.2, -0.3])
    solve = jax.jit(
        lambda dq, qd, tau: contact.contact_dynamics(chain, contacts, jaxdyn.model.integrate(chain, q, dq), qd, tau).qdd
    )
    zero = jnp.zeros(6)
    found = contact.contact_dynamics_derivatives(chain, contacts, q, qd, solve(zero, qd, zero))
    expected = (
        differences(lambda x: solve(x, qd, zero), zero, 1e-6),
        differences(lambda x: solve(zero, x, zero), qd, 1e-6),
        differences(lambda x: solve(zero, qd, x), zero, 1e-4),
    )
    for mine, other in zip(found, expected, strict=True):
        assert_allclose(mine, other, atol=1e-5 * (1 + np.abs(other).max()))


@pytest.mark.ci
def test_second_derivatives_are_differences_of_the_first():
    chain, contacts = thrown("box")
    q, qd = REST.at[2].add(-7e-4), jnp.array([0.3, -0.2, 0.1, 0.5, 0.2, -0.3])
    first = jax.jacfwd(lambda qd: contact.contact_dynamics(chain, contacts, q, qd, jnp.zeros(6)).qdd)
    second, expected = jax.jit(jax.jacfwd(first))(qd), differences(jax.jit(first), qd, 1e-6)
    assert_allclose(second, expected, atol=1e-6 * (1 + np.abs(expected).max()))


@pytest.mark.nightly
def test_derivatives_by_parameters_are_differences():
    states = mixed("pyramidal")
    q, v, t = states.q[0], states.qd[0], states.tau[0]

    def value(mass, friction, time, height):
        chain = eqx.tree_at(lambda c: c.inertia, states.chain, states.chain.inertia * mass)
        places = lambda c: (c.friction, c.softness.reference, c.shapes.pose)
        friction, reference, pose = (
            states.contacts.friction * friction,
            states.contacts.softness.reference * time,
            states.contacts.shapes.pose.at[0, 2, 3].add(height),
        )
        contacts = eqx.tree_at(places, states.contacts, (friction, reference, pose))
        return contact.contact_dynamics(chain, contacts, q, v, t).qdd

    at = jnp.array([1.0, 1.0, 1.0, 0.0])
    vector = jax.jit(lambda x: value(*x))
    forward, reverse = jax.jit(jax.jacfwd(vector))(at), jax.jit(jax.jacrev(vector))(at)
    assert_allclose(forward, reverse, atol=1e-9 * np.abs(forward).max())
    assert_allclose(forward, differences(vector, at, 1e-6), atol=1e-6 * np.abs(forward).max())
    assert (np.abs(forward).max(axis=0) > 0).all()


BLOCK = """<robot name="block"><link name="block"><inertial><mass value="2"/>
<inertia ixx="{i}" iyy="{i}" izz="{i}" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


@functools.cache
def thrown(kind):
    """A free body on the floor, made without MuJoCo: a block, or a ball with the inertia of a solid one."""
    chain = jaxdyn.io.loads(BLOCK.format(i=0.1 if kind == "box" else 0.4 * 2 * 0.1**2), floating_base=True)
    shape = jaxdyn.io.Geometry("block", kind, np.eye(4), (0.8, 0.8, 0.2) if kind == "box" else (0.1, 0.1, 0.1))
    shapes = geometry.with_environment(chain, geometry.make_shapes(chain, [shape], pairs=[]), [geometry.floor()])
    cone = "elliptic" if kind == "box" else "pyramidal"
    return chain, contact.make_contacts(chain, shapes, friction=(0.5, 0.005, 0.0001), reference=(0.01, 1.0), cone=cone)


REST = jnp.array([0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0])


def test_forces_are_wrenches_that_forward_dynamics_takes():
    chain, contacts = thrown("box")
    q, qd = REST.at[2].add(-1e-3), jnp.array([0.3, -0.2, 0.1, 0.5, 0.2, -0.3])
    qdd = contact.contact_dynamics(chain, contacts, q, qd, jnp.zeros(6)).qdd
    wrenches = contact.contact_wrenches(chain, contacts, q, qd, qdd)
    assert_allclose(jaxdyn.forward_dynamics(chain, q, qd, jnp.zeros(6), wrenches), qdd, atol=1e-9 * np.abs(qdd).max())


def test_weights_are_those_of_mujoco():
    states = mixed("pyramidal")
    of_links, of_velocities = inverse_weights(states.chain)
    assert_allclose(of_velocities, states.contacts.weight, rtol=1e-9)
    on = [link for link in states.contacts.shapes.links if link >= 0]
    given = np.asarray(states.contacts.shape_weight)[np.array(states.contacts.shapes.links) >= 0]
    assert_allclose(np.asarray(of_links)[on], given, rtol=1e-9)


def test_no_state_has_nan():
    chain, contacts = thrown("sphere")
    q = jnp.stack([REST.at[2].set(z) for z in (0.1, 0.1 + 1e-9, 0.1 - 1e-9, 0.0, -0.1, 1e3, 0.05)])

    def value(q, qd):
        qdd = contact.contact_dynamics(chain, contacts, q, qd, jnp.zeros(6)).qdd
        return (qdd**2).sum(), qdd

    slope = jax.jit(jax.vmap(jax.value_and_grad(value, (0, 1), has_aux=True)))
    for qd in (jnp.zeros(6), jnp.ones(6)):
        (_, qdd), gradient = slope(q, jnp.broadcast_to(qd, (len(q), 6)))
        assert np.isfinite(qdd).all() and all(np.isfinite(g).all() for g in gradient)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["box", "sphere"])
def test_none_of_a_million_states_has_nan(kind):
    """Half of them with exact zeros: of the gap, of single velocities and of all, level or upright, with torques of zero."""
    chain, contacts = thrown(kind)
    count = 500_000
    rng = np.random.default_rng(0)
    q = np.tile(REST, (count, 1))
    q[:, :2], q[:, 2] = rng.normal(size=(count, 2)), rng.choice([0.1, 0.1, 0.099, 0.0, -0.2, 1.0], count)
    turns = rng.normal(size=(count, 4))
    turns[::2] = rng.choice([-1.0, 0.0, 0.0, 1.0], (count // 2, 4))
    turns[np.abs(turns).max(axis=1) == 0] = [1.0, 0, 0, 0]
    q[:, 3:] = turns / np.linalg.norm(turns, axis=1, keepdims=True)
    qd, tau = (rng.normal(size=(count, 6)) * rng.choice([0.0, 0.0, 1.0, 1e-9, 1e3], (count, 6)) for _ in range(2))

    def both(q, qd, tau):
        qdd = contact.contact_dynamics(chain, contacts, q, qd, tau).qdd
        return qdd, contact.contact_dynamics_derivatives(chain, contacts, q, qd, qdd)

    for part in jax.tree.leaves(jax.jit(jax.vmap(both))(q, qd, tau)):
        assert np.isfinite(part).all()


def test_single_precision():
    states, found = mixed("pyramidal"), solved("pyramidal")
    chain, contacts = (jax.tree.map(lambda x: x.astype(np.float32), y) for y in (states.chain, states.contacts))
    solve = jax.jit(jax.vmap(lambda q, v, t: contact.contact_dynamics(chain, contacts, q, v, t).qdd))
    qdd = solve(*(x.astype(jnp.float32) for x in (states.q, states.qd, states.tau)))
    assert qdd.dtype == jnp.float32
    expected = np.asarray(found.qdd)
    error = np.abs(np.asarray(qdd) - expected).max(axis=1) / (1 + np.abs(expected).max(axis=1))
    assert np.median(error) < 3e-6 and np.quantile(error, 0.9) < 1e-4


def test_robots_in_a_batch_have_their_own_friction():
    chain, contacts = thrown("box")
    q, qd = REST.at[2].add(-1e-3), jnp.zeros(6).at[3].set(1.0)
    solve = lambda mu: (
        contact.contact_dynamics(
            chain, eqx.tree_at(lambda c: c.friction, contacts, contacts.friction * mu), q, qd, jnp.zeros(6)
        ).qdd
    )
    scales = jnp.array([0.5, 1.0, 1.5])
    assert_allclose(jax.jit(jax.vmap(solve))(scales), jnp.stack([solve(mu) for mu in scales]), rtol=1e-9, atol=1e-9)


def test_what_is_not_supported_is_named():
    text = """<mujoco><worldbody><body><freejoint/><geom name="crate" type="box" size=".1 .1 .1"/></body>
    <body pos="0 0 1"><freejoint/><geom name="barrel" type="cylinder" size=".1 .1"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    with pytest.warns(ModelWarning, match=r"omitted: .*contacts"):
        chain = jaxdyn.io.from_mujoco(model)
    with pytest.raises(ModelError, match=r"1 pairs of shapes .* box and cylinder, such as barrel with crate"):
        contact.contacts_from_mujoco(model, chain)
    with pytest.warns(ModelWarning, match="left out"):
        without = contact.contacts_from_mujoco(model, chain, leave_out=True)
    assert without.shapes.pairs == ()
    other = jaxdyn.robots.panda()
    with pytest.raises(ModelError, match="a robot with 12 velocities, not 7"):
        contact.contact_dynamics(other, without, *jnp.zeros((3, 7)))
    arm = thrown("box")
    with pytest.raises(ModelError, match="dimension=2"):
        contact.make_contacts(arm[0], arm[1].shapes, dimension=2)


def test_contacts_are_read_from_files(tmp_path):
    file = tmp_path / "mixed.xml"
    file.write_text(MIXED.format(cone="pyramidal", ratio=1))
    with pytest.warns(ModelWarning, match=r"omitted: .*contacts"):
        chain = jaxdyn.load(file)
    contacts = contact.read(file, chain)
    assert contacts.rows == mixed("pyramidal").contacts.rows
    assert "limits of 2 joints" in repr(contacts)
    link = lambda name, shape: (
        f'<link name="{name}"><inertial><mass value="1"/>'
        '<inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'
        f"<collision><geometry><{shape}/></geometry></collision></link>"
    )
    joint = lambda name, parent, child, x: (
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/><origin xyz="{x} 0 0"/>'
        '<axis xyz="0 1 0"/></joint>'
    )
    parts = [
        link("block", 'box size=".2 .2 .1"'),
        link("ball", 'sphere radius=".1"'),
        link("tip", 'box size=".1 .1 .1"'),
    ]
    parts += [joint("shoulder", "block", "ball", 0.4), joint("elbow", "ball", "tip", 0.3)]
    urdf = tmp_path / "block.urdf"
    urdf.write_text(f'<robot name="arm">{"".join(parts)}</robot>')
    chain = jaxdyn.load(urdf, floating_base=True)
    with pytest.raises(ModelError, match="not supported, such as block with tip"):
        contact.read(urdf, chain)
    with pytest.warns(ModelWarning, match="1 of 4 pairs"):
        contacts = contact.read(urdf, chain, leave_out=True)
    assert {"floor"} == {name for pair in contacts.place_names for name in pair} - {"block", "ball", "tip"}


SERVOS = """<mujoco><option timestep="0.004" integrator="implicitfast"/><default><geom size=".05" friction="0.9"/></default>
<worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 .5"><joint name="lift" type="slide" axis="0 0 1" damping="1"/>
  <geom type="sphere" pos="0 0 .1" contype="0" conaffinity="0"/>
  <body><joint name="hip" axis="0 1 0" damping=".05" armature=".01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.2" contype="0" conaffinity="0"/>
    <body pos="0 0 -.2"><joint name="knee" axis="0 1 0" actuatorfrcrange="-6 6" armature=".01"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.2"/></body></body></body></worldbody>
<actuator><position joint="hip" kp="60" kv="2" ctrlrange="-1 1" forcerange="-20 20"/>
  <velocity joint="knee" kv="1.5" gear="2"/><motor joint="knee" gear="3" ctrlrange="-2 2"/></actuator></mujoco>"""


def test_servos_are_those_of_mujoco():
    model = compiled(SERVOS)
    with pytest.warns(ModelWarning, match=r"omitted: .*contacts"):
        chain = jaxdyn.io.from_mujoco(model)
    contacts, servos = contact.contacts_from_mujoco(model, chain), contact.servos_from_mujoco(model, chain)
    rng, data = np.random.default_rng(0), mujoco.MjData(model)
    torques = jax.jit(lambda q, v, u: contact.servo_torques(chain, servos, q, v, u))
    for _ in range(50):
        data.qpos[:], data.qvel[:], data.ctrl[:] = rng.normal(size=3), 3 * rng.normal(size=3), 2 * rng.normal(size=3)
        mujoco.mj_forward(model, data)
        assert_allclose(
            torques(*map(jnp.asarray, (data.qpos, data.qvel, data.ctrl))).tau, data.qfrc_actuator, atol=1e-12
        )
    assert np.abs(data.qfrc_actuator).max() > 0
    controls = np.stack([np.sin(np.arange(100) / 10), np.cos(np.arange(100) / 7), rng.normal(size=100)], axis=1)
    mujoco.mj_resetData(model, data)
    path = []
    for u in controls:
        data.ctrl[:] = u
        mujoco.mj_step(model, data)
        path.append(np.concatenate([data.qpos, data.qvel]))

    def step(state, u):
        found = torques(state.q, state.qd, u)
        state = contact.contact_step(chain, contacts, state, found.tau, 0.004, found.damping)
        return state, jnp.concatenate([state.q, state.qd])

    start = contact.ContactState(*jnp.zeros((3, 3)))
    moved = jax.jit(lambda u: jax.lax.scan(step, start, u)[1])(jnp.asarray(controls))
    assert_allclose(moved, path, atol=1e-8)
    with pytest.raises(ModelError, match="muscle"):
        text = SERVOS.replace("<velocity", '<muscle name="muscle" joint="hip" lengthrange="0 1"/><velocity')
        contact.servos_from_mujoco(compiled(text), chain)


@pytest.mark.ci
def test_second_derivatives_agree_in_both_modes():
    chain = jaxdyn.io.loads(
        """<robot name="door"><link name="frame"/><joint name="hinge" type="revolute"><parent link="frame"/>
        <child link="wing"/><axis xyz="0 1 0"/><limit lower="-1" upper="0.2" effort="1" velocity="1"/></joint>
        <link name="wing"><inertial><origin xyz="0.3 0 0"/><mass value="2"/>
        <inertia ixx="0.03" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""
    )
    contacts = contact.make_contacts(chain, geometry.make_shapes(chain, [], pairs=[]))
    qd = jnp.array([0.5])
    qdd = lambda q: contact.contact_dynamics(chain, contacts, q, qd, qd).qdd
    q = jnp.array([0.2005])  # at the stop
    forward = jax.jit(jax.jacfwd(jax.jacfwd(qdd)))(q)
    assert abs(forward.item()) > 1
    assert_allclose(jax.jit(jax.jacfwd(jax.jacrev(qdd)))(q), forward, rtol=1e-10)
