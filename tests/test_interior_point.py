"""The interior-point method against published solutions, scipy's SLSQP and, for its linear algebra, numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

import jaxdyn
from helpers import once
from jaxdyn.trajectory.primal_dual import (
    DenseProgram,
    InteriorPointResult,
    Point,
    _products_off,
    barrier_function,
    bounds_of,
    differentiable,
    factor_stages,
    passes,
    solve_program,
    solve_stages,
)

INF = np.inf


def array(*numbers):
    return jnp.array(numbers, float)


# Hock & Schittkowski 1981: objective, start, equalities, inequalities (<= 0), lower, upper, optimum
PROBLEMS = {
    1: (
        lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2,
        *(array(-2, 1), None, None, array(-INF, -1.5), INF, 0.0),
    ),
    7: (
        lambda x: jnp.log(1 + x[0] ** 2) - x[1],
        *(array(2, 2), lambda x: jnp.stack([(1 + x[0] ** 2) ** 2 + x[1] ** 2 - 4]), None, -INF, INF, -np.sqrt(3)),
    ),
    10: (
        lambda x: x[0] - x[1],
        *(array(-10, 10), None, lambda x: jnp.stack([3 * x[0] ** 2 - 2 * x[0] * x[1] + x[1] ** 2 - 1])),
        *(-INF, INF, -1.0),
    ),
    21: (
        lambda x: 0.01 * x[0] ** 2 + x[1] ** 2 - 100,
        *(array(-1, -1), None, lambda x: jnp.stack([10 - 10 * x[0] + x[1]]), array(2, -50), array(50, 50), -99.96),
    ),
    39: (
        lambda x: -x[0],
        array(2, 2, 2, 2),
        lambda x: jnp.stack([x[1] - x[0] ** 3 - x[2] ** 2, x[0] ** 2 - x[1] - x[3] ** 2]),
        *(None, -INF, INF, -1.0),
    ),
    43: (
        lambda x: x @ (array(1, 1, 2, 1) * x) - 5 * x[0] - 5 * x[1] - 21 * x[2] + 7 * x[3],
        *(array(0, 0, 0, 0), None),
        lambda x: jnp.stack(
            [
                x @ x + x[0] - x[1] + x[2] - x[3] - 8,
                x @ (array(1, 2, 1, 2) * x) - x[0] - x[3] - 10,
                x @ (array(2, 1, 1, 0) * x) + 2 * x[0] - x[1] - x[3] - 5,
            ]
        ),
        *(-INF, INF, -44.0),
    ),
    46: (
        lambda x: (x[0] - x[1]) ** 2 + (x[2] - 1) ** 2 + (x[3] - 1) ** 4 + (x[4] - 1) ** 6,
        array(np.sqrt(2) / 2, 1.75, 0.5, 2, 2),
        lambda x: jnp.stack([x[0] ** 2 * x[3] + jnp.sin(x[3] - x[4]) - 1, x[1] + x[2] ** 4 * x[3] ** 2 - 2]),
        *(None, -INF, INF, 0.0),
    ),
}


def hs71(least, tolerance):
    """Hock & Schittkowski's problem 71, whose product of unknowns has to be at least a number, there 25."""
    return jaxdyn.trajectory.interior_point(
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        array(1, 5, 5, 1),
        lambda x: jnp.stack([x @ x - 40]),
        lambda x: jnp.stack([least - jnp.prod(x)]),
        lower=1.0,
        upper=5.0,
        tolerance=tolerance,
    )


def test_a_problem_solved_and_one_that_cannot_be():
    """In one batch: four numbers of squares adding up to 40 have a product of 100 at most."""
    found = jax.jit(jax.vmap(hs71))(jnp.array([25.0, 200.0, 25.0]), jnp.array([1e-8, 1e-8, 1e-4]))
    assert jaxdyn.trajectory.Status(int(found.status[0])) == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(found.x[0], [1, 4.7429994, 3.8211503, 1.3794082], atol=1e-6)
    assert_allclose(found.cost[0], 17.0140173, rtol=1e-8)
    assert_allclose(found.lower_multipliers[0, 0], 1.0878712, rtol=1e-5)
    worst = jnp.max(jnp.stack([found.stationarity, found.infeasibility, found.complementarity]), axis=0)
    # the tolerance itself, as multipliers are small; not much less than asked
    assert worst[0] <= 1e-8 < 1e-6 < worst[2] <= 1e-4 and 4 < found.iterations[2] < found.iterations[0] < 15
    assert jaxdyn.trajectory.Status(int(found.status[1])) == jaxdyn.trajectory.Status.INFEASIBLE
    assert jnp.isfinite(found.x[1]).all()
    x, slack = np.asarray(found.x[1]), float(found.slacks[1, 0])
    violated = max(abs(x @ x - 40), abs(200 - np.prod(x) + slack))
    assert_allclose(found.infeasibility[1], violated, rtol=1e-6)
    assert violated > 1 and found.iterations[1] < 65  # it takes 56


