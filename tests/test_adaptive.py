"""Adaptive control: Lyapunov functions to rounding, an arm in closed form, and bodies that stay possible."""

import dataclasses
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxdyn
from closed_loops import acceleration, along, disturbed, runge_kutta, wave
from helpers import (
    mechanism_state,
    once,
    random_chain,
    random_inertia,
    random_mechanism,
    random_state,
    relative,
)

LAWS = {
    "euclidean": jaxdyn.control.EuclideanAdaptation(jnp.linspace(0.5, 2.0, 10)),
    "natural": jaxdyn.control.NaturalAdaptation(0.03),
}


DRIVES = ("armature", "friction.viscous", "friction.coulomb", "friction.offset")


def body_divergence(law, pi, estimate):
    """Distance of an estimate from the truth in the law's Lyapunov function."""
    if isinstance(law, jaxdyn.control.EuclideanAdaptation):
        return 0.5 * ((estimate - pi) ** 2 / jnp.broadcast_to(law.gain, pi.shape)).sum()
    return jax.vmap(jaxdyn.identification.entropic_divergence)(pi, estimate).sum() / law.gain


def drive_divergence(controller, chain, values):
    """Relative entropy of what is positive, half the square of offsets."""
    if controller.drives is None:
        return 0.0
    truth = controller.drives.start(chain)
    signed = jnp.asarray([term == "offset" for term in controller.drives.terms])
    entropy = truth * jnp.log(truth / jnp.where(signed, truth, values)) - truth + values
    return jnp.where(signed, 0.5 * (values - truth) ** 2, entropy).sum() / controller.drives.gain


def lyapunov(controller, truth, model, q, v, state, reference):
    """s . M s / 2 + the divergence of the estimate."""
    s = controller.sliding(model, q, v, reference).s
    rows = [truth.link_names.index(name) for name in controller.links or truth.link_names]
    pi = controller.bodies.parameters(state.bodies)
    kinetic = 0.5 * s @ jaxdyn.dynamics.generalised_momentum(truth, q, s)
    bodies = body_divergence(controller.bodies, truth.inertia[jnp.asarray(rows)], pi)
    return kinetic + bodies + drive_divergence(controller, truth, state.drives)


def closed_loop(controller, truth, model, reference):
    """d/dt of (q, v, adaptive state) in continuous time."""

    def rate(t, x):
        q, v, state = x
        tau = controller.torque(model, state, q, v, reference(t))
        return v, acceleration(truth, q, v, tau), controller.rate(model, state, q, v, reference(t))

    return rate


@pytest.mark.parametrize("dt", [0.02, 0.2])
def test_a_natural_step_is_the_geodesic(dt):
    """P <- U exp(-Gamma dt U^T B U) U^T with tr(P B) = g . pi, by scipy's exponential; far steps are shortened, not bent."""
    rng = np.random.default_rng(3)
    bodies = jnp.asarray(np.stack([random_inertia(rng) for _ in range(3)]))
    gradient, gain = rng.normal(size=(3, 10)) * 0.5, np.array([0.5, 1.0, 2.0])
    law = jaxdyn.control.NaturalAdaptation(jnp.asarray(gain), range=1e30)

    @once
    def step(gradient):
        start = law.start(bodies)
        return law.parameters(law.update(start, start, gradient, dt)), start, law.rate(start, start, gradient)

    moved, factors, rate = map(np.asarray, step(jnp.asarray(gradient)))
    matrix = jax.jit(jaxdyn.spatial.inertia.pseudo_inertia)
    dual = np.stack([np.asarray(matrix(unit)) for unit in jnp.eye(10)])
    # the symmetric B with tr(P B) = g . pi: the pseudo-inertia is linear in pi, and its ten entries are independent
    for k in range(3):
        b = np.zeros((4, 4))
        upper = [(i, j) for i in range(4) for j in range(i, 4)]
        rows = np.array([[d[i, j] * (1 if i == j else 2) for i, j in upper] for d in dual])
        for (i, j), x in zip(upper, np.linalg.solve(rows, gradient[k]), strict=True):
            b[i, j] = b[j, i] = x
        p = factors[k] @ factors[k].T
        assert relative(rate[k] @ factors[k].T + factors[k] @ rate[k].T, -gain[k] * p @ b @ p) < 1e-12
        half = -0.5 * dt * gain[k] * factors[k].T @ b @ factors[k]
        half /= max(1.0, np.abs(half).max() / 0.25)  # no step changes a principal value by more than e^2
        u = factors[k] @ scipy.linalg.expm(half)
        assert relative(matrix(jnp.asarray(moved[k])), u @ u.T) < 1e-12


