"""Direct collocation: states and accelerations at the knots, coupled by the trapezoidal or the Hermite-Simpson rule.

The unknowns are q, v and a, and inverse dynamics determines the torques tau = ID(q, v, a) + passive forces, so the defects
are linear in the unknowns. With h = T / N and the rate f = (v, a) of the state x = (q, v), the rules (Hargraves & Paris 1987;
Betts 2010, ch. 4; Kelly 2017) are

    trapezoidal      x_{k+1} - x_k = h/2 (f_k + f_{k+1})
    Hermite-Simpson  x_{k+1} - x_k = h/6 (f_k + 4 f_m + f_{k+1}),  x_m = (x_k + x_{k+1}) / 2 + h/8 (f_k - f_{k+1})

A free duration T is an unknown at every knot, and equalities keep all copies equal. With r = T / (N dt), the unknown
velocities and accelerations are v r and a r^2, derivatives by the scaled time t / r, so the defects are linear for any r.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._jax_compat import Tracer
from ..dynamics import inverse_dynamics, inverse_dynamics_derivatives, resistive_force
from ..errors import TrajectoryError
from ..model.chain import Chain
from .constraints import Constraint, PositionLimits, StateConstraint, VelocityLimits, coincide
from .costs import Knot, StateCost, reference_at
from .nonlinear_program import (
    Inner,
    Part,
    Program,
    StageFactors,
    along_rows,
    convexifier,
    factor_stages,
    solve_stages,
    with_slopes,
    with_values,
)
from .primal_dual import InteriorPointResult, differentiable, solve_program
from .problem import (
    OptimalControlProblem,
    Residuals,
    Solution,
    Status,
    Trajectory,
    constraint_values,
    on_forces,
    pinned_values,
    resting_torque,
    running_cost,
    status_of_problem,
    terminal_cost,
)

HessianKind = Literal["exact", "gauss_newton"]
FAR = 1e6  # substitute for an infinite torque limit [N m or N]


class TorqueRows(NamedTuple):
    """Limited torques, with their joints and limits; equal limits prescribe the torque, which is zero for a passive joint."""

    limited: tuple[int, ...]
    lower: Array
    upper: Array

    def inequalities(self, tau: Float[Array, " nv"]) -> Float[Array, " r"]:
        """The inequalities (lower - tau) / h <= 0 and (tau - upper) / h <= 0, where h is half the range, or 1 for no range."""
        half = jnp.where(coincide(self.lower, self.upper), 1.0, jnp.maximum((self.upper - self.lower) / 2, 1e-3))
        x = tau[jnp.asarray(self.limited, int)]
        return jnp.concatenate([(self.lower - x) / half, (x - self.upper) / half])

    def pinned(self) -> Bool[Array, " r"]:
        """True for the inequalities of prescribed torques."""
        return jnp.tile(coincide(self.lower, self.upper), 2)


def torque_rows(problem: OptimalControlProblem, like: TorqueRows | None = None) -> TorqueRows:
    """The torque limits as constraints: those of `like`; without it, all finite limits, or all limits if they are traced."""
    limits = problem.torque_limits
    if limits is None:
        none = jnp.zeros(0, problem.q0.dtype)
        return TorqueRows((), none, none)
    if like is not None:
        limited = like.limited
    elif isinstance(limits, Tracer):
        limited = tuple(range(len(limits)))
    else:
        limited = tuple(int(i) for i in np.flatnonzero(np.isfinite(np.asarray(limits)).any(1)))
    bounded = jnp.clip(limits[jnp.asarray(limited, int)], -FAR, FAR)
    return TorqueRows(limited, bounded[:, 0], bounded[:, 1])


def drive_torque(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]) -> Array:
    """The torque tau = ID(q, v, a) + resistive_force(q, v), with which `step` produces the acceleration a."""
    return inverse_dynamics(chain, q, v, a) + resistive_force(chain, q, v)


def torque_jacobian(
    chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], a: Float[Array, " nv"]
) -> Float[Array, "nv three_nv"]:
    """The Jacobian d tau / d (q, v, a) of `drive_torque`, by `inverse_dynamics_derivatives`."""
    rigid = inverse_dynamics_derivatives(chain, q, v, a)
    by_q, by_v = jax.jacfwd(lambda q, v: resistive_force(chain, q, v), (0, 1))(q, v)
    return jnp.concatenate([rigid.q + by_q, rigid.qd + by_v, rigid.qdd], axis=1)


def check_transcribable(problem: OptimalControlProblem) -> None:
    """Raise TrajectoryError if the robot has quaternion joints."""
    if problem.chain.topology.has_curved_joints:
        raise TrajectoryError(
            "collocation and inverse dynamics need positions that form a vector space, but this robot has spherical or free "
            "joints; use solve_by_shooting, or model the base by three prismatic and three revolute joints"
        )


def check_hessian(hessian: str) -> bool:
    """True for the exact Hessian; TrajectoryError for an unknown name."""
    if hessian not in ("exact", "gauss_newton"):
        raise TrajectoryError(f"the Hessian must be 'exact' or 'gauss_newton', not {hessian!r}")
    return hessian == "exact"


def path_rows(
    problem: OptimalControlProblem, rows: TorqueRows, knot: Knot, bounded: tuple[type, ...] = ()
) -> tuple[Float[Array, " p"], Float[Array, " r"]]:
    """Equalities and inequalities at a knot, those of torques first, without the constraints that `state_bounds` handles."""
    equal, below = constraint_values(_path_constraints(problem, bounded), problem.chain, knot)
    return equal, jnp.concatenate([rows.inequalities(knot.tau), below])


def pinned_rows(
    problem: OptimalControlProblem, rows: TorqueRows, active: Float[Array, "knots r"], bounded: tuple[type, ...] = ()
) -> tuple[Bool[Array, "knots r"], Bool[Array, " end"]]:
    """True for the inequalities of `path_rows` that are `active`, and of the end, that must be zero."""
    knot = _first_knot(problem)
    own = pinned_values(_path_constraints(problem, bounded), problem.chain, knot)
    every = jnp.concatenate([rows.pinned(), own])
    return every[None] & (active > 0), pinned_values(problem.terminal_constraints, problem.chain, knot)


def _path_constraints(problem: OptimalControlProblem, bounded: tuple[type, ...]) -> tuple[Constraint, ...]:
    return tuple(c for c in problem.constraints if not _is_bound(c, bounded))


def _first_knot(problem: OptimalControlProblem) -> Knot:
    """A knot at the initial state, without torques."""
    zero = jnp.zeros_like(problem.v0)
    ground = jnp.zeros(6, zero.dtype)
    return Knot(jnp.zeros((), jnp.int32), zero[0], problem.q0, problem.v0, zero, zero, problem.dt, ground)


def _is_bound(constraint, bounded: tuple[type, ...]) -> bool:
    return type(constraint) in bounded and constraint.kind == "inequality"


def state_bounds(problem: OptimalControlProblem, bounded: tuple[type, ...]) -> tuple[Array, Array, Array, Array]:
    """The lower and upper bounds of q, followed by those of v, from the limits whose types are in `bounded`."""
    q_low, v_low = jnp.full_like(problem.q0, -jnp.inf), jnp.full_like(problem.v0, -jnp.inf)
    q_high, v_high = -q_low, -v_low
    for limit in problem.constraints:
        if not isinstance(limit, PositionLimits | VelocityLimits) or not _is_bound(limit, bounded):
            continue
        entries = slice(None) if limit.entries is None else jnp.asarray(limit.entries)
        if isinstance(limit, PositionLimits):
            q_low, q_high = q_low.at[entries].max(limit.lower), q_high.at[entries].min(limit.upper)
        else:
            v_low, v_high = v_low.at[entries].max(-limit.limit), v_high.at[entries].min(limit.limit)
    return q_low, q_high, v_low, v_high


class Motion(NamedTuple):
    """Positions, velocities and accelerations, one row per time."""

    q: Float[Array, "times nv"]
    v: Float[Array, "times nv"]
    a: Float[Array, "times nv"]


def guessed_motion(
    problem: OptimalControlProblem, guess: Trajectory | None, times: Float[Array, " times"]
) -> tuple[Motion, Float[Array, ""]]:
    """The interpolated guess at fractions `times` of its duration, or a quintic motion from q0 to the first goal, if any."""
    duration = problem.dt * problem.steps
    if problem.duration_limits is not None:
        duration = jnp.clip(duration, problem.duration_limits[0], problem.duration_limits[1])
    if guess is not None:
        duration = guess.t[-1] - guess.t[0]
        at = guess.t[0] + times * duration
        between = lambda rows: jax.vmap(lambda x: jnp.interp(at, guess.t, x), 1, 1)(rows)
        slopes = jnp.diff(guess.v, axis=0) / jnp.diff(guess.t)[:, None]
        slopes = jnp.concatenate([slopes, slopes[-1:]])
        return Motion(between(guess.q), between(guess.v), between(slopes)), duration
    goal = _goal(problem)
    s = times[:, None]
    start = problem.q0[None]
    way = (start if goal is None else goal[None]) - start
    q = start + way * (s**3 * (10 - 15 * s + 6 * s**2))
    v = way / duration * (30 * s**2 * (1 - s) ** 2)
    return Motion(q, v, way / duration**2 * (60 * s * (1 - s) * (1 - 2 * s))), duration


def _goal(problem: OptimalControlProblem) -> Float[Array, " nq"] | None:
    goals = [c for c in problem.terminal_constraints if isinstance(c, StateConstraint) and c.q is not None]
    goals += [c for c in problem.terminal if isinstance(c, StateCost)]
    if goals:
        return reference_at(goals[0], "q", problem.q0.shape, jnp.asarray(problem.steps))
    return None


def rows_that_count(
    problem: OptimalControlProblem, rows: TorqueRows, bounded: tuple[type, ...] = (), grounded: bool = False
) -> tuple[Float[Array, "knots p"], Float[Array, "knots r"]]:
    """Masks of the enforced rows of `path_rows`: at the first knot, only those that depend on torques or the ground."""
    equal, below = on_forces(problem, _path_constraints(problem, bounded), grounded)
    below = np.concatenate([np.ones(2 * len(rows.limited), bool), below])
    later = np.arange(problem.steps + 1)[:, None] > 0
    equal, below = (jnp.asarray(later | x[None], problem.q0.dtype) for x in (equal, below))
    return equal, below


def transcribed_solution(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    result: InteriorPointResult,
    defects: Array,
    multipliers: dict[str, Array],
) -> Solution:
    """Combine a trajectory and a result of the interior-point method into a `Solution`."""
    beforehand = status_of_problem(problem)
    status = jnp.where(beforehand == Status.CONVERGED, result.status, beforehand)
    history = dict(result.history)
    defects = jax.lax.stop_gradient(defects)
    residuals = Residuals(result.stationarity, defects, result.infeasibility, result.complementarity)
    return Solution(trajectory, result.cost, multipliers, status, residuals, result.iterations, history)


def solve_transcribed(
    form_of: Callable[[OptimalControlProblem, bool, TorqueRows | None], Any],
    problem: OptimalControlProblem,
    guess: Trajectory | None,
    hessian: HessianKind,
    tolerance: float | Array | None,
    max_iterations: int,
    barrier: float | Array,
) -> Solution:
    """Solve the program of the transcription `form_of(problem, exact, like)`, which copies the torque rows of `like`."""
    bare, guess = jax.lax.stop_gradient((problem, guess))
    form = form_of(bare, check_hessian(hessian), None)
    program, x, lower, upper = form.program(guess)
    result = solve_program(
        program, x, lower, upper, tolerance=tolerance, max_iterations=max_iterations, barrier=barrier
    )
    differentiated = lambda problem: form_of(problem, True, form.torques)
    result = differentiable(lambda problem: differentiated(problem).program(guess), problem, result)
    return differentiated(problem).solution(program, result)


class Stage(NamedTuple):
    """A stage's cost, shares of the couplings with the next and the previous stage, equalities and inequalities."""

    cost: Array
    left: Array
    right: Array
    equality: Array
    inequality: Array


