"""Direct collocation: states and accelerations at the knots, coupled by the trapezoidal or the Hermite-Simpson rule.

The unknowns are q, v and a, and inverse dynamics determines the torques tau = ID(q, v, a) + passive forces. The defects are
therefore linear in the unknowns, and no mass matrix is inverted. With h = T / N and the rate f = (v, a) of the state x = (q,
v), the rules (Hargraves & Paris 1987; Betts 2010, ch. 4; Kelly 2017) are

    trapezoidal      x_{k+1} - x_k = h/2 (f_k + f_{k+1})
    Hermite-Simpson  x_{k+1} - x_k = h/6 (f_k + 4 f_m + f_{k+1}),  x_m = (x_k + x_{k+1}) / 2 + h/8 (f_k - f_{k+1})

A free duration T is an unknown at every knot, and equalities keep all copies equal. The contribution of a knot to costs and
constraints therefore depends only on the unknowns of that knot. With r = T / (N dt), the unknown velocities and accelerations
are v r and a r^2, that is, derivatives with respect to the scaled time t / r. The defects are therefore independent of r and
remain linear. If the duration is too short, the torque limits are violated instead of the defects.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...errors import TrajectoryError
from .._interior_point.program import Inner, Part
from .._interior_point.solve import InteriorPointResult
from .._problem.constraints import PositionLimits, VelocityLimits
from .._problem.knot import Knot
from .._problem.problem import (
    OptimalControlProblem,
    constraint_values,
    resting_torque,
    running_cost,
    terminal_cost,
)
from .._problem.solution import Solution, Trajectory
from .staged_program import Stage, StagedProgram
from .transcription import (
    HessianKind,
    TorqueRows,
    check_transcribable,
    drive_torque,
    guessed_motion,
    path_rows,
    pinned_rows,
    rows_that_count,
    solve_transcribed,
    state_bounds,
    torque_jacobian,
    torque_rows,
    transcribed_solution,
)

Scheme = Literal["trapezoidal", "hermite_simpson"]


STIFF = 100.0  # weight of the differences between copies of the duration, which would otherwise absorb other violations


class Unknowns(NamedTuple):
    """The unknowns of a knot.

    These are the state and acceleration at the knot and at the following midpoint, the torques before the knot, and the
    duration.
    """

    q: Array
    v: Array
    a: Array
    middle: tuple[Array, Array, Array] | None
    tau_before: Array | None
    ratio: Array  # ratio of the duration to N dt


class _Data(NamedTuple):
    """The data of a knot."""

    k: Array
    weight: Array  # weight of the knot in the integral, in units of the time step
    middle_weight: Array
    first: Array  # 1 at the first knot, else 0
    active: tuple[Array, Array]  # 1 for enforced constraints, else 0


def solve_by_collocation(
    problem: OptimalControlProblem,
    guess: Trajectory | None = None,
    *,
    scheme: Scheme = "hermite_simpson",
    hessian: HessianKind = "gauss_newton",
    tolerance: float | None = None,
    max_iterations: int = 200,
    barrier: float | Float[Array, ""] = 0.1,
) -> Solution:
    """Find the motion of minimum cost by direct collocation and the interior-point method.

    Costs are integrated by the quadrature rule of the scheme. Constraints and limits are imposed at the knots and, with
    "hermite_simpson", also at the midpoints. Equal lower and upper limits are equalities: those of a torque prescribe it, for
    example zero for a passive joint. The discretisation error is second-order in the time step with "trapezoidal" and
    fourth-order with "hermite_simpson", whose iterations are 3 to 5 times as expensive.

    Args:
        problem: problem to solve; its `method` is ignored.
        guess: initial motion, which need not satisfy the dynamics; None: a quintic motion from rest at q0 to rest at the goal
            of a terminal `StateConstraint` or `StateCost`, or, without such a goal, the robot at rest at q0.
        scheme: "hermite_simpson" or "trapezoidal".
        hessian: type of the Hessian of the Lagrangian: "exact", or "gauss_newton", which omits the second derivatives of
            inverse dynamics. Compared with "exact", "gauss_newton" compiles and runs several times faster, but needs more
            iterations if torque limits are active.
        tolerance: tolerance for the largest Karush-Kuhn-Tucker residual, scaled as in `interior_point`; None: 1e-8, or 1e-4
            in float32.
        max_iterations: maximum number of iterations.
        barrier: initial barrier parameter mu; use a small value, for example 1e-4, if the guess is near the solution.

    Returns:
        The solution, with torques averaged over each step. The trajectory, cost and multipliers can be differentiated once with
        respect to the problem's leaves. The dictionary `multipliers` contains:

        - "dynamics": multipliers of the defects, one row per step;
        - "equality": multipliers of constraints, one row per knot;
        - "inequality": multipliers of torque limits, followed by those of constraints, one row per knot. The multipliers of
          equal lower and upper limits are opposite, and their difference (upper minus lower) is that of the equality;
        - "terminal_equality" and "terminal_inequality": multipliers of the terminal constraints;
        - "lower" and "upper": multipliers of position and velocity limits, one row per knot and one column per unknown.

        If the duration is free, the defects and unknowns are in scaled time, and velocity limits are among the inequalities.

    Raises:
        TrajectoryError: the robot has spherical or free joints, `scheme` or `hessian` is unknown, or "hermite_simpson" is used
            with a torque-rate cost.
    """
    check_transcribable(problem)
    if scheme not in ("trapezoidal", "hermite_simpson"):
        raise TrajectoryError(f"the scheme must be 'trapezoidal' or 'hermite_simpson', not {scheme!r}")
    if scheme == "hermite_simpson" and problem.has_torque_rate:
        raise TrajectoryError("torque-rate costs require scheme='trapezoidal'")
    middles = scheme == "hermite_simpson"
    form_of = lambda problem, exact, like: _Form(problem, middles, exact, like)
    return solve_transcribed(form_of, problem, guess, hessian, tolerance, max_iterations, barrier)


class _Form:
    """The collocation of one problem: the layout of the unknowns, and the contributions of its knots to the program."""

    def __init__(self, problem: OptimalControlProblem, middles: bool, exact: bool, like: TorqueRows | None = None):
        self.problem, self.middles = problem, middles
        self.n, self.steps = problem.chain.nv, problem.steps
        self.free_duration = problem.duration_limits is not None
        self.torques = torque_rows(problem, like)
        self.inner = Inner(self.torques_at, self.torques_jacobian, exact)
        self.unknowns = self.n * (6 if middles else 3) + self.n * problem.has_torque_rate + self.free_duration
        self.bounded = (PositionLimits,) if self.free_duration else (PositionLimits, VelocityLimits)

    def split(self, z: Array) -> Unknowns:
        """The unknowns of a knot."""
        ratio = z[-1] if self.free_duration else jnp.ones((), z.dtype)
        return self.scaled(self.nominal(z)._replace(ratio=ratio), 1 / ratio)

    def nominal(self, z: Array) -> Unknowns:
        """The unknowns of a knot, with velocities and accelerations in the problem's nominal time."""
        n = self.n
        parts = [z[i * n : (i + 1) * n] for i in range(6 if self.middles else 3)]
        parts[2::3] = [part / self.problem.dt for part in parts[2::3]]  # the unknowns a dt are comparable in size to v
        before = z[3 * n : 4 * n] if self.problem.has_torque_rate else None
        middle = (parts[3], parts[4], parts[5]) if self.middles else None
        return Unknowns(parts[0], parts[1], parts[2], middle, before, jnp.ones((), z.dtype))

    def scaled(self, u: Unknowns, by: Array) -> Unknowns:
        """A copy of the unknowns, with velocities multiplied by the factor `by` and accelerations by the square of `by`."""
        middle = None if u.middle is None else (u.middle[0], u.middle[1] * by, u.middle[2] * by**2)
        return u._replace(v=u.v * by, a=u.a * by**2, middle=middle)

    def torques_at(self, z: Array) -> Array:
        """Torques at the knot, followed by those at the midpoint."""
        u, torque = self.split(z), partial(drive_torque, self.problem.chain)
        if u.middle is None:
            return torque(u.q, u.v, u.a)
        return jax.vmap(torque)(*self.pairs(u)).reshape(-1)

    def pairs(self, u: Unknowns) -> list[Array]:
        """States and accelerations at the knot and at the midpoint, one row each."""
        return [jnp.stack(pair) for pair in zip((u.q, u.v, u.a), u.middle or (), strict=True)]

    def torques_jacobian(self, z: Array) -> Array:
        """The Jacobian of `torques_at` with respect to z."""
        u, n = self.split(z), self.n

        def jacobian(q, v, a):
            """Jacobians of the torques with respect to the unknowns of a knot or midpoint, and with respect to the ratio r."""
            by_q, by_v, by_a = jnp.split(torque_jacobian(self.problem.chain, q, v, a), 3, axis=1)
            by_ratio = -(by_v @ v + 2 * by_a @ a) / u.ratio
            own = [by_q, by_v / u.ratio, by_a / (self.problem.dt * u.ratio**2)]
            return jnp.concatenate(own, axis=1), by_ratio[:, None]

        def rows(own, by_ratio, before):
            after = self.unknowns - before - 3 * n - self.free_duration
            own = jnp.pad(own, ((0, 0), (before, after)))
            return jnp.concatenate([own, by_ratio], axis=1) if self.free_duration else own

        if u.middle is None:
            return rows(*jacobian(u.q, u.v, u.a), 0)
        own, by_ratio = jax.vmap(jacobian)(*self.pairs(u))
        return jnp.concatenate([rows(own[0], by_ratio[0], 0), rows(own[1], by_ratio[1], 3 * n)])

    def knot(self, k: Array, u: Unknowns, state: tuple[Array, Array], tau: Array, place: float) -> Knot:
        """The argument of costs and constraints at a knot (place = 0) or at the following midpoint (place = 0.5)."""
        before = tau if u.tau_before is None else u.tau_before
        h = u.ratio * self.problem.dt
        number = jax.lax.stop_gradient(k).astype(jnp.int32)
        return Knot(number, (k + place) * h, *state, tau, before, h)

    def stage(self, data: _Data, z: Array, tau: Array) -> Stage:
        """The contribution of a knot and of the following midpoint."""
        problem, k = self.problem, data.k
        u = self.split(z)
        knot = self.knot(k, u, (u.q, u.v), tau[: self.n], 0.0)
        knots = [(knot, data.weight)]
        if u.middle is not None:
            knots.append((self.knot(k, u, u.middle[:2], tau[self.n :], 0.5), data.middle_weight))
        rows = [path_rows(problem, self.torques, knot, self.bounded) for knot, _ in knots]
        equal, below = (jnp.concatenate(x) for x in zip(*rows, strict=True))
        equal, below = data.active[0] * equal, data.active[1] * below - (1 - data.active[1])
        if self.free_duration:
            equal = jnp.concatenate([equal, data.first * u.ratio * (u.v - problem.v0)])
        costs = [weight * knot.dt * running_cost(problem, knot) for knot, weight in knots]
        return Stage(jnp.stack(costs).sum(), *self.coupling(z, knot.tau), equal, below)

    def coupling(self, z: Array, tau: Array) -> tuple[Array, Array]:
        """The contributions of a knot to the defects of the step after it and of the step before it."""
        u, h = self.nominal(z), self.problem.dt
        if u.middle is None:
            left = [-u.q - h / 2 * u.v, -u.v - h / 2 * u.a]
            right = [u.q - h / 2 * u.v, u.v - h / 2 * u.a]
        else:
            qm, vm, am = u.middle
            left = [-u.q - h / 6 * (u.v + 4 * vm), -u.v - h / 6 * (u.a + 4 * am)]
            left += [qm - u.q / 2 - h / 8 * u.v, vm - u.v / 2 - h / 8 * u.a]
            right = [u.q - h / 6 * u.v, u.v - h / 6 * u.a, h / 8 * u.v - u.q / 2, h / 8 * u.a - u.v / 2]
        if u.tau_before is not None:
            left, right = [*left, -tau], [*right, u.tau_before]
        if self.free_duration:
            left, right = [*left, -STIFF * z[-1:]], [*right, STIFF * z[-1:]]
        return jnp.concatenate(left), jnp.concatenate(right)

    def last(self, z: Array, tau: Array) -> Part:
        """The contribution of the last knot."""
        problem, u = self.problem, self.split(z)
        knot = self.knot(jnp.asarray(1.0 * self.steps, z.dtype), u, (u.q, u.v), tau[: self.n], 0.0)
        equal, below = constraint_values(problem.terminal_constraints, problem.chain, knot)
        duration = self.problem.dt * self.steps * u.ratio
        cost = problem.duration_weight * duration if self.free_duration else jnp.zeros((), z.dtype)
        return Part(cost + terminal_cost(problem, knot), equal, below)

    def program(self, guess: Trajectory | None) -> tuple[StagedProgram, Array, Array, Array]:
        """The program, its initial guess and its bounds."""
        problem, count, n = self.problem, self.steps + 1, self.n
        dtype = problem.q0.dtype
        knots, duration = guessed_motion(problem, guess, jnp.linspace(0, 1, count, dtype=dtype))
        nominal = problem.dt * self.steps
        ratio = duration / nominal if self.free_duration else jnp.ones((), dtype)
        changes = lambda motion: motion._replace(v=motion.v * ratio, a=motion.a * (problem.dt * ratio**2))
        columns = [*changes(knots)]
        if self.middles:
            middles, _ = guessed_motion(problem, guess, (jnp.arange(count, dtype=dtype) + 0.5) / self.steps)
            columns += [*changes(middles)]
        if problem.has_torque_rate:
            tau = jax.vmap(partial(drive_torque, problem.chain))(*knots)
            columns.append(jnp.concatenate([resting_torque(problem)[None], tau[:-1]]))
        if self.free_duration:
            columns.append(jnp.full((count, 1), 1.0, dtype) * ratio)
        x = jnp.concatenate(columns, axis=1)
        q_low, q_high, v_low, v_high = state_bounds(problem, self.bounded)
        nothing = jnp.full(n, jnp.inf, dtype)
        low, high = [q_low, v_low, -nothing], [q_high, v_high, nothing]
        low, high = (low * 2, high * 2) if self.middles else (low, high)
        if problem.has_torque_rate:
            low, high = [*low, -nothing], [*high, nothing]
        limits = problem.duration_limits
        if limits is not None:
            low, high = [*low, limits[:1] / nominal], [*high, limits[1:] / nominal]
        lower, upper = (jnp.broadcast_to(jnp.concatenate(b), x.shape) for b in (low, high))
        start = problem.q0 if self.free_duration else jnp.concatenate([problem.q0, problem.v0])
        lower, upper = (b.at[0, : len(start)].set(start) for b in (lower, upper))
        if self.middles:  # no step follows the last knot
            lower, upper = (b.at[-1, 3 * n : 6 * n].set(x[-1, 3 * n : 6 * n]) for b in (lower, upper))
        if problem.has_torque_rate:
            lower, upper = (b.at[0, 3 * n : 4 * n].set(resting_torque(problem)) for b in (lower, upper))
        data = self.data(x)
        couplings = (4 if self.middles else 2) + problem.has_torque_rate
        equalities = data.active[0].shape[1] + self.free_duration * n
        sizes = (couplings * n + self.free_duration, equalities, data.active[1].shape[1])
        pinned = self.pinned(data)
        program = StagedProgram(data, self.inner, self.stage, self.last, self.unknowns, count, sizes, pinned=pinned)
        return program, x.reshape(-1), lower.reshape(-1), upper.reshape(-1)

    def data(self, x: Float[Array, "S n"]) -> _Data:
        """Weights of the integral, and masks of the enforced constraints.

        At the first knot, only constraints on torques are enforced. The midpoint after the last knot is masked out.
        """
        count, dtype = self.steps + 1, x.dtype
        ends = np.zeros(count)
        ends[[0, -1]] = 1
        if self.middles:
            weight, middle = (2 - ends) / 6, np.full(count, 4 / 6)
            middle[-1] = 0
        else:
            weight, middle = (2 - ends) / 2, np.zeros(count)
        active = rows_that_count(self.problem, self.torques, self.bounded)
        if self.middles:
            equal, below = (jnp.concatenate([x, jnp.ones_like(x).at[-1].set(0.0)], axis=1) for x in active)
            active = equal, below
        k = jnp.arange(count, dtype=dtype)
        first = jnp.zeros(count, dtype).at[0].set(1.0)
        return _Data(k, jnp.asarray(weight, dtype), jnp.asarray(middle, dtype), first, active)

    def pinned(self, data: _Data) -> Bool[Array, " r"]:
        """True for the inequalities of limits with nothing in between."""
        active = jnp.split(data.active[1], 1 + self.middles, axis=1)
        own, end = zip(*(pinned_rows(self.problem, self.torques, x, self.bounded) for x in active), strict=True)
        return jnp.concatenate([jnp.concatenate(own, axis=1).reshape(-1), end[0]])

    def solution(self, program: StagedProgram, result: InteriorPointResult) -> Solution:
        """Convert a result of the interior-point method to a `Solution`."""
        z = program.rows(result.x)
        u = jax.vmap(self.split)(z)
        torques = jax.vmap(self.torques_at)(z)
        tau = torques[:, : self.n]
        if self.middles:
            mean = (tau[:-1] + 4 * torques[:-1, self.n :] + tau[1:]) / 6
        else:
            mean = (tau[:-1] + tau[1:]) / 2
        t = self.problem.dt * self.steps * u.ratio[-1] * jnp.linspace(0, 1, self.steps + 1, dtype=z.dtype)
        left, right = jax.vmap(self.coupling)(z, tau)
        defects = left[:-1] + right[1:]
        (coupling, own, end), (below, below_end) = program.split(
            result.equality_multipliers, result.inequality_multipliers
        )
        multipliers = {
            "dynamics": coupling,
            "equality": own,
            "inequality": below,
            "terminal_equality": end,
            "terminal_inequality": below_end,
            "lower": program.rows(result.lower_multipliers),
            "upper": program.rows(result.upper_multipliers),
        }
        trajectory = Trajectory(t, u.q, u.v, mean)
        return transcribed_solution(self.problem, trajectory, result, jnp.abs(defects).max(), multipliers)
