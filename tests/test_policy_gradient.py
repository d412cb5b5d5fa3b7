"""Descent through the simulator against closed forms: the discrete Riccati equation and linear-quadratic problems."""

import dataclasses
import hashlib
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array
from numpy.testing import assert_allclose
from scipy.linalg import solve_discrete_are

import jaxdyn
from helpers import once
from jaxdyn.trajectory import PolicySettings
from jaxdyn.trajectory.lq import Penalty, Values, updated, violation
from jaxdyn.trajectory.policy import _torque, read_progress, write_progress

CART = jaxdyn.make_chain(
    rotation=np.eye(3)[None], translation=np.zeros((1, 3)), screw=[[0, 0, 0, 1, 0, 0]], inertia=[[2.0] + [0.0] * 9]
)
DT = 0.1
A = np.array([[1.0, DT], [0.0, 1.0]])
B = np.array([[DT * DT / 2.0], [DT / 2.0]])  # semi-implicit Euler of 2 kg
Q, R = np.diag([4.0, 1.0]), np.array([[0.25]])


class Feedback(eqx.Module):
    gain: Array

    def __call__(self, t, q, v):
        return -self.gain @ jnp.concatenate([q, v])


def regulator(steps, terminal=(), q0=1.0, v0=0.0, **named):
    running = (jaxdyn.trajectory.StateCost(jnp.zeros(1), jnp.zeros(1), 2.0, 1.0), jaxdyn.trajectory.TorqueCost(0.5))
    return jaxdyn.trajectory.OptimalControlProblem(
        CART, jnp.array([q0]), jnp.array([v0]), steps, DT, running, terminal, **named
    )


def riccati():
    p = solve_discrete_are(A, B, DT * Q, DT * R)
    return p, np.linalg.solve(DT * R + B.T @ p @ B, B.T @ p @ A)


def to_go(p):
    root = jnp.asarray(np.linalg.cholesky(p).T)
    return (jaxdyn.trajectory.UserCost(lambda chain, knot, data: data @ jnp.concatenate([knot.q, knot.v]), root),)


def at(problem, q0, v0):
    return dataclasses.replace(problem, q0=q0, v0=v0)


def heavy(masses):
    """Carts of which the inertias alone differ."""
    return eqx.tree_at(lambda c: c.inertia, CART, CART.inertia[None] * masses[:, None, None] / 2.0)


# one compiled update for all of these tests: the same horizon, batch and optimiser
RATE = optax.cosine_decay_schedule(0.15, 400)
P, GAIN = riccati()
REGULATOR = regulator(5, to_go(P))
Q0, V0 = jnp.array([[1.0], [0.0], [-0.5], [0.3]]), jnp.array([[0.0], [1.0], [0.8], [0.4]])
OPTIONS = {"batch": 3, "optimiser": jaxdyn.trajectory.clipped_adam(RATE, 10.0)}


def test_costs_of_rollouts_are_those_of_their_motions():
    masses = jnp.linspace(1.0, 3.0, 4)
    policy = Feedback(jnp.ones((1, 2)))
    costs = jaxdyn.trajectory.policy_costs(policy, REGULATOR, Q0, V0, heavy(masses))
    costed = jax.jit(lambda p: jaxdyn.trajectory.total_cost(p, jaxdyn.trajectory.policy_trajectory(policy, p)))
    for k in (0, 3):
        chain = dataclasses.replace(CART, inertia=CART.inertia * masses[k] / 2.0)
        one = at(dataclasses.replace(REGULATOR, chain=chain), Q0[k], V0[k])
        assert_allclose(costed(one), costs[k], rtol=1e-12)