class StagedLinearisation(NamedTuple):
    """Values of a staged program at one point, and derivatives of each stage."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, "S n"]
    left: Float[Array, "N m n"]
    right: Float[Array, "N m n"]
    equality: Float[Array, "S p n"]
    inequality: Float[Array, "S r n"]
    last_equality: Float[Array, "pl n"]
    last_inequality: Float[Array, "rl n"]
    hessian: Float[Array, "S n n"]


class StagedProgram(Program):
    """A program of stages with n unknowns each, coupled only to the next, so that a Newton step takes two passes over them.

        minimise    sum_k cost_k(z_k)  +  the last stage's cost
        subject to  left_k(z_k) + right_{k+1}(z_{k+1}) = 0       k = 0 ... N - 1
                    equality_k(z_k) = 0,  inequality_k(z_k) <= 0 k = 0 ... N
                    equality(z_N) = 0,  inequality(z_N) <= 0     additional, last stage only

    The Hessian of the Lagrangian is block diagonal. Couplings come first among the equalities, the last stage's rows last.
    """

    data: PyTree
    inner: Inner = eqx.field(static=True)  # expensive intermediate values u of a stage, for example torques
    stage: Callable[[Any, Array, Array], Stage] = eqx.field(static=True)  # (data of a stage, z, u) -> stage
    last: Callable[[Array, Array], Part] = eqx.field(static=True)  # (z, u) of the last stage -> additional part
    unknowns: int = eqx.field(static=True)
    stages: int = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)  # couplings, equalities and inequalities per stage

    def rows(self, x: Array) -> Float[Array, "S n"]:
        """One row of unknowns per stage."""
        return x.reshape(self.stages, self.unknowns)

    def evaluate(self, x: Float[Array, " total"]) -> tuple[Array, Array, Array]:
        z = self.rows(x)
        u = jax.vmap(self.inner.value)(z)
        return self._sums(jax.vmap(self.stage)(self.data, z, u), self.last(z[-1], u[-1]))

    def _sums(self, at: Stage, end: Part) -> tuple[Array, Array, Array]:
        f = at.cost.sum() + end.cost
        c = [(at.left[:-1] + at.right[1:]).reshape(-1), at.equality.reshape(-1), end.equality]
        return f, jnp.concatenate(c), jnp.concatenate([at.inequality.reshape(-1), end.inequality])

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> StagedLinearisation:
        """Linearise all stages in parallel, with Jacobians in forward mode and Hessians in forward-over-reverse mode."""
        z, free, n = self.rows(x), self.rows(free), self.unknowns
        joined, along = self.inner.joined(z)
        along = along * free[:, None]
        stage, last = lambda data, e: self.stage(data, e[:n], e[n:]), lambda e: self.last(e[:n], e[n:])
        jacobian, at = jax.vmap(with_values(stage, 1))(self.data, joined)
        jacobian = along_rows(jacobian, along)
        end, at_end = with_values(last)(joined[-1])
        end = jax.tree.map(lambda rows: rows @ along[-1], end)

        (coupling, own, own_last), (inequality, inequality_last) = self.split(y, w)
        nothing = jnp.zeros((1, coupling.shape[1]), z.dtype)
        of_left, of_right = jnp.concatenate([coupling, nothing]), jnp.concatenate([nothing, coupling])

        def lagrangian(e, data, left, right, equality, inequality):
            at = stage(data, e)
            value = at.cost + left @ at.left + right @ at.right
            return value + equality @ at.equality + inequality @ at.inequality

        outer, slopes = jax.vmap(with_slopes(lagrangian))(joined, self.data, of_left, of_right, own, inequality)
        of_end = with_slopes(lambda e: last(e).lagrangian(own_last, inequality_last))
        outer_end, slopes_end = of_end(joined[-1])
        outer, slopes = outer.at[-1].add(outer_end), slopes.at[-1].add(slopes_end)
        hessian = along.mT @ outer @ along
        if self.inner.exact:
            hessian = hessian + self.inner.curvature(z, slopes) * (free[:, :, None] * free[:, None])
        return StagedLinearisation(
            self._sums(at, at_end),
            jacobian.cost.at[-1].add(end.cost),
            *(jacobian.left[:-1], jacobian.right[1:], jacobian.equality, jacobian.inequality),
            *(end.equality, end.inequality, (hessian + hessian.mT) / 2),
        )

    def split(self, y: Array, w: Array) -> tuple[list[Array], list[Array]]:
        """Split y into those of couplings, stages and the last stage's rows, and w into those of stages and the last stage."""
        count, (m, p, r) = self.stages, self.sizes
        coupling, own, end = jnp.split(y, [(count - 1) * m, (count - 1) * m + count * p])
        inequality, inequality_end = jnp.split(w, [count * r])
        of_equalities = [coupling.reshape(count - 1, m), own.reshape(count, p), end]
        return of_equalities, [inequality.reshape(count, r), inequality_end]

    def gradient(self, at: StagedLinearisation) -> Float[Array, " total"]:
        return at.gradient.reshape(-1)

    def times(self, at: StagedLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        z = self.rows(dx)
        product = lambda matrices, vectors: jnp.einsum("sij,sj->si", matrices, vectors).reshape(-1)
        coupling = product(at.left, z[:-1]) + product(at.right, z[1:])
        c = jnp.concatenate([coupling, product(at.equality, z), at.last_equality @ z[-1]])
        return product(at.hessian, z), c, jnp.concatenate([product(at.inequality, z), at.last_inequality @ z[-1]])

    def transposed(self, at: StagedLinearisation, y: Array, w: Array) -> Array:
        (coupling, own, end), (inequality, inequality_end) = self.split(y, w)
        product = lambda matrices, vectors: jnp.einsum("sij,si->sj", matrices, vectors)
        z = product(at.equality, own) + product(at.inequality, inequality)
        z = z.at[:-1].add(product(at.left, coupling)).at[1:].add(product(at.right, coupling))
        z = z.at[-1].add(at.last_equality.T @ end + at.last_inequality.T @ inequality_end)
        return z.reshape(-1)

    def curvature(self, at: StagedLinearisation) -> Float[Array, ""]:
        return jnp.abs(at.hessian).max()

    def factor(
        self, at: StagedLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array
    ) -> StageFactors:
        """Factor the system in one pass over the stages; each stage's equalities are appended to the rows of its coupling."""
        inequality, inequality_end = jnp.split(weights, [self.stages * self.sizes[2]])
        inequality = inequality.reshape(self.stages, self.sizes[2])
        p = share * at.hessian + jax.vmap(jnp.diag)(self.rows(diagonal))
        p = p + jnp.einsum("ski,sk,skj->sij", at.inequality, inequality, at.inequality)
        p = p.at[-1].add(at.last_inequality.T @ (inequality_end[:, None] * at.last_inequality))
        left = jnp.concatenate([at.left, at.equality[:-1]], axis=1)
        right = jnp.concatenate([at.right, jnp.zeros_like(at.equality[1:])], axis=1)
        last = jnp.concatenate([at.equality[-1], at.last_equality])
        largest = jnp.abs(left).max(initial=0.0)
        return factor_stages(p, left, right, last, convexifier(self.curvature(at), largest, delta), delta)

    def solve(self, factors: StageFactors, r1: Array, r2: Array) -> tuple[Array, Array]:
        """Solve in one forward and one backward pass."""
        count, (m, p, _) = self.stages, self.sizes
        (coupling, own, end), _ = self.split(r2, jnp.zeros(count * self.sizes[2], r2.dtype))
        rows = jnp.concatenate([coupling, own[:-1]], axis=1)  # in the order used by `factor`
        z, y, y_end = solve_stages(factors, self.rows(r1), rows, jnp.concatenate([own[-1], end]))
        own = jnp.concatenate([y[:, m:].reshape(-1), y_end[:p]])
        return z.reshape(-1), jnp.concatenate([y[:, :m].reshape(-1), own, y_end[p:]])


Scheme = Literal["trapezoidal", "hermite_simpson"]


STIFF = 100.0  # weight of the differences between copies of the duration, which would otherwise absorb other violations


class Unknowns(NamedTuple):
    """State and acceleration at a knot and the midpoint after it, the torques before it, and duration / (N dt)."""

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
    "hermite_simpson", also at the midpoints. Equal limits of a torque prescribe it, for example zero for a passive joint. The
    error is second-order in the time step with "trapezoidal" and fourth-order with "hermite_simpson", whose iterations are 3
    to 5 times as expensive. The problem's `method` is ignored.

    Args:
        guess: initial motion, which need not satisfy the dynamics; None: a quintic motion from rest at q0 to rest at the goal
            of a terminal `StateConstraint` or `StateCost`, or, without such a goal, the robot at rest at q0.
        hessian: "gauss_newton" omits the second derivatives of inverse dynamics; it compiles and runs several times faster,
            but needs more iterations if torque limits are active.
        tolerance: tolerance for the residuals, scaled as in `interior_point`; None: 1e-8, or 1e-4 in float32.
        barrier: initial barrier parameter mu; use a small value, for example 1e-4, if the guess is near the solution.

    Returns:
        The solution, with torques averaged over each step, once differentiable with respect to the problem's leaves. The rows
        of torque limits come first in the "inequality" multipliers; those of equal limits are opposite, and their difference
        (upper minus lower) is that of the equality. "lower" and "upper" belong to position and velocity limits. If the duration
        is free, defects and unknowns are in scaled time, and velocity limits are among the inequalities.

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
        """Weights of the integral and masks of the enforced constraints; the midpoint after the last knot is masked out."""
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
