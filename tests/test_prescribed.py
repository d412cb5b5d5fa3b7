"""Bases and joints with prescribed motion: against pendulums by hand, the recursion written out, and each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn import mechanisms, textbook
from jaxdyn.spatial.se3 import pose, pose_exp
from oracle import recursion

G, LENGTH = 9.7, 0.6


def swinging(t):
    """A path with everything: turning, speeding up and going round."""
    w = jnp.stack([0.3 * jnp.sin(2 * t), -0.4 * t, 0.2 * t**2])
    return pose_exp(jnp.concatenate([w, jnp.stack([jnp.cos(t), t**3, 0.5 * jnp.sin(3 * t)])]))


def bob(**more):
    return textbook.pendulum(mass=0.9, length=LENGTH, com_distance=LENGTH, inertia=0.0, gravity=G, **more)


def test_torques_of_a_moving_base_are_those_of_the_recursion():
    chain, (q, qd, qdd) = random_chain(4, 3), random_state(4, 3)
    wrench = jnp.asarray([0.3, -1, 2, 4, 1, -2.0])

    @once
    def found(t):
        base = mechanisms.base_motion(swinging, t)
        tau = mechanisms.moving_base_inverse_dynamics(chain, base, q, qd, qdd, wrench_by_tip=wrench)
        return base, tau, mechanisms.moving_base_forward_dynamics(chain, base, q, qd, tau, wrench_by_tip=wrench)

    base, tau, back = found(0.7)
    placed = dataclasses.replace(chain, base_pose=base.pose)
    exact = recursion(placed, q, qd, qdd, base.twist, base.acceleration, wrench)
    assert relative(tau, exact.torques + chain.armature * qdd) < 1e-12
    assert relative(back, qdd) < 1e-10
    # the path's derivatives by differences of poses
    h = 1e-4
    before, here, after = (np.asarray(swinging(0.7 + s)) for s in (-h, 0.0, h))
    hat = np.linalg.inv(here) @ (after - before) / (2 * h)
    twist = [hat[2, 1], hat[0, 2], hat[1, 0], *hat[:3, 3]]
    np.testing.assert_allclose(base.twist, twist, atol=1e-6)


@pytest.mark.nightly
def test_bases_that_rest_or_float_are_special_cases():
    """At rest nothing changes; a robot whose free joint has the motion of the base needs the same torques."""
    chain = textbook.biped(floating=True)
    q, v, a = mechanism_state(chain, 1)
    legs = textbook.biped(floating=True)
    fixed = dataclasses.replace(  # the same legs on a torso that is the base
        legs,
        topology=jaxdyn.Topology((*range(-1, 4), -1, *range(5, 9))),
        **{name: getattr(legs, name)[6:] for name in ("rotation", "translation", "screw", "inertia", "armature")},
        friction=jax.tree.map(lambda x: x[6:], legs.friction),
        springs=jax.tree.map(lambda x: x[6:], legs.springs),
        limits=jax.tree.map(lambda x: x[6:], legs.limits),
        frame_poses=jnp.zeros((0, 4, 4)),
    )

    @once
    def both(q, v, a):
        base = mechanisms.BaseMotion(jaxdyn.frame_pose(chain, q, "torso"), v[:6], a[:6])
        whole = mechanisms.hybrid_dynamics(chain, q, v, range(6), a[:6], jnp.zeros(16))
        legs = mechanisms.moving_base_forward_dynamics(fixed, base, q[7:], v[6:], jnp.zeros(10))
        still = mechanisms.BaseMotion(jnp.eye(4), jnp.zeros(6), jnp.zeros(6))
        at_rest = mechanisms.moving_base_inverse_dynamics(fixed, still, q[7:], v[6:], a[6:])
        known = jaxdyn.inverse_dynamics(fixed, q[7:], v[6:], a[6:])
        return (
            whole.acceleration[6:],
            legs,
            at_rest,
            known,
            whole,
            jaxdyn.inverse_dynamics(chain, q, v, whole.acceleration),
        )

    hybrid, moved, at_rest, known, whole, needed = both(q, v, a)
    assert relative(moved, hybrid) < 1e-10 and relative(at_rest, known) < 1e-12
    np.testing.assert_array_equal(whole.acceleration[:6], a[:6])
    assert (
        np.abs(needed - whole.torques).max() < 1e-9 * np.abs(needed).max()
    )  # those on the torso, and none on the legs


def lifted(t):
    return pose(jnp.eye(3), jnp.stack([0 * t, 0 * t, 0.05 * jnp.sin(12 * t)]))


def turned(t):
    w = 3.0 * t + 0.4 * t**2
    c, s = jnp.cos(w), jnp.sin(w)
    return pose(jnp.stack([c, -s, 0 * t, s, c, 0 * t, 0 * t, 0 * t, 1 + 0 * t]).reshape(3, 3), jnp.zeros(3))


def on_a_lift(t, x):
    return [x[1], -(G - 0.05 * 144 * np.sin(12 * t)) / LENGTH * np.sin(x[0])]


def on_a_turntable(t, x):
    return [x[1], (3 + 0.8 * t) ** 2 * np.sin(x[0]) * np.cos(x[0]) - G / LENGTH * np.sin(x[0])]


@pytest.mark.parametrize(
    ("path", "by_hand"), [(lifted, on_a_lift), pytest.param(turned, on_a_turntable, marks=pytest.mark.nightly)]
)
@pytest.mark.ci
def test_pendulums_on_a_lift_and_a_turntable_have_the_equations_by_hand(path, by_hand):
    """l qdd = -(g + ydd) sin q; and qdd = W(t)^2 sin q cos q - g sin q / l, W the speed about the vertical."""
    chain, start = bob(), jnp.asarray([0.8])
    q, qd = once(
        lambda q: mechanisms.moving_base_rollout(chain, path, q, 0 * q, jnp.zeros((400, 1)), 2.5e-3, every=100)
    )(start)
    exact = solve_ivp(by_hand, (0, 1), [0.8, 0.0], rtol=1e-12, atol=1e-12, t_eval=np.linspace(0, 1, 5)).y
    np.testing.assert_allclose(np.concatenate([q, qd], 1).T, exact, atol=1e-8)  # the scheme's error


@pytest.mark.ci
def test_the_pendulum_on_a_lift_has_the_derivatives_found_by_hand():
    """d qdd / dq of the pendulum on a lift is -(g + ydd) cos q / l, with respect to ydd -sin q / l."""
    chain = bob()

    @once
    def slopes(q, lift):
        def acceleration(q, lift):
            base = mechanisms.BaseMotion(jnp.eye(4), jnp.zeros(6), jnp.zeros(6).at[5].set(lift))
            return mechanisms.moving_base_forward_dynamics(chain, base, q, jnp.zeros(1), jnp.zeros(1))[0]

        return jax.grad(acceleration, (0, 1))(q, lift)

    by_q, by_lift = slopes(jnp.asarray([0.8]), jnp.asarray(2.3))
    np.testing.assert_allclose(by_q, [-(G + 2.3) * np.cos(0.8) / LENGTH], atol=1e-12)
    np.testing.assert_allclose(by_lift, -np.sin(0.8) / LENGTH, atol=1e-12)


def test_prescribed_joints_move_as_told_and_the_others_by_their_torques():
    """The accelerations found take the torques found, those of free joints as given; the others' are not read."""
    chain, (q, qd, qdd) = random_chain(4, 3), random_state(4, 3)
    told, free, tau = jnp.array([3, 1]), jnp.array([0, 2]), jnp.asarray([0.7, 9.0, -1.2, 8.0])
    names = [chain.joint_names[k] for k in (3, 1)]
    found = once(lambda q, qd: mechanisms.hybrid_dynamics(chain, q, qd, names, qdd[told], tau))(q, qd)
    np.testing.assert_array_equal(found.acceleration[told], qdd[told])
    np.testing.assert_array_equal(found.torques[free], tau[free])
    needed = recursion(chain, q, qd, found.acceleration).torques + chain.armature * found.acceleration
    assert relative(found.torques, needed) < 1e-11