def test_elimination_by_stages_solves_the_whole_system():
    """Against numpy on the matrix written out, with blocks that are not positive by themselves and rows that repeat others."""
    rng = np.random.default_rng(0)
    count, n, m, k, delta = 4, 3, 2, 1, 1e-6
    p = rng.normal(size=(count, n, n))
    p = p @ p.transpose(0, 2, 1) + 0.1 * np.eye(n)
    left, right = rng.normal(size=(2, count - 1, m, n))
    left[1, 1] = left[1, 0]  # dependent in that stage
    last = rng.normal(size=(k, n))
    whole = np.zeros((count * n + (count - 1) * m + k,) * 2)
    for i in range(count):
        whole[i * n : (i + 1) * n, i * n : (i + 1) * n] = p[i]
    for i in range(count - 1):
        rows = slice(count * n + i * m, count * n + (i + 1) * m)
        whole[rows, i * n : (i + 1) * n], whole[rows, (i + 1) * n : (i + 2) * n] = left[i], right[i]
    whole[-k:, (count - 1) * n : count * n] = last
    whole[: count * n, count * n :] = whole[count * n :, : count * n].T
    whole[count * n :, count * n :] = -delta * np.eye((count - 1) * m + k)
    r = rng.normal(size=len(whole))

    @jax.jit
    def solve(rho):
        factors = factor_stages(*map(jnp.asarray, (p, left, right, last)), rho, jnp.asarray(delta))
        r1, r2, r3 = jnp.split(jnp.asarray(r), [count * n, count * n + (count - 1) * m])
        z, y, end = solve_stages(factors, r1.reshape(count, n), r2.reshape(count - 1, m), r3)
        return jnp.concatenate([z.reshape(-1), y.reshape(-1), end])

    expected = np.linalg.solve(whole, r)
    for rho in (0.0, 3.0):
        assert_allclose(solve(jnp.asarray(rho)), expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize(
    "number", [pytest.param(k, marks=pytest.mark.ci if k == 43 else pytest.mark.nightly) for k in PROBLEMS]
)
def test_the_problems_of_hock_and_schittkowski_are_solved(number):
    objective, x, equality, inequality, lower, upper, optimum = PROBLEMS[number]
    found = jax.jit(lambda x: jaxdyn.trajectory.interior_point(objective, x, equality, inequality, lower, upper))(x)
    assert jaxdyn.trajectory.Status(int(found.status)) == jaxdyn.trajectory.Status.CONVERGED
    assert max(found.stationarity, found.infeasibility, found.complementarity) <= 1e-6
    assert_allclose(found.cost, optimum, rtol=1e-7, atol=1e-7)
    rules = [{"type": "eq", "fun": equality}] if equality else []
    rules += [{"type": "ineq", "fun": lambda x: -np.asarray(inequality(x))}] if inequality else []
    bounds = [tuple(np.broadcast_to(b, x.shape)[i] for b in (lower, upper)) for i in range(len(x))]
    peer = optimize.minimize(objective, np.asarray(x), bounds=bounds, constraints=rules, method="SLSQP", tol=1e-10)
    if peer.success:
        assert found.cost <= peer.fun + 1e-6


@pytest.mark.parametrize(
    ("objective", "equality", "inequality", "lower", "upper", "status"),
    [
        # by the bounds, which hold the second unknown
        (lambda x: x @ x, lambda x: jnp.stack([x[0] + x[1] - 5]), None, array(-1, 0.5), array(1, 0.5), "INFEASIBLE"),
        # nothing but the guess has a value
        (lambda x: jnp.where(x[0] == 3, -x[0], jnp.nan), None, None, -INF, INF, "STALLED"),
        *(
            pytest.param(*case, marks=pytest.mark.ci)
            for case in (
                (lambda x: x @ x, None, None, 1.0, -1.0, "CONTRADICTORY_LIMITS"),
                (lambda x: jnp.log(x[0] - 5), None, None, -1.0, 1.0, "NOT_FINITE"),
            )
        ),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                (lambda x: x @ x, lambda x: jnp.stack([x @ x + 1]), None, -INF, INF, "INFEASIBLE"),
                (lambda x: x[0] + x[1], None, lambda x: jnp.stack([x[0] + 1, 1 - x[0]]), -INF, INF, "INFEASIBLE"),
                (
                    lambda x: x @ x,
                    lambda x: jnp.stack([x[0] + x[1] - 1, 2 * x[0] + 2 * x[1] - 2]),
                    *(None, -INF, INF, "CONVERGED"),
                ),
            )
        ),
    ],
)
def test_what_cannot_be_solved_is_said(objective, equality, inequality, lower, upper, status):
    found = jax.jit(lambda x: jaxdyn.trajectory.interior_point(objective, x, equality, inequality, lower, upper))(
        array(3, 0)
    )
    assert jaxdyn.trajectory.Status(int(found.status)).name == status
    assert jnp.isfinite(found.x).all()


