"""Motions of links and wrenches at joints: against the recursion written out, by hand, and against Pinocchio."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn import Topology, textbook
from jaxdyn.dynamics import joint_wrenches, link_accelerations, link_twists, matrix_form
from oracle import adjoint, closed_form, recursion

TOLERANCE = 1e-12
KINDS = ("spatial", "conventional")


def tree() -> jaxdyn.Chain:
    """Five joints of all kinds on two branches, on a tilted base."""
    chain = random_chain(5, 3)
    topology = dataclasses.replace(
        Topology((-1, 0, 1, 0, 3), tip_name="tool", frame_names=("tool",), frame_links=(2,)),
    )
    base = jaxdyn.spatial.se3.pose_exp(jnp.asarray([0.3, -0.5, 0.2, 0.1, 0.4, -0.2]))
    return dataclasses.replace(chain, topology=topology, base_pose=base)


@once
def all_of(chain, q, qd, qdd, wrench):
    return {
        "twists": link_twists(chain, q, qd),
        "accelerations": link_accelerations(chain, q, qd, qdd),
        "wrenches": joint_wrenches(chain, q, qd, qdd, wrench_by_tip=wrench),
        "torques": jaxdyn.inverse_dynamics(chain, q, qd, qdd, wrench_by_tip=wrench) - chain.armature * qdd,
        "poses": jaxdyn.forward_kinematics(chain, q),
    }


def test_they_are_what_the_recursion_finds():
    chain, state = tree(), random_state(5, 2)
    wrench = jnp.asarray([1.0, -2, 0.5, 4, 3, -1])
    got, exact = all_of(chain, *state, wrench), recursion(chain, *state, wrench_by_tip=wrench)
    for name in ("twists", "wrenches", "torques"):
        assert relative(got[name], getattr(exact, name)) < TOLERANCE, name
    gravity = np.concatenate([np.zeros(3), np.asarray(chain.gravity)])
    for pose, dv, expected in zip(np.asarray(got["poses"]), got["accelerations"], exact.accelerations, strict=True):
        turned = np.block([[pose[:3, :3], np.zeros((3, 3))], [np.zeros((3, 3)), pose[:3, :3]]]).T
        assert relative(dv, expected + turned @ gravity) < TOLERANCE


def test_the_elbow_has_the_joint_forces_of_the_book():
    """Spong, Hutchinson & Vidyasagar 2020, sec. 6.7: f_1, f_2 in their links' axes, and the torques."""
    m1, m2, l1, lc1, lc2, i1, i2, g = 1.2, 0.8, 0.7, 0.3, 0.2, 0.05, 0.03, 9.6
    chain = textbook.planar_elbow(m1=m1, m2=m2, l1=l1, l2=0.5, lc1=lc1, lc2=lc2, i1=i1, i2=i2, gravity=g)
    (q1, q2), (w1, w2), (a1, a2) = q, qd, qdd = np.array([[-0.3, 0.9], [1.1, -0.6], [0.4, 2.0]])
    s1, c1, s2, c2, s12, c12 = np.sin(q1), np.cos(q1), np.sin(q2), np.cos(q2), np.sin(q1 + q2), np.cos(q1 + q2)
    # forward: accelerations of centres of mass, in their links' axes
    ac1 = np.array([-lc1 * w1**2, lc1 * a1])
    ae1 = np.array([-l1 * w1**2, l1 * a1])
    back = np.array([[c2, s2], [-s2, c2]])  # from the axes of link 1 to those of link 2
    ac2 = back @ ae1 + np.array([-lc2 * (w1 + w2) ** 2, lc2 * (a1 + a2)])
    g1, g2 = -g * np.array([s1, c1]), -g * np.array([s12, c12])
    # backward
    f2 = m2 * ac2 - m2 * g2
    tau2 = i2 * (a1 + a2) + lc2 * f2[1]
    f1 = m1 * ac1 + back.T @ f2 - m1 * g1
    tau1 = tau2 + lc1 * (f1[1] - (back.T @ f2)[1]) + l1 * (back.T @ f2)[1] + i1 * a1
    got = np.asarray(once(joint_wrenches)(chain, *map(jnp.asarray, (q, qd, qdd))))
    expected = [[0, 0, tau1, *f1, 0], [0, 0, tau2, *f2, 0]]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)


def test_accelerations_are_the_derivatives_of_twists_in_every_reference():
    """Spatial ones in space coordinates, where conventional ones have w x v beside; both in mixed coordinates."""
    chain = dataclasses.replace(random_chain(3, 5), base_pose=None)
    q, v, a = random_state(3, 4)

    @once
    def found(q, v, a):
        moved = lambda t: (q + t * v + t**2 / 2 * a, v + t * a)
        rate = lambda reference: jax.jvp(lambda t: link_twists(chain, *moved(t), reference), (0.0,), (1.0,))
        kinds = {k: link_accelerations(chain, q, v, a, *k) for k in itertools.product(("space", "mixed"), KINDS)}
        return rate("space"), rate("mixed"), kinds

    (space, of_space), (_, of_mixed), got = found(q, v, a)
    product = np.pad(np.cross(space[:, :3], space[:, 3:]), ((0, 0), (3, 0)))
    assert relative(got["space", "spatial"], of_space) < TOLERANCE
    assert relative(got["space", "conventional"], of_space + product) < TOLERANCE
    assert relative(got["mixed", "conventional"], of_mixed) < TOLERANCE
    assert relative(got["mixed", "spatial"], of_mixed) < TOLERANCE