@pytest.mark.ci
def test_the_product_needs_no_regressor_and_equals_that_with_it():
    chain = random_chain(4, 2)
    q, v, a = random_state(4, 1)
    v_ref, _, s = random_state(4, 2)

    @once
    def both(q, v, v_ref, a, s):
        y = jaxdyn.dynamics.passivity_regressor(chain, q, v, v_ref, a)
        return jaxdyn.dynamics.passivity_regressor_product(chain, q, v, v_ref, a, s), (s @ y).reshape(-1, 10)

    assert relative(*both(q, v, v_ref, a, s)) < 1e-13


@pytest.mark.nightly
def test_the_product_works_on_mechanisms_in_batches_and_has_derivatives():
    chain = random_mechanism(1)
    q, v, a = mechanism_state(chain, 1)
    _, v_ref, s = mechanism_state(chain, 2)

    @once
    def both(*x):
        y = lambda *x: (x[-1] @ jaxdyn.dynamics.passivity_regressor(chain, *x[:-1])).reshape(-1, 10)
        ours = lambda *x: jaxdyn.dynamics.passivity_regressor_product(chain, *x)
        several = [jnp.stack([u, u]) for u in x]
        slope = lambda f: jax.jvp(f, x, tuple(jnp.ones_like(u) for u in x))[1]
        return (ours(*x), jax.vmap(ours)(*several)[1], slope(ours)), (y(*x), y(*x), slope(y))

    for got, expected in zip(*both(q, v, v_ref, a, s), strict=True):
        assert relative(got, expected) < 1e-12


@pytest.mark.ci
@pytest.mark.parametrize("law", ["natural", pytest.param("euclidean", marks=pytest.mark.nightly)])
def test_the_lyapunov_function_changes_at_the_rate_of_the_damping_alone(law):
    """dV/dt = -s . K s to rounding at a random state, the model wrong in every parameter, friction and armature adapted too."""
    truth = random_chain(3, 7)
    truth = dataclasses.replace(truth, armature=jnp.full(3, 0.05))
    model = dataclasses.replace(
        disturbed(truth, 1),
        inertia=jnp.stack([jnp.asarray(random_inertia(np.random.default_rng(k))) for k in range(3)]),
    )
    drives = ("armature", "viscous", "coulomb", "offset")
    off = {"armature": 0.1, "friction.viscous": 0.3, "friction.coulomb": 0.2, "friction.offset": 0.3}
    model = jaxdyn.model.with_leaves(model, {name: jnp.full(3, x) for name, x in off.items()})
    controller = jaxdyn.control.AdaptiveControl(
        4.0, jnp.array([3.0, 2.0, 1.0]), LAWS[law], jaxdyn.control.DriveAdaptation(0.7, drives)
    )
    q, v, _ = random_state(3, 3)
    reference = wave(q + 0.3, 0.5, 2.0)

    @once
    def run(q, v):
        state = controller.start(model)
        rate = closed_loop(controller, truth, model, reference)(0.2, (q, v, state))
        value = lambda x: lyapunov(controller, truth, model, x[1], x[2], x[3], reference(x[0]))
        change = along(value, (jnp.asarray(0.2), q, v, state), (jnp.ones(()), *rate))
        s = controller.sliding(model, q, v, reference(0.2)).s
        # one short step of the sampled law is the flow
        ahead = controller.update(model, state, q, v, reference(0.2), 1e-7)
        moved = jax.tree.map(lambda a, b: (a - b) / 1e-7, ahead, state)
        return change, s @ (jnp.array([3.0, 2.0, 1.0]) * s), moved, rate[2]

    change, loss, moved, flow = run(q, v)
    assert float(change) == pytest.approx(-float(loss), rel=1e-10)
    assert relative(moved.bodies, flow.bodies) < 1e-5 and relative(moved.drives, flow.drives) < 1e-5