@pytest.mark.ci
def test_a_problem_without_multipliers_is_solved():
    """Hock & Schittkowski's problem 13: at the solution (1, 0) the gradients of what is active are opposite.

    No KKT point exists. The method comes as near as its tolerance asks, and the multiplier grows without bound.
    """
    found = jax.jit(
        lambda x: jaxdyn.trajectory.interior_point(
            lambda x: (x[0] - 2) ** 2 + x[1] ** 2, x, None, lambda x: jnp.stack([x[1] - (1 - x[0]) ** 3]), lower=0.0
        )
    )(array(-2, -2))
    assert jaxdyn.trajectory.Status(int(found.status)) == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(found.x, [1, 0], atol=1e-6)
    assert_allclose(found.cost, 1.0, atol=1e-6)
    assert found.inequality_multipliers[0] > 1e6


@pytest.mark.ci
def test_derivatives_of_a_program_are_those_of_solutions_again():
    """Active and idle inequalities and bounds, one of which moves, an equality, an unknown that is held; both modes."""

    def pose(p):
        objective = lambda x: (x[0] - p[0]) ** 2 + (x[1] - 2) ** 4 + p[1] * x[0] * x[2] + x[2] ** 2 + x[3] ** 2 * x[1]
        equality = lambda x: jnp.stack([x[0] * x[2] + x[1] ** 2 - 1 - p[1] * x[3]])
        inequality = lambda x: jnp.stack([x[1] - p[2] * x[0], x[2] - 10])
        lower = jnp.stack([jnp.zeros(()), jnp.full((), -INF), -p[1], p[2]])
        upper = jnp.stack([jnp.full((), 5.0), jnp.full((), INF), jnp.full((), INF), p[2]])
        return DenseProgram(objective, equality, inequality), array(1, 1, 1, 1), lower, upper

    def solution(p):
        bare = jax.lax.stop_gradient(p)
        result = solve_program(*pose(bare), tolerance=1e-10, max_iterations=100, barrier=0.1)
        found = differentiable(pose, p, result)
        return jnp.concatenate([found.x, found.equality_multipliers, found.cost[None]]), result.status

    at, step = array(0.8, 0.3, 0.6), 1e-4
    around = jnp.concatenate([at[None], at[None] + step * jnp.eye(3), at[None] - step * jnp.eye(3)])
    numbers, status = jax.jit(jax.vmap(solution))(around)
    assert (status == jaxdyn.trajectory.Status.CONVERGED).all()
    differences = (numbers[1:4] - numbers[4:]).T / (2 * step)
    forwards, _ = jax.jit(jax.jacfwd(solution, has_aux=True))(at)
    backwards, _ = jax.jit(jax.jacrev(solution, has_aux=True))(at)
    assert_allclose(forwards, differences, rtol=1e-5, atol=1e-5)
    assert_allclose(backwards, forwards, rtol=1e-6, atol=1e-6)


