"""Collocation and inverse dynamics against closed forms, each other, rollouts and shooting."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import BSpline

import jaxdyn
from helpers import compiled, once
from jaxdyn.trajectory import Status, collocation as collocation, splines as inverse_transcription
from jaxdyn.trajectory.collocation import guessed_motion, state_bounds, torque_rows
from jaxdyn.trajectory.primal_dual import InteriorPointResult

ROBOT = jaxdyn.textbook.planar_elbow()
GOAL = jnp.array([1.2, 0.8])
LIMITS = jnp.array([[-30.0, 30.0], [-8.0, 8.0]])


def reach(steps, **named):
    """The elbow against gravity from rest to rest in a second; its torque limits are reached."""
    still = jnp.zeros(2)
    named = {"torque_limits": LIMITS, "terminal_constraints": (jaxdyn.trajectory.StateConstraint(GOAL, still),)} | named
    running = (jaxdyn.trajectory.TorqueCost(0.1), jaxdyn.trajectory.StateCost(GOAL, still, 0.1, 0.1))
    return jaxdyn.trajectory.OptimalControlProblem(
        ROBOT, jnp.array([-1.0, 0.3]), still, steps, 1.0 / steps, running, **named
    )


def sliding(**named):
    """Two prismatic joints, the first one against gravity: q_1'' = u_1 / m_1 - g, q_2'' = u_2 / m_2."""
    robot = jaxdyn.textbook.cartesian_two_link(m1=1.0, m2=1.0)
    still = jnp.zeros(2)
    end = (jaxdyn.trajectory.StateConstraint(jnp.array([0.5, 0.8]), still),)
    named = {"running": (jaxdyn.trajectory.TorqueCost(1.0),)} | named
    return jaxdyn.trajectory.OptimalControlProblem(robot, still, still, 10, 0.1, terminal_constraints=end, **named)


def masses_and_weights(problem):
    still = jnp.zeros(2)
    mass = np.diag(jaxdyn.mass_matrix(problem.chain, still))
    return mass, np.asarray(jaxdyn.gravity_force(problem.chain, still))


@pytest.mark.ci
def test_least_effort_of_sliding_joints_equals_the_closed_form():
    """Accelerations fall linearly: int u^2 = m^2 12 d^2 / T^3 + w^2 T; Hermite-Simpson's rule is exact on it."""
    problem = sliding()
    mass, weight = masses_and_weights(problem)
    solution = jax.jit(jaxdyn.trajectory.solve_by_collocation)(problem)
    assert solution.message == Status.CONVERGED.message
    assert solution.residuals.largest <= 1e-6
    expected = 0.5 * np.sum(mass**2 * 12 * np.array([0.5, 0.8]) ** 2 + weight**2)
    assert_allclose(solution.cost, expected, rtol=1e-8)
    s = np.linspace(0, 1, 11)[:, None]
    assert_allclose(solution.trajectory.q, np.array([[0.5, 0.8]]) * (3 * s**2 - 2 * s**3), atol=1e-7)
    assert_allclose(np.asarray(solution.trajectory.v)[[0, -1]], 0, atol=1e-9)


class GroundForce(jaxdyn.trajectory.Constraint):
    """Some components of the ground's wrench are at most a number."""

    def value(self, chain, knot):
        return knot.ground[jnp.array([2, 4])] - 3.0


