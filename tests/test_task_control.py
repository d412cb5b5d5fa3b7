"""Controllers of a frame: decoupled accelerations, exact springs, the energy that impedances store, singular tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxdyn
from closed_loops import acceleration, along, disturbed, runge_kutta
from helpers import once, random_chain, random_rotation, random_state, relative
from jaxdyn.control.tasks import task_rows

POSE_KP = np.diag([30.0, 20, 40, 90, 70, 50])


def state_of(panda, seed=0):
    rng = np.random.default_rng(seed)
    q = jnp.array([0.1, -0.3, 0.2, -2.0, 0.3, 2.0, 0.8]) + jnp.asarray(rng.normal(size=7) * 0.1)
    return q, jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=7) * 5)


def reference_near(panda, q, seed=1):
    """A pose some way off, moving and accelerating."""
    rng = np.random.default_rng(seed)
    t = jaxdyn.frame_pose(panda, q)
    off = jaxdyn.spatial.se3.pose_exp(jnp.asarray(rng.normal(size=6) * np.array([0.5] * 3 + [0.1] * 3)))
    twist, acceleration = jnp.asarray(rng.normal(size=(2, 6)))
    return jaxdyn.control.TaskReference(t @ off, twist, acceleration)


def stiffness(seed=3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(6, 6)) * np.array([3.0] * 3 + [15.0] * 3)[:, None]
    return jnp.asarray(root @ root.T)


@pytest.fixture(scope="module")
def panda():
    return jaxdyn.model.with_leaves(jaxdyn.robots.panda(), {"friction.viscous": jnp.full(7, 0.3)})


@pytest.mark.parametrize("tasks", [("pose",), pytest.param(("position", "orientation"), marks=pytest.mark.nightly)])
def test_operational_space_control_accelerates_the_frame_as_wanted(panda, tasks):
    """For every half of the pose, with a posture torque that must not be seen."""
    q, v, tau_0 = state_of(panda)

    @once
    def run(q, v, tau_0):
        reference = reference_near(panda, q)
        out = {}
        for task, rows in ((task, task_rows(task)) for task in tasks):
            kp = jnp.asarray(POSE_KP)[rows, rows]
            got = jaxdyn.control.operational_space_control(panda, q, v, reference, kp, 6.0, tau_0, task=task)
            j = jaxdyn.jacobian(panda, q, reference="mixed")
            dj = jaxdyn.jacobian_derivative(panda, q, v, reference="mixed")
            found = (j @ acceleration(panda, q, v, got.tau) + dj @ v)[rows]
            error = jaxdyn.spatial.so3.rotation_log(reference.pose[:3, :3] @ jaxdyn.frame_pose(panda, q)[:3, :3].T)
            error = jnp.concatenate([error, reference.pose[:3, 3] - jaxdyn.frame_pose(panda, q)[:3, 3]])[rows]
            wanted = reference.acceleration[rows] + 6.0 * (reference.twist - j @ v)[rows] + kp @ error
            out[task] = found, wanted, got
        return out

    for task, (found, wanted, got) in run(q, v, tau_0).items():
        assert relative(found, wanted) < 1e-10, task
        assert int(got.status) == jaxdyn.control.TaskStatus.REGULAR and 1e-3 < float(got.conditioning) <= 1


def test_the_spring_s_wrench_is_the_gradient_of_its_energy():
    rng = np.random.default_rng(0)
    k = stiffness()
    poses = [
        jnp.asarray(np.block([[random_rotation(rng), rng.normal(size=(3, 1))], [np.zeros((1, 3)), np.ones((1, 1))]]))
        for _ in range(2)
    ]

    @jax.jit
    def run(t, wanted):
        def energy(twist, task, k):  # of the pose moved by a twist in world axes, about the frame's origin
            turn = jaxdyn.spatial.so3.rotation_exp(twist[:3])
            moved = jaxdyn.spatial.se3.pose(turn @ t[:3, :3], t[:3, 3] + twist[3:])
            return jaxdyn.control.task_spring(moved, wanted, k, task).energy

        out = {}
        for task, rows in ((task, task_rows(task)) for task in ("pose", "position", "orientation")):
            gradient = jax.grad(energy)(jnp.zeros(6), task, k[rows, rows])[rows]
            out[task] = jaxdyn.control.task_spring(t, wanted, k[rows, rows], task).wrench, -gradient
        return out

    for task, (wrench, expected) in run(*poses).items():
        assert relative(wrench, expected) < 1e-12, task


@pytest.mark.ci
def test_an_impedance_of_the_position_stores_the_energy_it_claims():
    """With a joint to spare, a moving goal, motion in the null space and a posture; the energy written out in NumPy."""
    chain, (q, v, tau_0), rng = random_chain(4, 5, "revolute"), random_state(4, 2), np.random.default_rng(6)
    k, d = stiffness()[3:, 3:], jnp.asarray(np.diag([30.0, 20, 40]))
    pushed, h = rng.normal(size=3) * 10, 1e-4
    reference = jaxdyn.control.TaskReference(
        jaxdyn.frame_pose(chain, 0.9 * q),
        jnp.asarray(rng.normal(size=6)).at[:3].set(0.0),
        jnp.asarray(rng.normal(size=6)),
    )

    @once
    def run(q, v):
        got = jaxdyn.control.impedance_control(chain, q, v, reference, k, d, tau_0, task="position")
        posture = jaxdyn.control.posture_torque(chain, q, v, 0.5 * q, jnp.array([2.0, 3, 4, 5]), 0.7)
        bias = jaxdyn.bias_force(chain, q, v) + jaxdyn.resistive_force(chain, q, v)
        j = jaxdyn.jacobian(chain, q, reference="mixed")[3:]
        return got, posture, bias, j, jaxdyn.mass_matrix(chain, q), jaxdyn.frame_pose(chain, q)

    @once
    def energy(q, v, t):
        moved = reference.pose.at[:3, 3].add(t * reference.twist[3:])
        wanted = jaxdyn.control.TaskReference(
            moved, reference.twist + t * reference.acceleration, reference.acceleration
        )
        return jaxdyn.control.impedance_energy(chain, q, v, wanted, k, task="position")

    got, posture, bias, j, mass, pose = jax.tree.map(np.asarray, run(q, v))
    a = np.linalg.solve(mass, got.tau + j.T @ pushed - bias)
    stored = [float(energy(q + t * v + t**2 / 2 * a, v + t * a, t)) for t in h * jnp.arange(-2.0, 3.0)]
    rate = j @ v - np.asarray(reference.twist)[3:]
    change = np.array([1, -8, 0, 8, -1]) @ stored / (12 * h)
    assert float(change) == pytest.approx(float(-rate @ d @ rate + rate @ pushed), rel=1e-6)
    inertia = np.linalg.inv(j @ np.linalg.inv(mass) @ j.T)
    turn, off = np.asarray(reference.pose)[:3, :3], pose[:3, 3] - np.asarray(reference.pose)[:3, 3]
    spring = -turn @ k @ turn.T @ off
    assert stored[2] == pytest.approx(float(0.5 * rate @ inertia @ rate - 0.5 * off @ spring), rel=1e-10)
    assert relative(got.error, -off) < 1e-12 and relative(got.rate, -rate) < 1e-12
    assert relative(posture, mass @ (np.array([2.0, 3, 4, 5]) * -0.5 * q - 0.7 * v)) < 1e-12


def test_every_mode_has_the_damping_ratio_asked_for():
    """For stiffnesses that are singular too: in the modes of inertia and stiffness the damping is 2 ratio omega."""
    rng = np.random.default_rng(7)
    root = rng.normal(size=(4, 4))
    inertia, stiff = root @ root.T + np.eye(4), rng.normal(size=(4, 3))
    damping = once(jaxdyn.control.impedance_damping)(jnp.asarray(inertia), jnp.asarray(stiff @ stiff.T), 0.6)
    squares, modes = scipy.linalg.eigh(stiff @ stiff.T, inertia)
    assert relative(modes.T @ damping @ modes, np.diag(1.2 * np.sqrt(np.maximum(squares, 0)))) < 1e-6


def test_the_inertia_of_a_task_that_is_nearly_singular():
    """Of a planar arm the whole pose: D^2 (e - x)^2 / e is added to the mobility, x its least eigenvalue by the means D^2."""
    arm, q, v = jaxdyn.textbook.pendulum(3), jnp.array([0.3, 0.8, -0.9]), jnp.array([0.5, -1.0, 2.0])

    @once
    def spaces(q):
        drift = jaxdyn.frame_acceleration(arm, q, v, 0 * v)
        space = jaxdyn.control.task_space(arm, q, v, threshold=0.2)
        return space, jaxdyn.jacobian(arm, q, reference="mixed"), jaxdyn.mass_matrix(arm, q), drift

    space, j, mass, drift = jax.tree.map(np.asarray, spaces(q))
    mobility = j @ np.linalg.solve(mass, j.T)
    means = np.repeat(np.diag(mobility).reshape(2, 3).mean(1), 3)
    least = np.linalg.eigvalsh(mobility / np.sqrt(np.outer(means, means)))[0]
    inertia = np.linalg.inv(mobility + np.diag(means) * (0.2 - least) ** 2 / 0.2)
    assert relative(space.inertia, inertia) < 1e-9 and int(space.damped) == 1
    assert relative(space.inverse, np.linalg.solve(mass, j.T) @ inertia) < 1e-9
    assert relative(space.jacobian, j) < 1e-12 and relative(space.drift, drift) < 1e-12
    assert float(space.conditioning) == pytest.approx(max(least, 0), abs=1e-12)


@pytest.mark.nightly
def test_impedance_stores_the_energy_it_claims(panda):
    """dE/dt = -V~ . D V~ + V~ . F_ext, exactly, with any stiffness, a moving goal, motion in the null space and a posture."""
    q, v, tau_0 = state_of(panda, 2)
    k, rng = stiffness(), np.random.default_rng(5)
    d = jnp.asarray(np.diag([2.0, 3, 4, 30, 20, 40]))
    pushed = jnp.asarray(rng.normal(size=6) * 10)

    @once
    def run(q, v, tau_0):
        reference = reference_near(panda, q, 4)
        reference = reference._replace(twist=reference.twist.at[:3].set(0.0))  # axes that do not turn
        got = jaxdyn.control.impedance_control(panda, q, v, reference, k, d, tau_0)
        j = jaxdyn.jacobian(panda, q, reference="mixed")
        a = acceleration(panda, q, v, got.tau + j.T @ pushed)

        def energy(state):
            x, u, t = state
            moved = reference.pose.at[:3, 3].add(t * reference.twist[3:])
            wanted = jaxdyn.control.TaskReference(
                moved, reference.twist + t * reference.acceleration, reference.acceleration
            )
            return jaxdyn.control.impedance_energy(panda, x, u, wanted, k)

        zero = jnp.zeros(())
        change = along(energy, (q, v, zero), (v, a, jnp.ones(())))
        rate = j @ v - reference.twist
        # the simple one, at rest
        tau = jaxdyn.control.stiffness_control(panda, q, v, reference.pose, k, d, 0.7)
        whole = lambda s: (
            jaxdyn.kinetic_energy(panda, *s)
            + jaxdyn.control.task_spring(jaxdyn.frame_pose(panda, s[0]), reference.pose, k).energy
        )
        simple = along(whole, (q, v), (v, acceleration(panda, q, v, tau + j.T @ pushed)))
        losses = (j @ v) @ d @ (j @ v) + 1.0 * v @ v  # 0.7 and the robot's own 0.3
        return change, -rate @ d @ rate + rate @ pushed, simple, (j @ v) @ pushed - losses

    change, expected, simple, expected_simple = run(q, v, tau_0)
    assert float(change) == pytest.approx(float(expected), rel=1e-9)
    assert float(simple) == pytest.approx(float(expected_simple), rel=1e-10)


@pytest.mark.ci
def test_a_frame_on_a_spring_is_passive_on_a_robot_of_other_masses():
    """dE/dt = -V . D V - v . D_q v - v . f with the true robot's kinetic energy, where neither has weight."""
    chain = random_chain(3, 5)
    chain = jaxdyn.model.with_leaves(chain, {"gravity": jnp.zeros(3), "springs.stiffness": jnp.zeros(3)})
    truth, (q, v) = disturbed(chain, 1), random_state(3, 2)[:2]
    goal = jaxdyn.frame_pose(chain, 0.5 * q)

    @once
    def run(q, v):
        tau = jaxdyn.control.stiffness_control(chain, q, v, goal, stiffness(), 2.0, 0.7)
        stored = lambda s: (
            jaxdyn.kinetic_energy(truth, *s)
            + jaxdyn.control.task_spring(jaxdyn.frame_pose(truth, s[0]), goal, stiffness()).energy
        )
        change = along(stored, (q, v), (v, acceleration(truth, q, v, tau)))
        twist = jaxdyn.jacobian(truth, q, reference="mixed") @ v
        return change, -2.0 * twist @ twist - 0.7 * v @ v - v @ jaxdyn.friction_force(truth, v)

    change, expected = run(q, v)
    assert float(expected) < 0 and float(change) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.nightly