@pytest.mark.nightly
def test_derivatives_at_a_solution_that_is_known():
    """Of a program made so that its solution is known: dz/dp = -F_z^-1 F_p of its optimality conditions F(z, p) = 0.

    An equality, an active and an idle inequality, active lower and upper bounds, an idle one and an unknown that is held;
    forwards and backwards.
    """
    x, y, w = array(0.7, -0.4, 1.1, 0.3, 2.0, -0.6), array(0.8), array(0.5, 0.0)
    low, high = array(0, 0, 0.9, 0, 0, 0), array(0, 0, 0, 0.6, 0, 0)
    curve = lambda x: jnp.sin(x[0] * x[1]) + x[2] * x[5] ** 2 + 3 * x @ x + x[0] * x[3] * x[4]
    level = lambda x: x[0] * x[1] + x[2] ** 2 * x[4]
    below = lambda x: jnp.stack([x[0] ** 2 + x[5] * x[3], x[1] - 9])
    rest = jax.grad(lambda x: curve(x) + y[0] * level(x) + w @ below(x))(x) - low + high

    def parts(p):
        """Functions and bounds by eight parameters, all zero."""
        objective = lambda x: curve(x) - (rest + p[:6]) @ x
        equality = lambda x: jnp.stack([(1 + p[6]) * level(x) - level(array(*map(float, known)))])
        inequality = lambda x: below(x) - jnp.stack([below(array(*map(float, known)))[0] + p[7], p[5]])
        lower = jnp.stack([p[0] - 9, -INF + 0 * p[0], x[2] + p[1], -INF + 0 * p[0], x[4] + p[2], -INF + 0 * p[0]])
        upper = jnp.stack([p[0] + 9, INF + 0 * p[0], INF + 0 * p[0], x[3] + p[3], x[4] + p[2], INF + 0 * p[0]])
        return objective, equality, inequality, lower, upper

    known = np.asarray(x)
    pose = lambda p: (DenseProgram(*parts(p)[:3]), x, *parts(p)[3:])

    def found(p):
        number = jnp.asarray(0.0)
        slacks = array(0, 9 + 0.4)
        ended = InteriorPointResult(x, curve(x) - rest @ x, y, w, low, high, slacks, *[number] * 5, {})
        r = differentiable(pose, p, ended)
        parts = r.x, r.equality_multipliers, r.inequality_multipliers, r.lower_multipliers, r.upper_multipliers
        return jnp.concatenate([*parts, r.cost[None]])

    def conditions(z, p):
        """Stationarity and what is active, in (x, y, w_0, low_2, high_3)."""
        x, multipliers = z[:6], z[6:]
        objective, equality, inequality, lower, upper = parts(p)
        lagrangian = lambda x: objective(x) + multipliers[0] * equality(x)[0] + multipliers[1] * inequality(x)[0]
        gradient = jax.grad(lagrangian)(x).at[2].add(-multipliers[2]).at[3].add(multipliers[3])
        active = [equality(x), inequality(x)[:1], (x - lower)[2:3], (x - upper)[3:4]]
        return jnp.concatenate([gradient.at[4].set(x[4] - lower[4]), *active])

    @once
    def run(p):
        z = jnp.concatenate([x, y, w[:1], low[2:3], high[3:4]])
        by_z, by_p = jax.jacfwd(conditions, (0, 1))(z, p)
        cost, costs = jax.grad(lambda z, p: parts(p)[0](z[:6]), (0, 1))(z, p)
        return conditions(z, p), by_z, by_p, cost, costs, jax.jacfwd(found)(p), jax.jacrev(found)(p)

    zero, by_z, by_p, cost, costs, forwards, backwards = map(np.asarray, run(jnp.zeros(8)))
    assert_allclose(zero, 0, atol=1e-12)
    change = -np.linalg.solve(by_z, by_p)
    expected = np.zeros((22, 8))
    expected[[*range(8), 11, 18]], expected[21] = change, cost @ change + costs
    for derivatives in (forwards, backwards):  # active ones are as stiff as 1 / sqrt(eps)
        assert_allclose(derivatives, expected, rtol=2e-5, atol=1e-5)