def elbow(theta, q, v):
    """M, C and g of `textbook.planar_elbow` in five parameters (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4)."""
    a, b, c, d, e = theta
    c2, s2, c1, c12 = np.cos(q[1]), np.sin(q[1]), np.cos(q[0]), np.cos(q[0] + q[1])
    mass = np.array([[a + 2 * b * c2, c + b * c2], [c + b * c2, c]])
    coriolis = b * s2 * np.array([[-v[1], -v[0] - v[1]], [v[0], 0]])
    return mass, coriolis, np.array([d * c1 + e * c12, e * c12])


def test_the_elbow_arm_against_its_closed_form():
    """The law of Slotine & Li in the arm's five parameters, plant and all in NumPy, beside ours in twenty."""
    truth = jaxdyn.textbook.planar_elbow(m1=1.3, m2=0.9, l1=0.8)
    model = jaxdyn.textbook.planar_elbow(m1=1.0, m2=1.2, l1=0.8, i2=0.05)
    dt, steps, slope, k, gravity, l1 = 2e-3, 300, 5.0, 8.0, 9.81, 0.8
    gain = np.linspace(0.2, 1.0, 20).reshape(2, 10)
    gain[:, 2] = 0  # centres of mass stay on their links, as in the five parameters
    controller = jaxdyn.control.AdaptiveControl(slope, k, jaxdyn.control.EuclideanAdaptation(jnp.asarray(gain)))
    start = jnp.array([0.2, -0.4])
    reference = wave(start, 0.6, 2.5)

    def law(state, t, q, v):
        tau = controller.torque(model, state, q, v, reference(t))
        return tau, controller.update(model, state, q, v, reference(t), dt)

    run = lambda q: jaxdyn.control.controlled_rollout(truth, q, jnp.zeros(2), (law, controller.start(model)), dt, steps)
    motion = once(run)(start)

    # theta = F pi; links' frames at their joints, x along the link, y across, I about the joints
    f = np.zeros((5, 20))
    f[0, [9, 19, 10]] = 1, 1, l1**2
    f[1, 11], f[2, 19], f[3, [1, 10]], f[4, 11] = l1, 1, (gravity, gravity * l1), gravity
    weight = f @ (gain.reshape(-1)[:, None] * f.T)
    true, theta = f @ np.asarray(truth.inertia).reshape(-1), f @ np.asarray(model.inertia).reshape(-1)
    q, v = np.asarray(start), np.zeros(2)
    expected = []
    for step in range(steps):
        q_d, v_d, a_d = (np.asarray(x) for x in reference(jnp.asarray(step * dt)))
        v_ref, a_ref = v_d + slope * (q_d - q), a_d + slope * (v_d - v)
        s = v - v_ref
        columns = []
        for unit in np.eye(5):
            mass, coriolis, weights = elbow(unit, q, v)
            columns.append(mass @ a_ref + coriolis @ v_ref + weights)
        y = np.array(columns).T
        tau = y @ theta - k * s
        theta = theta - dt * weight @ y.T @ s
        mass, coriolis, weights = elbow(true, q, v)
        v = v + dt * np.linalg.solve(mass, tau - coriolis @ v - weights)
        q = q + dt * v
        expected.append(np.concatenate([q, v, tau]))
    got = np.concatenate([motion.q, motion.qd, motion.tau], axis=1)[1:]
    assert relative(got, np.array(expected)) < 1e-9