class Posed:
    """A problem with something of every kind, four steps long, its numbers all different; its parts written out in NumPy."""

    steps, dt = 4, 0.3
    goal, start, v0, tau0 = np.array([1.2, 0.8]), np.array([-1.0, 0.3]), np.array([0.2, -0.1]), np.array([3.0, -1.0])
    reference = np.random.default_rng(7).normal(size=(5, 2))
    below, above = np.array([-30.0, -8.0]), np.array([20.0, np.inf])

    def __init__(self, drives, rate, ground=False, limits=(0.5, 2.0)):
        robot = jaxdyn.model.with_leaves(ROBOT, {"friction.viscous": jnp.array([0.3, 0.7])})
        self.drives, self.rate, self.ground = drives, 0.2 * rate, ground
        running = (
            jaxdyn.trajectory.TorqueCost(0.1, self.reference),
            jaxdyn.trajectory.StateCost(self.goal, self.v0, 0.4, 0.3),
        )
        torques = np.stack([self.below, self.above], axis=1)
        torques[drives:] = 1.5
        self.problem = jaxdyn.trajectory.OptimalControlProblem(
            robot,
            self.start,
            self.v0,
            self.steps,
            self.dt,
            (*running, jaxdyn.trajectory.TorqueRateCost(0.2)) if rate else running,
            (jaxdyn.trajectory.StateCost(self.goal, self.v0, 2.0, 3.0),),
            (
                jaxdyn.trajectory.PositionLimits(np.array([-0.5]), np.array([0.7]), (1,)),
                jaxdyn.trajectory.VelocityLimits(np.array([1.1]), (0,)),
                jaxdyn.trajectory.UserConstraint(
                    lambda chain, knot, data: data * knot.q[:1] * knot.t, 2.0, kind="equality"
                ),
                *((GroundForce(),) if ground else ()),
            ),
            (jaxdyn.trajectory.StateConstraint(self.goal), jaxdyn.trajectory.VelocityLimits(np.array([0.5]), (1,))),
            torque_limits=torques,
            duration_limits=limits,
            duration_weight=0.7,
            tau0=self.tau0,
        )

    def cost(self, k, q, v, tau, before, h):
        """l of a knot."""
        parts = (
            0.1 * (tau - self.reference[k]),
            0.4 * (q - self.goal),
            0.3 * (v - self.v0),
            self.rate * (tau - before) / h,
        )
        return 0.5 * sum(x @ x for x in parts)

    def rows(self, time, q, v, tau, positions, ground=None):
        """= 0 and <= 0 of a knot; limits of positions are among them, or bounds of unknowns."""
        given = np.arange(2) >= self.drives  # equal limits: the torque is prescribed
        low, high = (np.where(given, 1.5, x) for x in (self.below, np.where(np.isfinite(self.above), self.above, 1e6)))
        half = np.where(given, 1.0, (high - low) / 2)
        below = [(low - tau) / half, (tau - high) / half]
        below += [[-0.5 - q[1], q[1] - 0.7]] if positions else []
        below += [[-1.1 - v[0], v[0] - 1.1]]
        below += [ground[[2, 4]] - 3.0] if self.ground else []
        return np.array([2.0 * q[0] * time]), np.concatenate(below)

    def last(self, q, v, duration):
        """Cost, = 0 and <= 0 of the end."""
        cost = 2.0 * (q - self.goal) @ (q - self.goal) + 4.5 * (v - self.v0) @ (v - self.v0) + 0.7 * duration
        return cost, q - self.goal, np.array([-0.5 - v[1], v[1] - 0.5])

    def torques(self, q, v, a):
        """Of rows of a motion."""
        given = [compiled.inverse_dynamics(self.problem.chain, *map(jnp.asarray, x)) for x in zip(q, v, a, strict=True)]
        return np.array(given) + np.array([0.3, 0.7]) * v


def ended_at(x, c, g):
    """A result of the interior-point method for given unknowns, with the indices of the constraints as multipliers."""
    number = jnp.asarray
    return InteriorPointResult(
        *(x, number(0.1), c, g, x, 2 * x, g, number(0), number(0.2), number(0.3), number(0.4), number(5), {})
    )


def jacobian(function, x, h=1e-3):
    """By central differences, exact to h^4; compiled once."""
    around = x[None, None] + h * jnp.asarray([-2.0, -1.0, 1.0, 2.0])[:, None, None] * jnp.eye(len(x))[None]
    values = jax.lax.map(function, around.reshape(-1, len(x)))
    low, lower, upper, high = values.reshape(4, len(x), -1)
    return (low - 8 * lower + 8 * upper - high).T / (12 * h)


def close(found, expected):
    assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scheme", ["trapezoidal", pytest.param("hermite_simpson", marks=pytest.mark.nightly)])