def test_a_panda_on_a_spring_comes_to_rest(panda):
    """Pushed and let go: what it stores never increases, the frame comes home, and the damping is what was asked for."""
    q = state_of(panda, 3)[0]
    k = jnp.diag(jnp.array([30.0, 30, 30, 400, 400, 400]))

    @jax.jit
    def run(q):
        home = jaxdyn.control.hold_pose(jaxdyn.frame_pose(panda, q))
        at_home = jaxdyn.control.task_space(panda, q, jnp.zeros(7))
        damping = jaxdyn.control.impedance_damping(at_home.inertia, k, 0.8)

        def rate(t, state):
            x, u = state
            posture = jaxdyn.control.posture_torque(panda, x, u, q, 20.0, 8.0)
            return u, acceleration(
                panda, x, u, jaxdyn.control.impedance_control(panda, x, u, home, k, damping, posture).tau
            )

        def watch(t, state):
            error = jaxdyn.frame_pose(panda, state[0])[:3, 3] - home.pose[:3, 3]
            return jaxdyn.control.impedance_energy(panda, *state, home, k), error

        moving = jnp.array([0.5, 0.4, -0.6, 0.5, 0.9, -0.8, 1.0])
        return runge_kutta(rate, (q, moving), 2e-3, 1500, watch), at_home.inertia, damping

    (stored, error), inertia, damping = run(q)
    assert np.diff(stored).max() < 1e-12 * stored[0]
    assert stored[-1] < 1e-8 * stored[0] and np.abs(error[-1]).max() < 1e-5
    values, modes = (x.real for x in np.linalg.eig(np.linalg.solve(inertia, k)))
    modal = np.linalg.solve(modes, np.linalg.solve(inertia, damping)) @ modes
    assert relative(modal, np.diag(1.6 * np.sqrt(values))) < 1e-9