def test_the_ground_carries_weight_and_inertia_under_any_gravity():
    """The force on the base is that of the rate of momentum less gravity, also where gravity is not along z."""
    chain = dataclasses.replace(random_chain(3, 6), base_pose=None, gravity=jnp.asarray([1.0, -4.0, 7.0]))
    q, v, a = random_state(3, 7)

    @once
    def found(q, v, a):
        centre = lambda t: jaxdyn.centre_of_mass(chain, q + t * v + t**2 / 2 * a)
        rate = lambda t: jax.jvp(centre, (t,), (1.0,))[1]
        acceleration = jax.jvp(rate, (0.0,), (1.0,))[1]
        wanted = jaxdyn.total_mass(chain) * (acceleration - chain.gravity)
        return jaxdyn.mechanisms.ground_reaction(chain, q, v, a)[3:], wanted

    assert relative(*found(q, v, a)) < 1e-11


@pytest.mark.nightly
def test_what_is_held_at_rest_is_its_weight():
    """A standing biped: its stance foot carries all that is above it, whose ground reaction is the first joint's wrench."""
    chain = textbook.biped()
    q, rest = jnp.linspace(-0.2, 0.3, 10), jnp.zeros(10)
    found = once(lambda: joint_wrenches(chain, q, rest, rest, reference="space"))()
    reaction = once(lambda: jaxdyn.mechanisms.ground_reaction(chain, q, rest, rest))()
    assert relative(found[0], reaction) < TOLERANCE
    np.testing.assert_allclose(found[0, 3:], [0, 0, 9.81 * jaxdyn.total_mass(chain)], atol=1e-10)


@pytest.mark.ci
def test_twists_and_accelerations_in_all_references_equal_those_of_pinocchio():
    pin = pytest.importorskip("pinocchio")
    from peer_models import configuration_to_pinocchio, to_pinocchio, velocity_to_pinocchio

    chain = dataclasses.replace(random_mechanism(3, coupled=False), base_pose=None)
    q, v, a = mechanism_state(chain, 4)

    @once
    def found(q, v, a):
        out = {}
        for reference in ("body", "space", "mixed"):
            out["v", reference] = link_twists(chain, q, v, reference)
            out["F", reference] = joint_wrenches(chain, q, v, a, reference=reference)
            for kind in ("spatial", "conventional"):
                out[kind, reference] = link_accelerations(chain, q, v, a, reference, kind)
        return out

    got = {k: np.asarray(x) for k, x in found(q, v, a).items()}
    model = to_pinocchio(chain)
    model.gravity.linear = np.zeros(3)
    data = model.createData()
    state = [configuration_to_pinocchio(chain, np.asarray(q))]
    state += [velocity_to_pinocchio(chain, np.asarray(x)) for x in (v, a)]
    pin.forwardKinematics(model, data, *state)
    frames = {"body": pin.LOCAL, "space": pin.WORLD, "mixed": pin.LOCAL_WORLD_ALIGNED}
    swapped = lambda m: np.concatenate([m.angular, m.linear])
    inner = {i for joint in chain.joints for i in range(joint.link, joint.links.stop - 1)}
    links = [i for i in range(chain.n) if i not in inner]
    for reference, frame in frames.items():
        for i in links:
            k = model.getFrameId(f"link{i}")
            wanted = swapped(pin.getFrameVelocity(model, data, k, frame))
            np.testing.assert_allclose(got["v", reference][i], wanted, atol=1e-11)
            wanted = swapped(pin.getFrameClassicalAcceleration(model, data, k, frame))
            np.testing.assert_allclose(got["conventional", reference][i], wanted, atol=1e-10)
            if (
                reference == "mixed"
            ):  # there Pinocchio's spatial acceleration is no derivative of the twist's components
                np.testing.assert_array_equal(got["spatial", reference], got["conventional", reference])
            else:
                wanted = swapped(pin.getFrameAcceleration(model, data, k, frame))
                np.testing.assert_allclose(got["spatial", reference][i], wanted, atol=1e-10)
    model.gravity.linear = np.array(chain.gravity)
    pin.rnea(model, data, *state)
    for i in links:
        frame = model.frames[model.getFrameId(f"link{i}")]
        at_link = frame.placement.actInv(data.f[frame.parentJoint])
        for reference, pose in (("body", None), ("space", 1), ("mixed", 0)):
            wanted = at_link
            if pose is not None:
                there = data.oMi[frame.parentJoint] * frame.placement
                wanted = pin.SE3(there.rotation, pose * there.translation).act(at_link)
            np.testing.assert_allclose(got["F", reference][i], swapped(wanted), atol=1e-10)