def test_the_program_of_collocation_is_the_problem(scheme):
    """At knots of any state, acceleration and duration: cost, defects and constraints as the scheme has them, one by one."""
    middles = scheme == "hermite_simpson"
    case = Posed(1, rate=not middles)
    form = collocation._Form(case.problem, middles, exact=True)
    rng, nominal = np.random.default_rng(1), case.dt * np.array([1.0])
    q, v, a, qm, vm, am, before = rng.normal(size=(7, 5, 2))
    r = rng.uniform(0.8, 1.3, (5, 1))
    columns = [q, v * r, a * r**2 * nominal, *((qm, vm * r, am * r**2 * nominal) if middles else (before,)), r]
    x = np.concatenate(columns, axis=1).reshape(-1)

    @once
    def run(x):
        program, _, lower, upper = form.program(None)
        z = program.seen(x)[1]
        f, c, g = program.evaluate(x)
        jacobians = form.torques_jacobian(z), jacobian(form.torques_at, z)
        return (f, c, g), jacobians, (lower, upper), form.solved(program, ended_at(x, c, g))

    (f, c, g), jacobians, bounds, solution = jax.tree.map(np.asarray, run(x))
    assert_allclose(*jacobians, atol=1e-8 * np.abs(jacobians[1]).max())
    tau, tau_m = case.torques(q, v, a), case.torques(qm, vm, am)
    h, n = case.dt * r[:, 0], case.steps
    before = before if not middles else tau
    weight = np.array([1, 2, 2, 2, 1]) / (6 if middles else 2)
    cost, defects, own, below = 0.0, [], [], []
    for k in range(5):
        cost += h[k] * weight[k] * case.cost(k, q[k], v[k], tau[k], before[k], h[k])
        equal, above = case.rows(k * h[k], q[k], v[k], tau[k], positions=False)
        if k == 0:  # what the torques leave as it is does not count there
            equal[:], above[4:] = 0, -1
        if middles:
            cost += h[k] * (4 / 6 * (k < n)) * case.cost(k, qm[k], vm[k], tau_m[k], tau_m[k], h[k])
            equal_m, above_m = case.rows((k + 0.5) * h[k], qm[k], vm[k], tau_m[k], positions=False)
            equal = np.concatenate([equal, equal_m * (k < n)])
            above = np.concatenate([above, above_m if k < n else -np.ones_like(above_m)])
        own += [equal, (k == 0) * r[k] * (v[k] - case.v0)]
        below.append(above)
    for k in range(n):
        # by the problem's own time
        ends = [(np.append(q[i], v[i] * r[i]), np.append(v[i] * r[i], a[i] * r[i] ** 2)) for i in (k, k + 1)]
        (first, rate), (second, rate_after) = ends
        if middles:
            middle, rate_m = np.append(qm[k], vm[k] * r[k]), np.append(vm[k] * r[k], am[k] * r[k] ** 2)
            defects.append(second - first - case.dt / 6 * (rate + 4 * rate_m + rate_after))
            defects.append(middle - (first + second) / 2 - case.dt / 8 * (rate - rate_after))
        else:
            defects += [second - first - case.dt / 2 * (rate + rate_after), before[k + 1] - tau[k]]
        defects.append(100.0 * (r[k + 1] - r[k]))
    duration = n * h[-1]
    end, equal, above = case.last(q[-1], v[-1], duration)
    close(f, cost + end)
    close(c, np.concatenate([*defects, *own, equal]))
    close(g, np.concatenate([*below, above]))

    t, multipliers = solution.trajectory, solution.multipliers
    mean = (tau[:-1] + 4 * tau_m[:-1] + tau[1:]) / 6 if middles else (tau[:-1] + tau[1:]) / 2
    jax.tree.map(close, (t.t, t.q, t.v, t.tau), (np.linspace(0, duration, 5), q, v, mean))
    close(multipliers["dynamics"].reshape(-1), np.concatenate(defects))
    close(multipliers["equality"].reshape(-1), np.concatenate(own))
    close(multipliers["inequality"], np.array(below))
    jax.tree.map(close, (multipliers["terminal_equality"], multipliers["terminal_inequality"]), (equal, above))
    close(multipliers["lower"].reshape(-1), x)
    largest = np.abs(np.concatenate(defects)).max()
    parts = solution.residuals
    jax.tree.map(
        close, (parts.stationarity, parts.dynamics, parts.constraints, parts.complementarity), (0.2, largest, 0.3, 0.4)
    )

    # bounds: the start, limits of positions and of the duration, what stands before the first knot and after the last
    for side, limit, span in zip(bounds, (-0.5, 0.7), (0.5, 2.0), strict=True):
        wanted = np.full((5, len(x) // 5), -np.inf if limit < 0 else np.inf)
        wanted[:, 1], wanted[:, -1], wanted[0, :2] = limit, span / (n * case.dt), case.start
        if middles:
            wanted[:, 7] = limit
            found = side.reshape(5, -1)[-1, 6:12]
            assert np.isfinite(found).all()
            wanted[-1, 6:12] = found
        else:
            wanted[0, 6:8] = case.tau0
        close(side.reshape(5, -1), wanted)


@pytest.mark.ci
def test_the_program_of_splines_is_the_problem():
    """Of any control points and duration, with scipy's splines; rates of torques by differences along the motion."""
    case = Posed(2, rate=True, ground=True)
    form = inverse_transcription._Form(case.problem, 2, 4, exact=True)
    rng, duration, n = np.random.default_rng(2), 1.7, case.steps
    control = rng.normal(size=(6, 2))
    x = np.append(control.reshape(-1), duration)
    h, e = duration / n, 1e-5
    spline = BSpline([0] * 5 + [0.5] + [1] * 5, control, 4)
    q, v, a, jerk = ((spline.derivative(d) if d else spline)(np.linspace(0, 1, 5)) / duration**d for d in range(4))

    @once
    def run(x):
        program, _, lower, upper = form.program(None)
        f, c, g = program.evaluate(x)
        return (f, c, g), (lower, upper), form.solved(program, ended_at(x, c, g))

    (f, c, g), bounds, solution = jax.tree.map(np.asarray, run(x))
    tau, ahead, behind = (case.torques(q + s * v, v + s * a, a + s * jerk) for s in (0, e, -e))
    slope = (ahead - behind) / (2 * e)
    wrench = [compiled.ground_reaction(case.problem.chain, *map(jnp.asarray, x)) for x in zip(q, v, a, strict=True)]
    cost, own, below = 0.0, [], []
    for k in range(5):
        before = tau[k] - h * slope[k] if k else case.tau0
        cost += h * (0.5 if k in (0, n) else 1.0) * case.cost(k, q[k], v[k], tau[k], before, h)
        equal, above = case.rows(k * h, q[k], v[k], tau[k], positions=True, ground=np.asarray(wrench[k]))
        if k == 0:
            equal[0], above[4:8] = 0, -1
        own.append(equal)
        below.append(above)
    end, equal, above = case.last(q[-1], v[-1], duration)
    start = duration * (v[0] - case.v0)
    assert_allclose(f, cost + end, rtol=1e-8)
    close(c, np.concatenate([*own, start, equal]))
    close(g, np.concatenate([*below, above]))

    t, multipliers = solution.trajectory, solution.multipliers
    jax.tree.map(close, (t.t, t.q, t.v, t.tau), (np.linspace(0, duration, 5), q, v, (tau[:-1] + tau[1:]) / 2))
    names = ("equality", "inequality", "start", "terminal_equality", "terminal_inequality")
    for name, value in zip(names, (np.array(own), np.array(below), start, equal, above), strict=True):
        close(multipliers[name], value)
    close(solution.residuals.dynamics, np.abs(v[0] - case.v0).max())
    for side, span, far in zip(bounds, (0.5, 2.0), (-np.inf, np.inf), strict=True):
        close(side, np.array([*case.start, *[far] * 10, span]))


@pytest.mark.ci
def test_splines_torques_and_the_ground_s_wrench_have_their_jacobian():
    problem = swing(jnp.array([0.9]), jnp.asarray(2.0), 2, constraints=(GroundForce(),))
    form = inverse_transcription._Form(problem, 2, 4, exact=True)
    y = jnp.append(jnp.asarray(np.random.default_rng(4).normal(size=3)), 1.7)
    found, expected = once(lambda y: (form.torques_jacobian(y), jacobian(form.torques_at, y)))(y)
    assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


def test_transcriptions_start_from_a_polynomial_or_the_guess():
    """The polynomial of degree 5 from rest to rest, or a guess between its knots; both schemes begin with it."""
    case, s = Posed(2, rate=False, limits=(1.6, 2.0)), np.linspace(0, 1, 5)
    forms = (
        collocation._Form(case.problem, False, exact=False),
        inverse_transcription._Form(case.problem, 3, 5, exact=False),
    )

    @once
    def run(guess, times):
        begun = []
        for form in forms if guess is None else ():
            program, x, *_ = form.program(None)
            begun.append(program.seen(x))
        shorter, fixed = (dataclasses.replace(case.problem, duration_limits=x) for x in (jnp.array([0.1, 0.9]), None))
        lasting = [guessed_motion(problem, None, times)[1] for problem in (shorter, fixed)]
        return *guessed_motion(case.problem, guess, times), begun, lasting

    motion, duration, (knots, seen), lasting = run(None, jnp.asarray(s))
    assert float(duration) == 1.6  # N dt is shorter than it may be
    assert_allclose(lasting, [0.9, 1.2])  # longer than it may be; without limits
    way = np.polynomial.Polynomial([0, 0, 0, 10, -15, 6])
    for order, rows in enumerate(motion):
        rise = (way.deriv(order) if order else way)(s)[:, None] / 1.6**order
        close(rows, rise * (case.goal - case.start) + (case.start if order == 0 else 0))
    rng = np.random.default_rng(3)
    t = np.array([0.5, 0.9, 1.1, 1.6, 2.5])
    guess = jaxdyn.trajectory.Trajectory(
        *(jnp.asarray(y) for y in (t, *rng.normal(size=(2, 5, 2)), rng.normal(size=(4, 2))))
    )
    between, duration, *_ = run(guess, jnp.asarray(s))
    assert float(duration) == 2.0
    slopes = np.diff(guess.v, axis=0) / np.diff(t)[:, None]
    for rows, known in zip(between, (guess.q, guess.v, np.vstack([slopes, slopes[-1:]])), strict=True):
        close(rows, np.stack([np.interp(0.5 + 2.0 * s, t, y) for y in np.asarray(known).T], axis=1))
    # unknowns of the schemes: rates by the problem's own time, which lasts 1.2; splines as near as they come
    r = 1.6 / 1.2
    close(knots, np.concatenate([motion.q, motion.v * r, motion.a * r**2 * 0.3, np.full((5, 1), r)], axis=1))
    assert_allclose(seen[:, :4], np.hstack([motion.q, motion.v * 1.6]), atol=2e-4)
    assert seen[0, -1] == 1.6


def test_limits_of_torques_and_states_become_rows_or_bounds():
    """Torques that are limited, free or given; a limit that is traced is one of all torques; the narrower bound counts."""
    limits = jnp.array([[-3.0, 5.0], [2.0, 2.0], [-jnp.inf, 4.0], [-jnp.inf, jnp.inf]])
    still = jnp.zeros(4)
    robot = jaxdyn.textbook.pendulum(4)
    boxes = (
        jaxdyn.trajectory.PositionLimits(jnp.array([-1.0, -2.0]), jnp.array([1.5, 2.5]), (0, 2)),
        jaxdyn.trajectory.PositionLimits(jnp.full(4, -1.2), jnp.full(4, 1.2)),
        jaxdyn.trajectory.VelocityLimits(jnp.array([3.0]), (3,)),
        jaxdyn.trajectory.PositionLimits(jnp.zeros(4), jnp.zeros(4), kind="equality"),
    )
    problem = jaxdyn.trajectory.OptimalControlProblem(
        robot, still, still, 2, 0.1, constraints=boxes, torque_limits=limits
    )
    rows, tau = torque_rows(problem), jnp.array([1.0, 2.5, 7.0, 9.0])
    assert rows.limited == (0, 1, 2)
    half = 500_002.0
    close(rows.inequalities(tau), [-4 / 4, -0.5, -1000007 / half, -4 / 4, 0.5, 3 / half])
    assert rows.pinned().tolist() == [False, True, False] * 2
    again = torque_rows(dataclasses.replace(problem, torque_limits=limits + 1), like=rows)
    close(again.inequalities(tau)[jnp.array([0, 1, 3])], [-3 / 4, 0.5, -5 / 4])
    traced = jax.jit(lambda limits: torque_rows(dataclasses.replace(problem, torque_limits=limits)).inequalities(tau))
    close(traced(limits), [-1, -0.5, -1000007 / half, -1000009 / 1e6, -1, 0.5, 3 / half, (9 - 1e6) / 1e6])
    assert not torque_rows(dataclasses.replace(problem, torque_limits=None)).inequalities(tau).size
    bounds = state_bounds(problem, (jaxdyn.trajectory.PositionLimits, jaxdyn.trajectory.VelocityLimits))
    far = np.inf
    for found, expected in zip(
        bounds, ([-1, -1.2, -1.2, -1.2], [1.2] * 4, [-far, -far, -far, -3], [far, far, far, 3]), strict=True
    ):
        close(found, expected)
    close(state_bounds(problem, (jaxdyn.trajectory.PositionLimits,))[3], [far] * 4)


def in_least_time(lower, upper):
    """Nothing but the duration costs; the first joint's force is limited, the other's hardly."""
    return sliding(
        running=(),
        torque_limits=jnp.array([[lower, upper], [-30.0, 30.0]]),
        duration_limits=(0.2, 5.0),
        duration_weight=1.0,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["trapezoidal", "hermite_simpson"])
def test_least_time_of_sliding_joints_equals_the_closed_form(scheme):
    """Full force one way, full force the other: T = 2 sqrt(m d / u) of the slower joint, u the force beside its weight.

    In the same batch a force that cannot carry the weight: the goal is out of reach, however long it takes.
    """
    mass, weight = masses_and_weights(in_least_time(0.0, 1.0))
    problems = [in_least_time(weight[0] - 2, weight[0] + 2), in_least_time(-2.0, 2.0)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    solution = jax.jit(jax.vmap(lambda p: jaxdyn.trajectory.solve_by_collocation(p, scheme=scheme)))(batch)
    assert [Status(int(status)) for status in solution.status] == [Status.CONVERGED, Status.INFEASIBLE]
    found = jax.tree.map(lambda x: x[0], solution)
    assert_allclose(found.trajectory.t[-1], 2 * np.sqrt(mass[0] * 0.5 / 2.0), rtol=0.02)
    assert found.residuals.largest <= 1e-6
    assert (jnp.abs(found.trajectory.tau[:, 0] - weight[0]) <= 2 + 1e-4).all()


def swing(goal, strength, steps=8, **named):
    """A pendulum from rest to rest in a second; a torque limit of `strength` is reached."""
    still = jnp.zeros(1)
    limit = jnp.stack([-strength, strength])[None]
    end = (jaxdyn.trajectory.StateConstraint(goal, still),)
    with jax.ensure_compile_time_eval():
        robot, start = jaxdyn.textbook.pendulum(), still - 0.5
    cost = (jaxdyn.trajectory.TorqueCost(0.1), jaxdyn.trajectory.StateCost(goal, still, 0.1, 0.1))
    return jaxdyn.trajectory.OptimalControlProblem(
        robot, start, still, steps, 1 / steps, cost, torque_limits=limit, terminal_constraints=end, **named
    )


TRANSCRIPTIONS = {
    "trapezoidal": lambda p, **named: jaxdyn.trajectory.solve_by_collocation(p, scheme="trapezoidal", **named),
    "splines": lambda p, **named: jaxdyn.trajectory.solve_by_inverse_dynamics(p, intervals=4, **named),
}


@pytest.mark.nightly
@pytest.mark.parametrize("method", list(TRANSCRIPTIONS))
def test_derivatives_are_those_of_solutions_again(method):
    """By goal and torque limit, forwards and backwards, against differences of problems solved again."""
    solve = TRANSCRIPTIONS[method]

    def motion(parameters):
        problem = swing(parameters[:1], parameters[1], duration_limits=(0.2, 3.0), duration_weight=2.0)
        solution = solve(problem, hessian="exact", tolerance=1e-9)
        t = solution.trajectory
        numbers = jnp.concatenate([t.t, t.q.reshape(-1), t.v.reshape(-1), t.tau.reshape(-1), solution.cost[None]])
        return numbers, solution.status

    at, step = jnp.array([0.9, 2.0]), 1e-4
    around = jnp.concatenate([at[None], at[None] + step * jnp.eye(2), at[None] - step * jnp.eye(2)])
    numbers, status = jax.jit(jax.vmap(motion))(around)
    assert (status == Status.CONVERGED).all()
    differences = (numbers[1:3] - numbers[3:]).T / (2 * step)
    forwards = jax.jit(jax.jacfwd(lambda x: motion(x)[0]))(at)
    assert_allclose(forwards, differences, atol=1e-5 * np.abs(differences).max())
    weights = jnp.asarray(np.random.default_rng(0).normal(size=len(forwards)))
    backwards = jax.jit(jax.grad(lambda x: weights @ motion(x)[0]))(at)
    assert_allclose(backwards, weights @ differences, rtol=1e-5, atol=1e-5 * np.abs(differences).max())


@pytest.mark.nightly
@pytest.mark.parametrize("method", list(TRANSCRIPTIONS))
def test_transcriptions_converge_in_single_precision(method):
    """Converged at float32's tolerance, to the float64 solution's cost."""
    problem = swing(jnp.array([0.9]), jnp.asarray(1.5))
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, problem)
    found, exact = (jax.jit(TRANSCRIPTIONS[method])(p) for p in (single, problem))
    assert found.trajectory.q.dtype == jnp.float32
    assert found.message == exact.message == Status.CONVERGED.message
    assert max(found.residuals.constraints, found.residuals.dynamics) <= 1e-4
    assert_allclose(found.cost, exact.cost, atol=1e-4)  # the tolerance


@pytest.mark.nightly
def test_transcriptions_and_shooting_agree():
    """In cost to 1 %, with residuals of 1e-6 and limits held to 1e-4 at the knots; from rest shooting finds another minimum."""
    problem = reach(30)
    methods = {
        "trapezoidal": lambda p: jaxdyn.trajectory.solve_by_collocation(p, scheme="trapezoidal"),
        "exact": lambda p: jaxdyn.trajectory.solve_by_collocation(p, scheme="trapezoidal", hessian="exact"),
        "hermite_simpson": jaxdyn.trajectory.solve_by_collocation,
        "splines": lambda p: jaxdyn.trajectory.solve_by_inverse_dynamics(p, intervals=10, tolerance=1e-7),
    }
    costs, motions = {}, {}
    methods["shooting"] = lambda p: jaxdyn.trajectory.solve_by_shooting(p, motions["trapezoidal"])
    for name, method in methods.items():
        solution = jax.jit(method)(problem)
        motions[name] = solution.trajectory
        assert solution.message == Status.CONVERGED.message, name
        assert solution.residuals.largest <= 1e-6, name
        tau = solution.trajectory.tau
        assert (tau >= LIMITS[None, :, 0] - 1e-4).all() and (tau <= LIMITS[None, :, 1] + 1e-4).all(), name
        costs[name] = float(solution.cost)
    assert max(costs.values()) <= 1.01 * min(costs.values()), costs
    assert_allclose(costs["exact"], costs["trapezoidal"], rtol=1e-6)


@pytest.mark.nightly
def test_limits_with_nothing_in_between_are_equalities():
    """A passive joint: torque limits of zero, 1e-11 and 1e-6 in one batch, with derivatives."""
    still, goal = jnp.zeros(2), jnp.array([0.3, -0.3])  # the second link hangs at rest
    chain = jaxdyn.textbook.pendulum(2)

    def reached(width, goal):
        limits = jnp.array([[-50.0, 50.0], [-1.0, 1.0]]) * jnp.stack([jnp.ones(()), width])[:, None]
        costs, end = (jaxdyn.trajectory.TorqueCost(0.3),), (jaxdyn.trajectory.StateConstraint(goal, still),)
        problem = jaxdyn.trajectory.OptimalControlProblem(
            chain, still, still, 8, 0.2, costs, terminal_constraints=end, torque_limits=limits
        )
        solution = jaxdyn.trajectory.solve_by_collocation(problem, scheme="trapezoidal")
        return solution.cost, (
            solution.status,
            solution.iterations,
            solution.trajectory.tau,
            solution.residuals.largest,
        )

    widths = jnp.array([0.0, 1e-11, 1e-6])
    by_goal = jax.value_and_grad(reached, argnums=1, has_aux=True)
    moved = goal[None] + 1e-4 * jnp.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    (cost, (status, count, tau, residual)), slope = jax.jit(jax.vmap(jax.vmap(by_goal, (None, 0)), (0, None)))(
        widths, moved
    )
    assert (status == Status.CONVERGED).all() and residual.max() < 1e-7
    assert count[:2].max() <= count[2].max()
    assert np.abs(tau[:2, :, :, 1]).max() < 1e-8
    assert_allclose(cost[:2], np.asarray(cost)[[2, 2]], rtol=1e-5)
    assert_allclose(slope[0, 0], [(cost[0, 1] - cost[0, 2]) / 2e-4, (cost[0, 3] - cost[0, 4]) / 2e-4], rtol=1e-5)


@pytest.mark.nightly
def test_what_cannot_be_met_is_said():
    """A goal outside of the position limits, limits the wrong way round, a cost that is no number: in one batch."""
    solve = jax.jit(jax.vmap(lambda p: jaxdyn.trajectory.solve_by_collocation(p, scheme="trapezoidal")))

    def problem(upper, lower, weight):
        box = jaxdyn.trajectory.PositionLimits(jnp.full(2, lower), jnp.full(2, upper))
        cost = jaxdyn.trajectory.ScalarCost(_root, jnp.asarray(weight))
        end = (jaxdyn.trajectory.StateConstraint(GOAL, jnp.zeros(2)),)
        return jaxdyn.trajectory.OptimalControlProblem(
            ROBOT, jnp.array([-1.0, 0.3]), jnp.zeros(2), 10, 0.1, (cost,), (), (box,), end
        )

    problems = [problem(2.0, -2.0, 1.0), problem(1.0, -2.0, 1.0), problem(-2.0, 2.0, 1.0), problem(2.0, -2.0, -1.0)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    solution = solve(batch)
    expected = [Status.CONVERGED, Status.INFEASIBLE, Status.CONTRADICTORY_LIMITS, Status.NOT_FINITE]
    assert [Status(int(status)) for status in solution.status] == expected
    assert jnp.isfinite(solution.trajectory.q).all()


def _root(chain, knot, weight):
    del chain
    return jnp.sqrt(weight) * (knot.tau @ knot.tau)


def test_what_cannot_be_posed_is_refused():
    with pytest.raises(jaxdyn.TrajectoryError, match="torque-rate"):
        rate = (jaxdyn.trajectory.TorqueRateCost(0.1),)
        jaxdyn.trajectory.solve_by_collocation(
            jaxdyn.trajectory.OptimalControlProblem(ROBOT, GOAL, jnp.zeros(2), 3, 0.1, rate)
        )
    with pytest.raises(jaxdyn.TrajectoryError, match="torque_limits are prescribed"):
        jaxdyn.trajectory.solve_by_inverse_dynamics(reach(20, torque_limits=jnp.array([[-1.0, 1.0], [0.0, 0.0]])))
    with pytest.raises(jaxdyn.TrajectoryError, match="spherical or free"):
        biped = jaxdyn.textbook.biped(floating=True)
        q = jaxdyn.neutral_configuration(biped)
        jaxdyn.trajectory.solve_by_collocation(
            jaxdyn.trajectory.OptimalControlProblem(biped, q, jnp.zeros(biped.nv), 3, 0.1)
        )
    with pytest.raises(jaxdyn.TrajectoryError, match="steps"):
        jaxdyn.trajectory.OptimalControlProblem(ROBOT, GOAL, jnp.zeros(2), 0, 0.1)


@pytest.mark.nightly
def test_torque_limits_are_constants_where_the_step_is_traced():
    solve = lambda dt: jaxdyn.trajectory.solve_by_inverse_dynamics(dataclasses.replace(reach(8), dt=dt)).cost
    assert jax.eval_shape(jax.grad(solve), jnp.asarray(0.1)).shape == ()