@pytest.mark.ci
def test_singular_tasks_are_damped_and_say_so():
    """A planar arm cannot move out of its plane, nor along itself when stretched: torques stay small; the status says so."""
    arm = jaxdyn.textbook.pendulum(3)

    @once
    def run(q, k):
        reference = jaxdyn.control.hold_pose(jaxdyn.frame_pose(arm, q).at[:3, 3].add(0.1))
        got = jaxdyn.control.operational_space_control(arm, q, jnp.zeros(3), reference, k, 4.0, task="position")
        return got

    regular = run(jnp.array([0.3, 0.8, -0.9]), 10.0)
    stretched = run(jnp.array([0.3, 0.0, 0.0]), 10.0)
    for got in (regular, stretched):  # out of the plane nothing moves
        assert int(got.status) == jaxdyn.control.TaskStatus.DAMPED and abs(float(got.conditioning)) < 1e-12
        assert np.abs(got.tau).max() < 1e3
    broken = run(jnp.array([0.3, 0.8, jnp.nan]), 10.0)
    assert int(broken.status) == jaxdyn.control.TaskStatus.NOT_FINITE and np.isnan(broken.conditioning)
    assert "do not send" in jaxdyn.control.TaskStatus(int(broken.status)).message
    with pytest.raises(jaxdyn.ControlError, match="the task must be"):
        task_rows("pitch")