@pytest.mark.nightly
def test_link_twists_and_accelerations_are_derivatives_of_the_motion():
    """J_i of a link is the derivative of its twist; dV_i is that of V_i along the motion."""
    chain, (q, qd, qdd) = tree(), random_state(5, 5)
    link = chain.link_names[4]
    for reference in ("body", "space", "mixed"):

        @once
        def both(q, qd, qdd, reference=reference):
            slope = jax.jacfwd(lambda u: link_twists(chain, q, u, reference)[4])(qd)
            _, rate = jax.jvp(lambda p, u: link_twists(chain, p, u, reference), (q, qd), (qd, qdd))
            j = jaxdyn.jacobian(chain, q, link, reference)
            return slope - j, rate - link_accelerations(chain, q, qd, qdd, reference)

        assert max(float(jnp.abs(y).max()) for y in both(q, qd, qdd)) < 1e-12
    batch = [jnp.stack([x, 2 * x, -x]) for x in (q, qd, qdd)]
    together = once(jax.vmap(lambda *x: joint_wrenches(chain, *x)))(*batch)
    exact = [recursion(chain, *x).wrenches for x in zip(*batch, strict=True)]
    assert relative(together, np.array(exact)) < TOLERANCE


def test_unknown_references_and_quaternion_joints_are_refused(annotations_unchecked):
    chain, state = textbook.planar_elbow(), random_state(2)
    with pytest.raises(jaxdyn.ModelError, match="'body', 'space' or 'mixed', not 'world'"):
        link_twists(chain, *state[:2], reference="world")
    with pytest.raises(jaxdyn.ModelError, match="'spatial' or 'conventional', not 'true'"):
        link_accelerations(chain, *state, kind="true")
    floating = textbook.biped(floating=True)
    with pytest.raises(jaxdyn.ModelError, match="ordinary joints"):
        matrix_form(floating, jaxdyn.neutral_configuration(floating), jnp.zeros(floating.nv), jnp.zeros(floating.nv))


def test_the_matrix_form_is_the_recursion_as_matrices():
    """Every stacked quantity of Lynch & Park 2017, sec. 8.4: of a tree whose base moves, with a wrench at the tip."""
    chain, (q, qd, qdd) = tree(), random_state(5, 6)
    rng = np.random.default_rng(0)
    twist, acceleration, wrench = (jnp.asarray(rng.normal(size=6)) for _ in range(3))
    form = once(matrix_form)(chain, q, qd, qdd, twist, acceleration, wrench)
    exact = recursion(chain, q, qd, qdd, twist, acceleration, wrench)
    for name in ("twists", "accelerations", "wrenches", "torques"):
        assert (
            relative(np.reshape(getattr(form, name), np.shape(getattr(exact, name))), getattr(exact, name)) < TOLERANCE
        )
    gamma, propagation = np.asarray(form.transport), np.asarray(form.propagation)
    powers = sum(np.linalg.matrix_power(gamma, k) for k in range(1, 5)) + np.eye(30)
    assert relative(propagation, powers) < TOLERANCE and not np.linalg.matrix_power(gamma, 5).any()
    assert relative(propagation, np.linalg.inv(np.eye(30) - gamma)) < TOLERANCE
    reach = propagation @ np.asarray(form.screws)
    assert relative(form.mass_matrix, reach.T @ np.asarray(form.inertias) @ reach) < TOLERANCE
    parts = form.mass_matrix @ qdd + form.velocity_force + form.gravity_force + form.tip_force
    assert relative(parts, exact.torques) < TOLERANCE
    tip = jaxdyn.jacobian(chain, q)
    assert relative(form.tip_force, tip.T @ wrench) < TOLERANCE
    first = np.asarray(form.base_twist).reshape(5, 6)
    assert first[0].any() and not first[1:].any()
    step = np.linalg.inv(np.asarray(jaxdyn.forward_kinematics(chain, q)[0])) @ np.asarray(chain.base_pose)
    assert relative(first[0], adjoint(step) @ np.asarray(twist)) < TOLERANCE


@pytest.mark.nightly
def test_the_matrix_form_of_a_serial_chain():
    chain, (q, qd, qdd) = random_chain(4, 1), random_state(4, 1)
    form, exact = once(matrix_form)(chain, q, qd, qdd), closed_form(chain, q, qd)
    assert relative(form.mass_matrix, exact.mass_matrix - np.diag(chain.armature)) < TOLERANCE
    assert relative(form.velocity_force, exact.coriolis_force) < TOLERANCE
    assert relative(form.gravity_force, exact.gravity_force) < TOLERANCE