@pytest.mark.nightly
def test_the_gain_found_is_that_of_the_riccati_equation(tmp_path):
    start, chains = Feedback(jnp.zeros((1, 2))), heavy(jnp.full(4, 2.0))
    found = jaxdyn.trajectory.optimise_policy(start, REGULATOR, Q0, V0, chains, updates=400, **OPTIONS)
    assert_allclose(found.policy.gain, GAIN, rtol=1e-5)
    x = np.concatenate([Q0, V0], axis=1)
    assert_allclose(found.costs, 0.5 * np.einsum("ki,ij,kj->k", x, P, x), rtol=1e-9)
    assert found.finite and found.updates == 400 and found.history["gradient"][-1] < 1e-3

    # interrupted and resumed: bit-identical
    chains, file, told = heavy(jnp.linspace(1.0, 3.0, 4)), tmp_path / "progress.bin", []
    arguments = (start, REGULATOR, Q0, V0, chains)
    whole = jaxdyn.trajectory.optimise_policy(*arguments, updates=6, **OPTIONS)
    jaxdyn.trajectory.optimise_policy(
        *arguments, updates=3, file=file, settings=PolicySettings(save_every=2), **OPTIONS
    )
    again = jaxdyn.trajectory.optimise_policy(
        *arguments, updates=6, file=file, settings=PolicySettings(progress=lambda *x: told.append(x)), **OPTIONS
    )
    assert np.array_equal(again.policy.gain, whole.policy.gain) and told[0] == ("optimising", 4, 6)
    assert np.array_equal(again.history["cost"], whole.history["cost"])
    other = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    with pytest.raises(jaxdyn.TrajectoryError, match="another policy"):
        jaxdyn.trajectory.optimise_policy(other, *arguments[1:], file=file, **OPTIONS)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(jaxdyn.TrajectoryError, match="damaged"):
        jaxdyn.trajectory.optimise_policy(*arguments, file=file, **OPTIONS)

    # rollouts that run away do not spoil the rest
    wild = Feedback(jnp.array([[-4e3, -4e3]]))
    with pytest.warns(RuntimeWarning, match="all 4 rollouts of the optimised policy diverge"):
        found = jaxdyn.trajectory.optimise_policy(
            wild, *arguments[1:], updates=3, settings=PolicySettings(speed_bound=50.0), **OPTIONS
        )
    assert found.history["stopped"].min() > 0.6
    assert np.isfinite(found.history["cost"]).all() and np.isfinite(found.history["gradient"]).all()
    lost = Feedback(jnp.array([[jnp.nan, 0.0]]))
    with pytest.warns(RuntimeWarning, match="all 4 rollouts of the optimised policy diverge"):
        ended = jaxdyn.trajectory.optimise_policy(lost, *arguments[1:], updates=100, **OPTIONS)
    assert not ended.finite and ended.updates == 21 and "finite gradient" in ended.message


@pytest.mark.ci
def test_an_update_goes_against_the_gradient_of_the_mean_cost():
    """By plain steps, against differences of the costs of rollouts; and one that spoils the policy is taken back."""
    chains, sgd = heavy(jnp.linspace(1.0, 3.0, 4)), optax.sgd(0.05)
    arguments = REGULATOR, Q0, V0, chains
    costs = lambda gain: np.asarray(jaxdyn.trajectory.policy_costs(Feedback(gain), *arguments))
    first = jnp.array([[0.5, 1.5]])
    gain, e, means, norms = np.asarray(first), 1e-4, [], []
    for _ in range(2):
        sides = [[costs(jnp.asarray(gain + s * e * unit)).mean() for s in (-1, 1)] for unit in np.eye(2)]
        slope = np.array([[(high - low) / (2 * e) for low, high in sides]])
        means.append(costs(jnp.asarray(gain)).mean())
        norms.append(np.linalg.norm(slope))
        gain = gain - 0.05 * slope
    found = jaxdyn.trajectory.optimise_policy(Feedback(first), *arguments, updates=2, optimiser=sgd)
    assert_allclose(found.policy.gain, gain, rtol=1e-6)
    assert_allclose(found.history["cost"], means, rtol=1e-9)
    assert_allclose(found.history["gradient"], norms, rtol=1e-6)
    assert_allclose(found.costs, costs(found.policy.gain), rtol=1e-12)
    assert found.cost == pytest.approx(found.costs.mean()) and found.updates == 2 and found.finite
    assert not found.history["stopped"].any() and found.message.startswith("2 updates")
    # of rollouts that run away the state stays, and what they cost is a number
    with pytest.warns(RuntimeWarning, match="rollouts of the optimised policy diverge"):
        wild = jaxdyn.trajectory.optimise_policy(
            Feedback(-200 * first), *arguments, updates=2, optimiser=sgd, settings=PolicySettings(speed_bound=3.0)
        )
    assert wild.stopped == 1.0 and "100 % of the rollouts diverge" in wild.message
    assert wild.history["stopped"][0] == 1.0 and np.isfinite(wild.history["cost"]).all()
    assert wild.cost <= wild.history["cost"][0]