@pytest.mark.parametrize("kind", ["float64", pytest.param("float32", marks=pytest.mark.nightly)])
def test_estimates_stay_possible_bodies_however_violent_the_gradient(kind):
    rng = np.random.default_rng(1)
    dtype = jnp.dtype(kind)
    pi = jnp.asarray(np.array([random_inertia(rng) for _ in range(3)]), dtype)
    size = np.exp(rng.uniform(-5, 12, (600, 1, 1)))
    gradients = rng.normal(size=(600, 3, 10)) * size + 20 * rng.normal(size=(3, 10)) * (
        rng.uniform(size=(600, 1, 1)) < 0.5
    )
    gradients[[100, 200, 300]] = np.array([np.nan, np.inf, 1e30])[:, None, None]
    gradients = jnp.asarray(gradients, dtype)

    @once
    def run(pi, gradients):
        out = []
        for law in (jaxdyn.control.NaturalAdaptation(1.0), jaxdyn.control.LogCholeskyAdaptation(0.1)):
            first = law.start(pi)

            def one(memory, g, law=law, first=first):
                memory = law.update(memory, first, g, 0.1)
                return memory, law.parameters(memory)

            out.append(jax.lax.scan(one, first, gradients)[1])
        return jnp.stack(out)

    found = np.asarray(run(pi, gradients), float)
    assert np.isfinite(found).all()
    values = np.linalg.eigvalsh(
        np.asarray(jax.vmap(jaxdyn.spatial.inertia.pseudo_inertia)(jnp.asarray(found.reshape(-1, 10))))
    )
    assert (values[:, 0] > 0).all()
    moved = np.abs(found / np.asarray(pi, float) - 1).max(axis=(1, 2, 3))
    assert (moved > 2).all()  # it did go places


def simulated(controller, truth, model, reference, dt, steps, watch):
    start = reference(jnp.zeros(()))
    first = (start.q + 0.05, start.qd, controller.start(model))
    return runge_kutta(closed_loop(controller, truth, model, reference), first, dt, steps, watch)


@pytest.mark.nightly
@pytest.mark.parametrize("law", ["natural", "euclidean"])
def test_a_panda_of_other_masses_is_tracked(law):
    """Every mass wrong by up to a quarter and 2 kg in the hand: V never increases, the error goes, bodies stay possible."""
    model = jaxdyn.robots.panda()
    load = jaxdyn.spatial.solids.sphere(2.0, 0.06, jaxdyn.spatial.se3.pose(jnp.eye(3), jnp.array([0.02, 0.0, 0.15])))
    truth = disturbed(model, 3)
    truth = jaxdyn.with_inertial_parameters(truth, truth.inertia.at[-1].add(load))
    laws = {"natural": jaxdyn.control.NaturalAdaptation(20.0), "euclidean": jaxdyn.control.EuclideanAdaptation(5.0)}
    controller = jaxdyn.control.AdaptiveControl(8.0, jnp.array([30.0, 30, 20, 20, 8, 8, 5]), laws[law])
    reference = wave(jnp.array([0.0, -0.3, 0.0, -2.0, 0.0, 2.0, 0.8]), 0.3, 2.0)

    @jax.jit
    def run():
        def watch(t, x):
            q, v, state = x
            value = lyapunov(controller, truth, model, q, v, state, reference(t))
            pi = controller.bodies.parameters(state.bodies)
            return value, reference(t).q - q, pi

        return simulated(controller, truth, model, reference, 2e-3, 5000, watch)

    value, error, pi = run()
    assert np.diff(value).max() < 0
    assert np.abs(error[-500:]).max() < 0.03 * np.abs(error).max()
    if law == "natural":
        least = np.linalg.eigvalsh(jax.vmap(jax.vmap(jaxdyn.spatial.inertia.pseudo_inertia))(pi[::50]))[..., 0]
        assert least.min() > 0