def test_residuals_and_merits_equal_their_definitions():
    """f - mu (sum of the logarithms of slacks and distances); the largest |multiplier x distance - mu|."""
    program = DenseProgram(jnp.sum, jnp.sin, jnp.sin)
    bounds = bounds_of(program, array(-INF, 0.0, 1.0), array(3.0, INF, 5.0), (2,))
    x, s = array(1.0, 0.5, 2.0), array(0.2, 4.0)
    barrier = barrier_function(bounds, x, s, jnp.asarray(7.0), jnp.asarray(0.1))
    assert_allclose(barrier, 7 - 0.1 * np.log(0.2 * 4.0 * 2.0 * 0.5 * 1.0 * 3.0), rtol=1e-13)
    low, high = array(9.0, 0.2, 0.1), array(0.05, 9.0, 0.03)
    for w, wanted in ((array(0.5, 0.025), 0.01), (array(0.5, 0.0), 0.1), (array(0.5, 0.2), 0.7)):
        point = Point(x, s, array(), w, low, high)
        assert_allclose(_products_off(bounds, point, 0.1), wanted, rtol=1e-12)  # 0.2 x 0.5, 0.1 x 1, 0.05 x 2, 0.03 x 3
    filter_ = jnp.array([[1.0, 5.0], [2.0, 3.0], [INF, INF]])
    for theta, phi, passed in (
        (0.5, 9.0, True),
        (1.5, 4.0, True),
        (1.5, 6.0, False),
        (3.0, 2.0, True),
        (3.0, 4.0, False),
    ):
        assert bool(passes(filter_, jnp.asarray(theta), jnp.asarray(phi))) == passed


@pytest.mark.ci
def test_a_guess_is_moved_inside_its_bounds():
    """With contradictory limits nothing is solved: the projected guess is returned."""
    lower = array(2.0, -INF, 0.0, 300.0, -INF, 0.0, 1.0)
    upper = array(1.0, 0.0, 0.5, INF, INF, 10.0, 1.0)
    found = jaxdyn.trajectory.interior_point(
        lambda x: x @ x, array(7.0, 5.0, 9.0, 0.0, 3.0, -4.0, 8.0), None, None, lower, upper
    )
    assert jaxdyn.trajectory.Status(int(found.status)) == jaxdyn.trajectory.Status.CONTRADICTORY_LIMITS
    # the middle of limits that leave nothing; by 1 % of the limit's size, at least of 1, or of the distance of both
    assert_allclose(found.x, [1.5, -0.01, 0.495, 303.0, 3.0, 0.01, 1.0], rtol=1e-12)


def test_residuals_are_divided_by_large_multipliers_and_convergence_is_what_they_say():
    """min 1e6 |x - (1, 2)|^2 / 2, x_0 + x_1 = 1, x_1 <= 0.9, 0 <= x_1: the loop stops at the first point within tolerance."""
    objective = lambda x: 5e5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2)
    equality, inequality = (lambda x: x[:1] + x[1:] - 1), (lambda x: x[1:] - 0.9)
    lower, tolerance = array(-INF, 0.0), 1e-6

    @once
    def solve(most):
        program = DenseProgram(objective, equality, inequality)
        upper = jnp.full(2, INF)
        return solve_program(
            program, array(3.0, 0.5), lower, upper, tolerance=tolerance, max_iterations=40, barrier=0.1 + 0 * most
        )

    found = solve(jnp.zeros(()))
    x, y, w, s, low = (
        np.asarray(v)
        for v in (
            found.x,
            found.equality_multipliers,
            found.inequality_multipliers,
            found.slacks,
            found.lower_multipliers,
        )
    )
    assert jaxdyn.trajectory.Status(int(found.status)) == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(x, [0.1, 0.9], atol=tolerance)
    assert_allclose([y[0], w[0]], [9e5, 2e5], rtol=1e-4)  # gradients (-9e5, -1.1e6) + y (1, 1) + w (0, 1) = 0
    slope = 1e6 * (x - [1, 2]) + y + [0, w[0]] - low
    assert_allclose(found.stationarity, np.abs(slope).max(), atol=1e-8)
    products = max(abs(w[0] * s[0]), abs(low[1] * x[1]))
    assert_allclose(found.complementarity, products, rtol=1e-9)
    scale = np.clip((abs(y).sum() + w.sum() + low.sum()) / 6 / 100, 1, 100)
    assert scale == 100 and max(np.abs(slope).max(), products) / scale <= tolerance
    history = {name: np.asarray(v)[: int(found.iterations) + 1] for name, v in found.history.items()}
    assert_allclose(history["stationarity"][-1], found.stationarity)
    assert_allclose(history["infeasibility"][-1], found.infeasibility)
    assert tolerance < products  # which the loop checks only after division