@pytest.mark.ci
def test_a_cart_with_a_prescribed_motion_has_the_equations_by_hand():
    """The lift as a joint: `with_moving_base_point` and hybrid dynamics, the route without a moving frame."""
    chain = mechanisms.with_moving_base_point(bob())
    names = ("base_x", "base_y", "base_z")
    still, lift = jnp.zeros_like, lambda t: 0.05 * jnp.sin(12 * t)
    paths = dict(zip(names, (still, still, lift), strict=True))
    start = jnp.asarray([0.0, 0, 0, 0.8])
    roll = once(lambda q: mechanisms.hybrid_rollout(chain, paths, q, 0 * q, jnp.zeros((400, 4)), 2.5e-3, every=100))
    q, qd = roll(start)
    exact = solve_ivp(on_a_lift, (0, 1), [0.8, 0.0], rtol=1e-12, atol=1e-12, t_eval=np.linspace(0, 1, 5)).y
    np.testing.assert_allclose(np.stack([q[:, 3], qd[:, 3]]), exact, atol=1e-8)
    times = np.linspace(0, 1, 5)
    np.testing.assert_allclose(q[:, 2], 0.05 * np.sin(12 * times), atol=1e-14)
    np.testing.assert_allclose(qd[:, 2], 0.6 * np.cos(12 * times), atol=1e-13)