@pytest.mark.nightly
def test_friction_and_a_payload_are_learnt_by_the_sampled_controller():
    """One link adapted, friction of all joints, 1 kHz: the error fades and the load that the motion excites is found."""
    model = jaxdyn.model.with_leaves(
        random_chain(2, 3, "revolute"),
        {
            "friction.stribeck": jnp.zeros(2),
            "springs.stiffness": jnp.zeros(2),
            "friction.viscous": jnp.full(2, 0.2),
            "friction.coulomb": jnp.full(2, 0.2),
            "friction.coulomb_velocity": jnp.full(2, 0.2),
        },
    )
    truth = jaxdyn.with_inertial_parameters(model, model.inertia.at[-1].multiply(1.6))
    truth = jaxdyn.model.with_leaves(
        truth, {"friction.viscous": jnp.array([0.5, 0.1]), "friction.coulomb": jnp.array([0.4, 0.6])}
    )
    controller = jaxdyn.control.AdaptiveControl(
        6.0,
        6.0,
        jaxdyn.control.NaturalAdaptation(3.0),
        jaxdyn.control.DriveAdaptation(5.0),
        links=(model.link_names[-1],),
    )
    reference = wave(jnp.array([0.3, -0.5]), 0.8, 2.0)

    @jax.jit
    def run():
        def law(state, t, q, v):
            tau = controller.torque(model, state, q, v, reference(t))
            return tau, controller.update(model, state, q, v, reference(t), 1e-3)

        start = jnp.array([0.3, -0.5])
        motion = jaxdyn.control.controlled_rollout(
            truth, start, jnp.zeros(2), (law, controller.start(model)), 1e-3, 40000, "rk4", every=10
        )
        wanted = jax.vmap(reference)(motion.t)
        value = lambda *x: lyapunov(controller, truth, model, *x)
        values = jax.vmap(value)(motion.q, motion.qd, motion.state, wanted)
        last = controller.estimate(model, jax.tree.map(lambda x: x[-1], motion.state))
        return wanted.q - motion.q, values, last

    error, value, last = run()
    assert np.abs(error[-500:]).max() < 0.05 * np.abs(error).max()
    assert value[-1] < 0.2 * value[0] and np.diff(value).max() < 2e-4 * value[0]
    # what the motion excites: the torque of friction, not its two parts, and most of the load, known to 60 % at first
    moving = jnp.array([1.0, -1.0])
    assert relative(jaxdyn.friction_force(last, moving), jaxdyn.friction_force(truth, moving)) < 0.2
    assert 0.9 < float(last.inertia[-1, 0] / truth.inertia[-1, 0]) < 1.1
    np.testing.assert_array_equal(last.inertia[0], model.inertia[0])


def test_laws_of_the_drives_equal_their_formulas_in_numpy():
    """Gradients of every term, rates, and steps that are bounded and stay in their range; offsets may change their sign."""
    chain, rng = random_chain(3, 4), np.random.default_rng(4)
    law = jaxdyn.control.DriveAdaptation(
        jnp.array([0.7, 0.3, 0.5, 2.0]), ("armature", "viscous", "coulomb", "offset"), 0.2
    )
    v, a, s = rng.normal(size=(3, 3))
    first = np.stack([np.asarray(attrgetter(name)(chain)) for name in DRIVES], axis=1)
    assert relative(law.start(chain), first) == 0
    gradient = (
        np.stack([a, v, np.tanh(v / np.asarray(chain.friction.coulomb_velocity)), np.ones(3)], axis=1) * s[:, None]
    )
    assert relative(law.gradient(chain, *map(jnp.asarray, (v, a, s))), gradient) < 1e-12
    values, signed = first * rng.uniform(0.5, 1.5, first.shape), np.array([False, False, False, True])
    away = np.where(signed, values - first, np.log(values / first))
    slopes = -np.array([0.7, 0.3, 0.5, 2.0]) * gradient - 0.2 * away
    given = [jnp.asarray(x) for x in (values, first, gradient)]
    assert relative(law.rate(*given), np.where(signed, slopes, values * slopes)) < 1e-12
    for dt in (0.05, 2.0):
        step = dt * slopes
        moved = np.where(signed, values + step, values * np.exp(np.clip(step, -0.25, 0.25)))
        assert relative(law.update(*given, dt), moved) < 1e-12
    assert (np.abs(2.0 * slopes[:, :3]) > 0.25).any()
    edge = jnp.asarray(np.where(signed, 0.0, first * 1.1e4))
    assert relative(law.update(edge, *given[1:], 0.0), np.where(signed, 0.0, first * 1e4)) < 1e-12
    assert relative(law.update(edge / 1.21e8, *given[1:], 0.0), np.where(signed, 0.0, first / 1e4)) < 1e-12
    lost = law.update(given[0], given[1], given[2].at[1, 2].set(jnp.nan), 0.05)
    assert lost[1, 2] == values[1, 2] and relative(lost[0], law.update(*given, 0.05)[0]) < 1e-12
    estimate = law.estimate(chain, given[0])
    assert all(relative(attrgetter(name)(estimate), values[:, k]) == 0 for k, name in enumerate(DRIVES))