def test_progress_that_was_changed_is_refused(tmp_path):
    path, carry = tmp_path / "progress.bin", {"gain": jnp.ones((2, 3)), "count": jnp.asarray(3)}
    write_progress(path, carry, {"cost": [2.0, 1.0]}, 0)
    line, _, numbers = path.read_bytes().partition(b"\n")
    header = json.loads(line)
    assert read_progress(path, carry)[1:] == ({"cost": [2.0, 1.0]}, 0)
    first = {**header, "version": 1, "sha256": hashlib.sha256(numbers).hexdigest()}  # which does not cover the rest
    path.write_bytes(json.dumps(first).encode() + b"\n" + numbers)
    assert read_progress(path, carry)[1:] == ({"cost": [2.0, 1.0]}, 0)
    changes = ({"history": {"cost": [0.0, 1.0]}}, {"lost": 7}, {"version": 1}, {"version": 3}, {"sha256": None})
    for change in changes:
        path.write_bytes(json.dumps(header | change).encode() + b"\n" + numbers)
        with pytest.raises(jaxdyn.TrajectoryError, match="damaged"):
            read_progress(path, carry)
    infinite = json.dumps(header | {"lost": float("inf")}).encode()
    for line in (b"[" * 50_000 + b"]" * 50_000, infinite, b"[]"):
        path.write_bytes(line + b"\n" + numbers)
        with pytest.raises(jaxdyn.TrajectoryError, match="this file does not contain the progress"):
            read_progress(path, carry)


def test_policies_that_cannot_be_optimised_are_refused():
    problem, q0, v0 = regulator(3), jnp.ones((2, 1)), jnp.zeros((2, 1))
    policy = Feedback(jnp.ones((1, 2)))
    with pytest.raises(jaxdyn.TrajectoryError, match="constraints"):
        held = regulator(3, constraints=(jaxdyn.trajectory.VelocityLimits(jnp.ones(1)),))
        jaxdyn.trajectory.optimise_policy(policy, held, q0, v0)
    with pytest.raises(jaxdyn.TrajectoryError, match="2, 3 rows"):
        jaxdyn.trajectory.optimise_policy(policy, problem, q0, v0, jax.tree.map(lambda x: jnp.stack([x] * 3), CART))
    with pytest.raises(jaxdyn.TrajectoryError, match="batch=5"):
        jaxdyn.trajectory.optimise_policy(policy, problem, q0, v0, batch=5)
    with pytest.raises(jaxdyn.TrajectoryError, match="no floating-point arrays"):
        jaxdyn.trajectory.optimise_policy(lambda t, q, v: -q, problem, q0, v0)


def closed_form(steps, x, p=None):
    """Torques and cost of the linear-quadratic problem, as one least-squares problem in all torques."""
    powers = [np.linalg.matrix_power(A, k) for k in range(steps + 1)]
    free = np.concatenate([m @ x for m in powers])
    forced = np.zeros((2 * (steps + 1), steps))
    for k in range(1, steps + 1):
        for j in range(k):
            forced[2 * k : 2 * k + 2, j] = (powers[k - 1 - j] @ B)[:, 0]
    weight = np.kron(np.diag([DT] * steps + [0.0]), Q)
    if p is not None:
        weight[-2:, -2:] = p
    hessian = forced.T @ weight @ forced + DT * R[0, 0] * np.eye(steps)
    tau = -np.linalg.solve(hessian, forced.T @ weight @ free)
    state = free + forced @ tau
    return tau, 0.5 * (state @ weight @ state + DT * R[0, 0] * tau @ tau)


@pytest.mark.nightly
def test_shooting_reaches_the_closed_form_of_the_regulator():
    problem = regulator(12)
    solution = jax.jit(lambda p: jaxdyn.trajectory.solve_by_shooting(p, tolerance=1e-8))(problem)
    tau, cost = closed_form(12, np.array([1.0, 0.0]))
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED, solution.message
    assert_allclose(solution.cost, cost, rtol=1e-12)
    assert_allclose(solution.trajectory.tau[:, 0], tau, atol=1e-6)
    assert_allclose(jaxdyn.trajectory.total_cost(problem, solution.trajectory), cost, rtol=1e-12)
    assert float(solution.residuals.largest) <= 1e-8


def augmented(values, counts, penalty):
    """m . c + rho/2 |c|^2 of equalities, and (|max(0, m + rho c)|^2 - |m|^2) / (2 rho) of inequalities, if they count."""
    total, rho = 0.0, penalty.weight
    enforced = penalty.counted, jnp.ones_like(penalty.multipliers[1])
    for c, m, mask, count in zip(values, penalty.multipliers, enforced, counts, strict=True):
        new = jnp.where(jnp.arange(c.shape[-1]) < count, m + rho * c, jnp.maximum(m + rho * c, 0))
        total += (mask * (new**2 - m**2)).sum() / (2 * rho)
    return total