@pytest.mark.nightly
def test_a_panda_passes_through_a_singularity(panda):
    """Led along a line out of its reach and back: it stretches, is damped there alone, stays bounded and returns."""
    q = jnp.array([0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8])

    @jax.jit
    def run(q):
        first = jaxdyn.frame_pose(panda, q)

        def controller(state, t, x, u):
            out = 0.17 * (1 - jnp.cos(jnp.pi * t / 4))  # by 0.34 m in 4 s, and back; stretched after about 0.3 m
            reference = jaxdyn.control.hold_pose(first.at[0, 3].add(out))
            posture = jaxdyn.control.posture_torque(panda, x, u, q, 4.0, 6.0)
            got = jaxdyn.control.operational_space_control(
                panda, x, u, reference, 100.0, 20.0, posture, task="position", threshold=0.03
            )
            return got.tau, (got.status, got.conditioning, got.error)

        state = jnp.zeros((), jnp.int32), jnp.ones(()), jnp.zeros(3)
        return jaxdyn.control.controlled_rollout(panda, q, jnp.zeros(7), (controller, state), 1e-3, 8000, every=8)

    motion = run(q)
    status, conditioning, error = motion.state
    assert np.isfinite(motion.q).all() and np.abs(motion.qd).max() < 6 and np.abs(motion.tau).max() < 150
    assert 0.3 < (np.asarray(status) == jaxdyn.control.TaskStatus.DAMPED).mean() < 0.6 and conditioning.min() < 1e-5
    assert np.linalg.norm(error[-1]) < 0.01