@pytest.mark.ci
def test_hybrid_dynamics_agree_with_inverse_and_forward_dynamics():
    """Given what came out, inverse dynamics asks for the forces, and forward dynamics under all of them moves the same."""
    chain = random_mechanism(3)
    q, v, a = mechanism_state(chain, 2)
    tau = random_state(chain.nv, 9)[0]
    prescribed = (0, 3, 10)

    @once
    def found(q, v, a, tau):
        got = mechanisms.hybrid_dynamics(chain, q, v, prescribed, a[:3], tau)
        everything = mechanisms.hybrid_dynamics(chain, q, v, range(chain.nv), a, tau)
        nothing = mechanisms.hybrid_dynamics(chain, q, v, (), a[:0], tau)
        known = jaxdyn.inverse_dynamics(chain, q, v, a), jaxdyn.forward_dynamics(chain, q, v, tau)
        return got, everything, nothing, known, jaxdyn.forward_dynamics(chain, q, v, got.torques)

    got, everything, nothing, known, moved = found(q, v, a, tau)
    assert relative(moved, got.acceleration) < 1e-9
    np.testing.assert_array_equal(got.acceleration[np.array(prescribed)], a[:3])
    free = np.setdiff1d(np.arange(chain.nv), prescribed)
    np.testing.assert_array_equal(got.torques[free], tau[free])
    assert relative(everything.torques, known[0]) < 1e-12 and relative(nothing.acceleration, known[1]) < 1e-9


def test_unknown_and_repeated_coordinates_are_refused():
    floating = textbook.biped(floating=True)
    still, q = mechanisms.BaseMotion(jnp.eye(4), jnp.zeros(6), jnp.zeros(6)), jaxdyn.neutral_configuration(floating)
    with pytest.raises(jaxdyn.ModelError, match="its base already moves"):
        mechanisms.moving_base_inverse_dynamics(floating, still, q, jnp.zeros(16), jnp.zeros(16))
    with pytest.raises(jaxdyn.ModelError, match="quaternion joint"):
        mechanisms.hybrid_rollout(floating, {0: jnp.sin}, q, jnp.zeros(16), jnp.zeros((1, 16)), 0.1)
    with pytest.raises(jaxdyn.ModelError, match="unknown coordinate 'lift'"):
        mechanisms.hybrid_dynamics(bob(), jnp.zeros(1), jnp.zeros(1), ("lift",), jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(jaxdyn.ModelError, match="needs the number of steps"):
        mechanisms.moving_base_rollout(bob(), lifted, jnp.zeros(1), jnp.zeros(1), lambda t, q, qd: 0 * q, 0.1)