def test_what_the_augmented_lagrangian_adds_is_what_its_multipliers_say():
    """Its slope by a constraint's value is the constraint's next multiplier; torques within their limits, there and back."""
    rng = np.random.default_rng(2)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    counted, counts = jnp.ones((3, 6)).at[1].set(0.0), (2, 3)
    values, weight, zero = (rows(3, 6), rows(5)), jnp.asarray(3.0), jnp.zeros(())
    multipliers = rows(3, 6).at[:, 2:].set(jnp.abs(rows(3, 4))), rows(5).at[3:].set(jnp.abs(rows(2)))
    penalty = Penalty(multipliers, weight, counted)
    slopes = once(jax.grad(lambda x: augmented(x, counts, penalty)))(values)
    found = violation(Values(*values, counts), penalty)
    assert_allclose(found.multipliers[0][1], 0)  # which do not count
    jax.tree.map(lambda x, y: assert_allclose(x, y, atol=1e-12), slopes, found.multipliers)
    largest = lambda x: updated(penalty, found._replace(largest=zero + x), zero + 1.0)
    assert float(largest(0.3).weight) == 30 and float(largest(0.2).weight) == 3


def test_violations_and_their_products_with_multipliers_equal_their_definitions():
    none, end = jnp.zeros((4, 0)), jnp.array([0.1, -0.3, -0.4, 0.2])  # two equalities, two inequalities
    penalty = Penalty((none, jnp.array([0.0, 0.0, 2.5, 0.0])), jnp.asarray(5.0), none)
    off = violation(Values(none, end, (0, 2)), penalty)
    assert float(off.largest) == 0.3 and float(off.complementarity) == pytest.approx(0.2)


def test_a_policy_s_torques_are_clipped_to_the_limits():
    problem = regulator(3, v0=0.4, torque_limits=jnp.array([[-2.0, 3.0]]))
    pushed = _torque(lambda t, q, v: 9.0 * t - q + v, problem, jnp.asarray(5), jnp.array([0.5]), jnp.array([-0.2]))
    assert_allclose(pushed, [3.0])  # 3.8 is more than there is


@pytest.mark.ci
def test_shooting_meets_limits_and_constraints_at_the_cost_that_scipy_finds():
    goal = jaxdyn.trajectory.StateConstraint(jnp.zeros(1), jnp.zeros(1))
    fast = jaxdyn.trajectory.VelocityLimits(jnp.array([1.3]))
    limits = jnp.array([[-6.0, 6.0]])
    problem = regulator(16, terminal_constraints=(goal,), constraints=(fast,), torque_limits=limits)
    solution = jax.jit(jaxdyn.trajectory.solve_by_shooting)(problem)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED, (solution.message, solution.residuals)
    v, tau = np.asarray(solution.trajectory.v), np.asarray(solution.trajectory.tau)
    assert np.abs(tau).max() <= 6.0 and np.abs(v).max() <= 1.3 + 1e-6
    assert_allclose(solution.trajectory.q[-1], 0, atol=1e-6)
    assert_allclose(solution.cost, constrained_cost(16, np.array([1.0, 0.0]), 6.0, 1.3), rtol=1e-4)


def constrained_cost(steps, x, torque, speed):
    """By scipy's SLSQP on the torques."""
    from scipy.optimize import minimize

    def states(tau):
        rows = [x]
        for u in tau:
            rows.append(A @ rows[-1] + B[:, 0] * u)
        return np.array(rows)

    def cost(tau):
        rows = states(tau)[:-1]
        return 0.5 * DT * (np.einsum("ki,ij,kj->", rows, Q, rows) + R[0, 0] * tau @ tau)

    inside = {"type": "ineq", "fun": lambda tau: np.concatenate([speed - states(tau)[:, 1], speed + states(tau)[:, 1]])}
    ends = {"type": "eq", "fun": lambda tau: states(tau)[-1]}
    bounds = [(-torque, torque)] * steps
    found = minimize(
        cost, np.zeros(steps), bounds=bounds, constraints=[inside, ends], options={"ftol": 1e-12, "maxiter": 500}
    )
    assert found.success, found.message
    return found.fun