def test_leakage_draws_estimates_back_to_their_initial_values():
    rng = np.random.default_rng(3)
    pi = jnp.asarray(np.array([random_inertia(rng), random_inertia(rng)]))

    @once
    def run(pi):
        laws = (
            jaxdyn.control.EuclideanAdaptation,
            jaxdyn.control.NaturalAdaptation,
            jaxdyn.control.LogCholeskyAdaptation,
        )
        out = []
        for law in (law(0.01, 1.0) for law in laws):
            first = law.start(pi)
            pushed = law.update(first, first, jnp.ones((2, 10)) * 3.0, 1.0)
            back = lambda memory, _, law=law, first=first: (law.update(memory, first, jnp.zeros((2, 10)), 0.05), None)
            out.append((law.parameters(pushed), law.parameters(jax.lax.scan(back, pushed, length=500)[0])))
        return out

    for pushed, back in run(pi):
        assert relative(pushed, pi) > 1e-3 and relative(back, pi) < 1e-6


def test_adaptive_control_refuses_impossible_bodies_and_unknown_links():
    chain = jaxdyn.textbook.planar_elbow()  # thin rods are no bodies of positive density
    with pytest.raises(jaxdyn.ModelError, match="no body of positive density"):
        jaxdyn.control.AdaptiveControl(1.0, 1.0).start(chain)
    with pytest.raises(jaxdyn.ControlError, match="unknown link 'hand'"):
        jaxdyn.control.AdaptiveControl(1.0, 1.0, links=("hand",)).start(chain)
    with pytest.raises(jaxdyn.ControlError, match="positive guess"):
        jaxdyn.control.AdaptiveControl(1.0, 1.0, None, jaxdyn.control.DriveAdaptation()).start(chain)
    with pytest.raises(jaxdyn.ControlError, match="drive term 'dry'"):
        jaxdyn.control.DriveAdaptation(1.0, ("dry",))


def test_a_measurement_that_is_not_finite_changes_nothing():
    chain = jaxdyn.textbook.planar_elbow()
    controller = jaxdyn.control.AdaptiveControl(
        1.0,
        1.0,
        jaxdyn.control.EuclideanAdaptation(),
        jaxdyn.control.DriveAdaptation(2.0, ("offset",), 0.3),
        links=chain.link_names[1:],
    )
    state = controller.start(chain)
    reference = jaxdyn.control.JointReference(jnp.ones(2), jnp.array([0.3, -0.2]), jnp.array([0.5, 0.7]))
    update = once(lambda q: controller.update(chain, state, q, jnp.zeros(2), reference, 0.1))
    lost, moved = update(jnp.array([0.0, jnp.nan])), update(jnp.zeros(2))
    np.testing.assert_array_equal(lost.bodies, state.bodies)
    np.testing.assert_array_equal(lost.drives, state.drives)
    # else the laws that are plain gradients go along their rates, and s = v - v_d - (q_d - q) is what drives offsets
    assert relative(moved.drives[:, 0], 0.1 * 2.0 * np.array([1.3, 0.8])) < 1e-12
    rate = once(lambda q: controller.rate(chain, state, q, jnp.zeros(2), reference))(jnp.zeros(2))
    for name in ("bodies", "drives"):
        change = np.asarray(attrgetter(name)(moved)) - np.asarray(attrgetter(name)(state))
        assert np.abs(change).max() > 0 and relative(attrgetter(name)(rate), change / 0.1) < 1e-10
    assert not rate.first_bodies.any() and not rate.first_drives.any()
