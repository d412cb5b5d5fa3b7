"""Direct collocation: states and accelerations at the knots, coupled by the trapezoidal or the Hermite-Simpson rule.

The unknowns are q, v and a, and inverse dynamics determines the torques tau = ID(q, v, a) + passive forces, so the defects
are linear in the unknowns. With h = T / N and the rate f = (v, a) of the state x = (q, v), the rules (Hargraves & Paris 1987;
Betts 2010, ch. 4; Kelly 2017) are

    trapezoidal      x_{k+1} - x_k = h/2 (f_k + f_{k+1})
    Hermite-Simpson  x_{k+1} - x_k = h/6 (f_k + 4 f_m + f_{k+1}),  x_m = (x_k + x_{k+1}) / 2 + h/8 (f_k - f_{k+1})

A free duration T is an unknown at every knot, and equalities keep all copies equal. With r = T / (N dt), the unknown
velocities and accelerations are v r and a r^2, derivatives by the scaled time t / r, so the defects are linear for any r.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeGuard

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
from .primal_dual import (
    Function,
    InteriorPointResult,
    Program,
    StageFactors,
    convexifier,
    dense_pivot,
    differentiable,
    factor_stages,
    solve_program,
    solve_stages,
    with_values,
)
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
Scheme = Literal["trapezoidal", "hermite_simpson"]
FAR = 1e6  # substitute for an infinite torque limit [N m or N]
STIFF = 100.0  # weight of the differences between copies of the duration, which would otherwise absorb other violations


class Part(NamedTuple):
    """What a knot contributes to a program: a cost, equalities (= 0), inequalities (<= 0), and its shares of the couplings.

    Its share of the coupling with the next knot is `left`, of that with the previous knot `right`.
    """

    cost: Array
    equality: Array
    inequality: Array
    left: Array
    right: Array

    def lagrangian(self, equality: Array, inequality: Array, left: Array, right: Array) -> Array:
        """The contribution to the Lagrangian for these multipliers."""
        value = self.cost + left @ self.left + right @ self.right
        return value + equality @ self.equality + inequality @ self.inequality


def uncoupled(cost: Array, equality: Array, inequality: Array) -> Part:
    """A part without couplings."""
    none = jnp.zeros(0, cost.dtype)
    return Part(cost, equality, inequality, none, none)


class Inner(NamedTuple):
    """Expensive intermediate values u(z) of a knot, such as torques, and their Jacobian; `exact`: Hessians include u''."""

    value: Function
    jacobian: Function
    exact: bool


class KnotLinearisation(NamedTuple):
    """Values, the gradient by x, and derivatives by z: of each knot, and of the last knot's additional part (`end`)."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    knots: Part
    end: Part
    hessian: Float[Array, "S z z"]
    curvature: Float[Array, ""]
    free: Float[Array, " n"]


class KnotProgram(Program):
    """A program of S knots, whose vectors z_k are linear functions of the unknowns x (`seen`).

        minimise    sum_k cost_k(z_k)  +  the last knot's cost
        subject to  left_k(z_k) + right_{k+1}(z_{k+1}) = 0        k = 0 ... S - 2
                    equality_k(z_k) = 0,  inequality_k(z_k) <= 0  k = 0 ... S - 1
                    start z_0 = 0
                    equality(z) = 0,  inequality(z) <= 0          additional, last knot only

    The rows of c and g have this order.
    """

    data: PyTree
    start: Float[Array, "f z"]
    inner: Any = eqx.field(static=True)  # an `Inner`; like the two functions, None for given derivatives
    knot: Any = eqx.field(static=True)  # (data of a knot, z, u) -> `Part`
    last: Any = eqx.field(static=True)  # (z, u) of the last knot -> additional `Part`
    sizes: tuple[int, int, int] = eqx.field(static=True)  # couplings, equalities and inequalities per knot

    @abc.abstractmethod
    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S z"]:
        """z of every knot."""

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        z = self.seen(x)
        u = jax.vmap(self.inner.value)(z)
        return self._joined(jax.vmap(self.knot)(self.data, z, u), jax.vmap(self.last)(z[-1:], u[-1:]), z)

    def _joined(self, at: Part, end: Part, z: Array) -> tuple[Array, Array, Array]:
        """f, c and g, given the parts of all knots and, as one row, of the end; or their derivatives along z."""
        c = at.left[:-1] + at.right[1:], at.equality, self.start @ z[0], end.equality
        join = lambda *rows: jnp.concatenate([row.reshape(-1) for row in rows])
        return at.cost.sum() + end.cost.sum(), join(*c), join(at.inequality, end.inequality)

    def split_equalities(self, y: Array) -> tuple[Array, Array, Array, Array]:
        """The values y of all equalities: those of couplings, knots, the start and the end."""
        count, (m, p, _) = len(jax.tree.leaves(self.data)[0]), self.sizes
        coupled = (count - 1) * m
        coupling, own, start, end = jnp.split(y, (coupled, coupled + count * p, coupled + count * p + len(self.start)))
        return coupling.reshape(count - 1, m), own.reshape(count, p), start, end

    def split_inequalities(self, w: Array) -> tuple[Array, Array]:
        """The values w of all inequalities: those of knots and the end."""
        count, r = len(jax.tree.leaves(self.data)[0]), self.sizes[2]
        own, end = jnp.split(w, [count * r])
        return own.reshape(count, r), end

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> KnotLinearisation:
        """Linearise all knots in parallel, with Jacobians in forward mode and Hessians in forward-over-reverse mode."""
        z = self.seen(x)
        n, nothing = z.shape[1], jnp.zeros((1, 0), z.dtype)
        u, by_z = jax.vmap(self.inner.value)(z), jax.vmap(self.inner.jacobian)(z)
        joined = jnp.concatenate([z, u], axis=1)
        along = jnp.concatenate([jnp.broadcast_to(jnp.eye(n, dtype=z.dtype), (len(z), n, n)), by_z], axis=1)
        coupling, own, _, of_end = self.split_equalities(y)
        below, below_end = self.split_inequalities(w)
        none = jnp.zeros((1, coupling.shape[1]), z.dtype)
        multipliers = own, below, jnp.concatenate([coupling, none]), jnp.concatenate([none, coupling])
        values, knots, hessian, slopes = _derivatives(
            lambda data, e: self.knot(data, e[:n], e[n:]), self.data, joined, along, multipliers
        )
        of_end = of_end[None], below_end[None], nothing, nothing
        end_values, end, end_hessian, end_slopes = _derivatives(
            lambda _, e: self.last(e[:n], e[n:]), None, joined[-1:], along[-1:], of_end
        )
        hessian, slopes = hessian.at[-1].add(end_hessian[0]), slopes.at[-1].add(end_slopes[0])
        if self.inner.exact:
            curve = jax.jacfwd(lambda z, slope: self.inner.jacobian(z).T @ slope)
            hessian = hessian + jax.vmap(curve)(z, slopes[:, n:])
        zero, one = jnp.zeros_like(x), jnp.ones((), x.dtype)
        values = self._joined(values, end_values, z)
        at = KnotLinearisation(values, zero, knots, end, (hessian + hessian.mT) / 2, one, free)
        rest = jax.tree.map(jnp.zeros_like, values[1:])
        gradient = jax.linear_transpose(lambda dx: self.slopes(at, dx), x)((one, *rest))[0]
        return at._replace(gradient=gradient, curvature=self.largest(at))

    def largest(self, at: KnotLinearisation) -> Float[Array, ""]:
        """The largest absolute entry of W."""
        return jnp.abs(self._whole(at, at.hessian)).max()

    def curved(self, at: KnotLinearisation, dx: Array) -> Array:
        return self._curved(at, at.hessian, dx)

    def _curved(self, at: KnotLinearisation, blocks: Float[Array, "S z z"], dx: Array) -> Array:
        """The product of dx and the sum of S_k^T B_k S_k over the knots, where z_k = S_k x."""
        seen = lambda dx: self.seen(dx * at.free)
        bent = jnp.einsum("sij,sj->si", blocks, seen(dx))
        return jax.linear_transpose(seen, dx)(bent)[0]

    def slopes(self, at: KnotLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        z = self.seen(dx * at.free)
        along = lambda part, z: jax.tree.map(lambda rows: jnp.einsum("s...i,si->s...", rows, z), part)
        return self._joined(along(at.knots, z), along(at.end, z[-1:]), z)

    def blocks(self, at: KnotLinearisation, share: Array, weights: Array) -> Float[Array, "S z z"]:
        """The blocks of share W + G^T diag(weights) G."""
        own, end = self.split_inequalities(weights)
        gram = lambda rows, weights: jnp.einsum("sri,sr,srj->sij", rows, weights, rows)
        blocks = share * at.hessian + gram(at.knots.inequality, own)
        return blocks.at[-1].add(gram(at.end.inequality, end[None])[0])

    def _whole(self, at: KnotLinearisation, blocks: Float[Array, "S z z"]) -> Float[Array, "n n"]:
        """The sum of S_k^T B_k S_k over the knots."""
        return jax.vmap(lambda dx: self._curved(at, blocks, dx))(jnp.eye(at.free.size, dtype=blocks.dtype))

    def factor(self, at: KnotLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array) -> Any:
        matrix = self._whole(at, self.blocks(at, share, weights)) + jnp.diag(diagonal)
        equality = jax.vmap(lambda dx: self.slopes(at, dx)[1])(jnp.eye(len(diagonal), dtype=diagonal.dtype)).T
        return dense_pivot(matrix, equality, share * at.curvature, delta)


def _derivatives(part: Callable, data: PyTree, joined: Array, along: Array, multipliers: tuple) -> tuple:
    """Values, Jacobians, Hessians of the Lagrangian (without u'') by z, and its gradients by (z, u), one row per knot."""
    jacobian, values = jax.vmap(with_values(part, 1))(data, joined)
    jacobian = jax.tree.map(lambda rows: jnp.einsum("s...e,sen->s...n", rows, along), jacobian)
    lagrangian = lambda e, data, multipliers: part(data, e).lagrangian(*multipliers)
    bent = jax.jacfwd(lambda *x: (jax.grad(lagrangian)(*x),) * 2, has_aux=True)
    outer, slopes = jax.vmap(bent)(joined, data, multipliers)
    return values, jacobian, along.mT @ outer @ along, slopes


class StagedProgram(KnotProgram):
    """A program of knots with unknowns of their own, so that a Newton step takes two passes over them."""

    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S z"]:
        return x.reshape(len(jax.tree.leaves(self.data)[0]), -1)

    def largest(self, at: KnotLinearisation) -> Float[Array, ""]:
        free = self.seen(at.free)
        return jnp.abs(at.hessian * (free[:, :, None] * free[:, None])).max()

    def factor(
        self, at: KnotLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array
    ) -> StageFactors:
        """Factor the system in one pass over the stages; each stage's equalities are appended to the rows of its coupling."""
        free = self.seen(at.free)
        p = self.blocks(at, share, weights) * (free[:, :, None] * free[:, None]) + jax.vmap(jnp.diag)(
            self.seen(diagonal)
        )
        own, end = (rows * free[len(free) - len(rows) :, None] for rows in (at.knots.equality, at.end.equality))
        left, right = (rows * free[:, None] for rows in (at.knots.left, at.knots.right))
        left = jnp.concatenate([left[:-1], own[:-1]], axis=1)
        right = jnp.concatenate([right[1:], jnp.zeros_like(own[1:])], axis=1)
        rho = convexifier(at.curvature, jnp.abs(left).max(initial=0.0), delta)
        return factor_stages(p, left, right, jnp.concatenate([own[-1], end[0]]), rho, delta)

    def solve(self, factors: StageFactors, r1: Array, r2: Array) -> tuple[Array, Array]:
        """Solve in one forward and one backward pass."""
        m, z = self.sizes[0], self.seen(r1)
        coupling, own, _, end = self.split_equalities(r2)
        rows = jnp.concatenate([coupling, own[:-1]], axis=1)  # in the order used by `factor`
        z, y, y_end = solve_stages(factors, z, rows, jnp.concatenate([own[-1], end]))
        return z.reshape(-1), jnp.concatenate([y[:, :m].reshape(-1), y[:, m:].reshape(-1), y_end])


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


def is_bound(constraint: Constraint, bounded: tuple[type, ...]) -> TypeGuard[PositionLimits | VelocityLimits]:
    """True for a limit of a type in `bounded`, which bounds unknowns instead of adding inequalities."""
    return type(constraint) in bounded and constraint.kind == "inequality"


def state_bounds(problem: OptimalControlProblem, bounded: tuple[type, ...]) -> tuple[Array, Array, Array, Array]:
    """The lower and upper bounds of q, followed by those of v, from the limits whose types are in `bounded`."""
    q_low, v_low = jnp.full_like(problem.q0, -jnp.inf), jnp.full_like(problem.v0, -jnp.inf)
    q_high, v_high = -q_low, -v_low
    for limit in problem.constraints:
        if not is_bound(limit, bounded):
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
    goals: list[Any] = [c for c in problem.terminal_constraints if isinstance(c, StateConstraint) and c.q is not None]
    goals += [c for c in problem.terminal if isinstance(c, StateCost)]
    start, s = problem.q0[None], times[:, None]
    goal = reference_at(goals[0], "q", problem.q0.shape, jnp.asarray(problem.steps))[None] if goals else start
    way = goal - start
    q = start + way * (s**3 * (10 - 15 * s + 6 * s**2))
    v = way / duration * (30 * s**2 * (1 - s) ** 2)
    return Motion(q, v, way / duration**2 * (60 * s * (1 - s) * (1 - 2 * s))), duration


class Transcription:
    """What collocation and B-splines share: the contributions of a problem's knots to a program, and the solution."""

    program: Callable[[Trajectory | None], tuple[KnotProgram, Array, Array, Array]]
    torques_at: Callable[[Array], Array]
    torques_jacobian: Callable[[Array], Array]

    def __init__(
        self,
        problem: OptimalControlProblem,
        exact: bool,
        like: TorqueRows | None,
        bounded: tuple[type, ...] = (),
        grounded: bool = False,
    ):
        self.problem, self.n, self.steps = problem, problem.chain.nv, problem.steps
        self.torques, self.grounded = torque_rows(problem, like), grounded
        self.bounded, self.path = bounded, tuple(c for c in problem.constraints if not is_bound(c, bounded))
        self.inner = Inner(self.torques_at, self.torques_jacobian, exact)

    def rows(self, knot: Knot) -> tuple[Float[Array, " p"], Float[Array, " r"]]:
        """Equalities and inequalities at a knot, those of torques first, without the limits that bound unknowns."""
        equal, below = constraint_values(self.path, self.problem.chain, knot)
        return equal, jnp.concatenate([self.torques.inequalities(knot.tau), below])

    def enforced(self) -> tuple[Float[Array, "knots p"], Float[Array, "knots r"]]:
        """Masks of the enforced `rows`: at the first knot, only those that depend on torques or the ground."""
        equal, below = on_forces(self.problem, self.path, self.grounded)
        below = np.concatenate([np.ones(2 * len(self.torques.limited), bool), below])
        later = np.arange(self.steps + 1)[:, None] > 0
        equal, below = (jnp.asarray(later | x[None], self.problem.q0.dtype) for x in (equal, below))
        return equal, below

    def masked(self, active: tuple[Array, Array], equal: Array, below: Array) -> tuple[Array, Array]:
        """The values of `rows` that are enforced; in place of the others, 0 = 0 and -1 <= 0."""
        return active[0] * equal, active[1] * below - (1 - active[1])

    def pinned(self, active: Float[Array, "knots m"], copies: int = 1) -> Bool[Array, " inequalities"]:
        """True for the inequalities of a program that must be zero; each knot has `copies` of the inequalities in `rows`."""
        problem, zero = self.problem, jnp.zeros_like(self.problem.v0)
        ground = jnp.zeros(6, zero.dtype)
        knot = Knot(jnp.zeros((), jnp.int32), zero[0], problem.q0, problem.v0, zero, zero, problem.dt, ground)
        own, end = (pinned_values(x, problem.chain, knot) for x in (self.path, problem.terminal_constraints))
        own = jnp.tile(jnp.concatenate([self.torques.pinned(), own]), copies)
        return jnp.concatenate([(own[None] & (active > 0)).reshape(-1), end])

    def end(self, knot: Knot, duration: Array) -> Part:
        """The contribution of the last knot: terminal costs and constraints, and the cost of the duration."""
        problem = self.problem
        equal, below = constraint_values(problem.terminal_constraints, problem.chain, knot)
        return uncoupled(problem.duration_weight * duration + terminal_cost(problem, knot), equal, below)

    def solution(
        self,
        trajectory: Trajectory,
        program: KnotProgram,
        result: InteriorPointResult,
        defects: Array,
        own: tuple[str, str],
        others: dict[str, Array],
    ) -> Solution:
        """Convert a result of the interior-point method; `own` names the multipliers of couplings and of the start."""
        equal = program.split_equalities(result.equality_multipliers)
        below = program.split_inequalities(result.inequality_multipliers)
        names = own[0], "equality", own[1], "terminal_equality", "inequality", "terminal_inequality"
        multipliers = {name: x for name, x in zip(names, (*equal, *below), strict=True) if name} | others
        sound = status_of_problem(self.problem)
        status = jnp.where(sound == Status.CONVERGED, result.status, sound)
        defects = jax.lax.stop_gradient(jnp.abs(defects).max())
        residuals = Residuals(result.stationarity, defects, result.infeasibility, result.complementarity)
        return Solution(
            trajectory, result.cost, multipliers, status, residuals, result.iterations, dict(result.history)
        )


def solve_transcribed(
    form_of: Callable[[OptimalControlProblem, bool, TorqueRows | None], Any],
    problem: OptimalControlProblem,
    guess: Trajectory | None,
    hessian: HessianKind,
    **options: Any,
) -> Solution:
    """Solve the program of the transcription `form_of(problem, exact, like)`, which copies the torque rows of `like`."""
    if hessian not in ("exact", "gauss_newton"):
        raise TrajectoryError(f"the Hessian must be 'exact' or 'gauss_newton', not {hessian!r}")
    if problem.chain.topology.has_curved_joints:
        raise TrajectoryError(
            "collocation and inverse dynamics need positions that form a vector space, but this robot has spherical or free "
            "joints; use solve_by_shooting, or model the base by three prismatic and three revolute joints"
        )
    if problem.contacts is not None:
        raise TrajectoryError("collocation and inverse dynamics do not support contacts", "use solve_by_shooting")
    bare, guess = jax.lax.stop_gradient((problem, guess))
    form = form_of(bare, hessian == "exact", None)
    program, *posed = form.program(guess)
    result = solve_program(program, *posed, **options)
    differentiated = lambda problem: form_of(problem, True, form.torques)
    result = differentiable(lambda problem: differentiated(problem).program(guess), problem, result)
    return differentiated(problem).solved(program, result)


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
    weight: Array  # weights in the integral of the knot and the midpoint after it, in units of the time step
    middle_weight: Array
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
        TrajectoryError: the robot has spherical or free joints, the problem has contacts, `scheme` or `hessian` is unknown, or
            "hermite_simpson" is used with a torque-rate cost.
    """
    if scheme not in ("trapezoidal", "hermite_simpson"):
        raise TrajectoryError(f"the scheme must be 'trapezoidal' or 'hermite_simpson', not {scheme!r}")
    middles = scheme == "hermite_simpson"
    form_of = lambda problem, exact, like: _Form(problem, middles, exact, like)
    return solve_transcribed(
        form_of, problem, guess, hessian, tolerance=tolerance, max_iterations=max_iterations, barrier=barrier
    )


class _Form(Transcription):
    """The collocation of one problem: the layout of the unknowns, and the contributions of its knots to the program."""

    def __init__(self, problem: OptimalControlProblem, middles: bool, exact: bool, like: TorqueRows | None = None):
        if middles and problem.has_torque_rate:
            raise TrajectoryError("torque-rate costs require scheme='trapezoidal'")
        self.free_duration = problem.duration_limits is not None
        super().__init__(
            problem, exact, like, (PositionLimits,) if self.free_duration else (PositionLimits, VelocityLimits)
        )
        self.middles, self.rate = middles, problem.has_torque_rate
        self.unknowns = self.n * ((6 if middles else 3) + self.rate) + self.free_duration

    def split(self, z: Array) -> Unknowns:
        """The unknowns of a knot."""
        ratio = z[-1] if self.free_duration else jnp.ones((), z.dtype)
        u = self.nominal(z)
        middle = None if u.middle is None else (u.middle[0], u.middle[1] / ratio, u.middle[2] / ratio**2)
        return u._replace(v=u.v / ratio, a=u.a / ratio**2, middle=middle, ratio=ratio)

    def nominal(self, z: Array) -> Unknowns:
        """The unknowns of a knot, with velocities and accelerations in the problem's nominal time."""
        n, dt = self.n, self.problem.dt  # the unknowns a dt are comparable in size to v
        q, v, a = z[:n], z[n : 2 * n], z[2 * n : 3 * n] / dt
        more = z[3 * n : 6 * n]
        middle = (more[:n], more[n : 2 * n], more[2 * n :] / dt) if self.middles else None
        return Unknowns(q, v, a, middle, more[:n] if self.rate else None, jnp.ones((), z.dtype))

    def motions(self, u: Unknowns) -> list[Array]:
        """States and accelerations at the knot and, if any, at the midpoint, one row each."""
        return [jnp.stack(x) for x in zip((u.q, u.v, u.a), *([u.middle] if u.middle else []), strict=True)]

    def torques_at(self, z: Array) -> Array:
        """Torques at the knot, followed by those at the midpoint."""
        return jax.vmap(partial(drive_torque, self.problem.chain))(*self.motions(self.split(z))).reshape(-1)

    def torques_jacobian(self, z: Array) -> Array:
        """The Jacobian of `torques_at` with respect to z."""
        u, n, dt = self.split(z), self.n, self.problem.dt

        def jacobian(q, v, a):
            """Jacobians of the torques with respect to the unknowns of a knot or midpoint, and with respect to the ratio r."""
            by_q, by_v, by_a = jnp.split(torque_jacobian(self.problem.chain, q, v, a), 3, axis=1)
            own = jnp.concatenate([by_q, by_v / u.ratio, by_a / (dt * u.ratio**2)], axis=1)
            return own, -(by_v @ v + 2 * by_a @ a) / u.ratio

        own, by_ratio = jax.vmap(jacobian)(*self.motions(u))
        count = len(own)
        rows = jnp.zeros((count * n, self.unknowns), z.dtype)
        for i in range(count):
            rows = rows.at[i * n : (i + 1) * n, 3 * i * n : 3 * (i + 1) * n].set(own[i])
        return rows.at[:, -1].set(by_ratio.reshape(-1)) if self.free_duration else rows

    def knot(self, k: Array, u: Unknowns, state: tuple[Array, Array], tau: Array, place: float) -> Knot:
        """The argument of costs and constraints at a knot (place = 0) or at the following midpoint (place = 0.5)."""
        before = tau if u.tau_before is None else u.tau_before
        h = u.ratio * self.problem.dt
        number = jax.lax.stop_gradient(k).astype(jnp.int32)
        return Knot(number, (k + place) * h, *state, tau, before, h)

    def stage(self, data: _Data, z: Array, tau: Array) -> Part:
        """The contribution of a knot and of the following midpoint."""
        problem, k, u = self.problem, data.k, self.split(z)
        knots = [(self.knot(k, u, (u.q, u.v), tau[: self.n], 0.0), data.weight)]
        if u.middle is not None:
            knots.append((self.knot(k, u, u.middle[:2], tau[self.n :], 0.5), data.middle_weight))
        equal, below = (jnp.concatenate(x) for x in zip(*(self.rows(knot) for knot, _ in knots), strict=True))
        equal, below = self.masked(data.active, equal, below)
        if self.free_duration:
            start = jnp.where(k < 0.5, u.ratio * (u.v - problem.v0), 0.0)
            equal = jnp.concatenate([equal, start])
        costs = [weight * knot.dt * running_cost(problem, knot) for knot, weight in knots]
        return Part(jnp.stack(costs).sum(), equal, below, *self.coupling(z, tau[: self.n]))

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
        u = self.split(z)
        knot = self.knot(jnp.asarray(1.0 * self.steps, z.dtype), u, (u.q, u.v), tau[: self.n], 0.0)
        return self.end(knot, self.problem.dt * self.steps * u.ratio if self.free_duration else jnp.zeros_like(u.ratio))

    def program(self, guess: Trajectory | None) -> tuple[StagedProgram, Array, Array, Array]:
        """The program, its initial guess and its bounds."""
        problem, count, n, dtype = self.problem, self.steps + 1, self.n, self.problem.q0.dtype
        nominal, limits = problem.dt * self.steps, problem.duration_limits
        resting = resting_torque(problem) if self.rate else None
        free = jnp.full(n, jnp.inf, dtype)
        q_low, q_high, v_low, v_high = state_bounds(problem, self.bounded)
        columns, low, high = [], [], []  # of the unknowns, and of their bounds
        for place in (0, 0.5) if self.middles else (0,):
            times = (jnp.arange(count, dtype=dtype) + place) / self.steps
            motion, duration = guessed_motion(problem, guess, times)
            ratio = duration / nominal if self.free_duration else jnp.ones((), dtype)
            columns += [motion.q, motion.v * ratio, motion.a * (problem.dt * ratio**2)]
            low, high = [*low, q_low, v_low, -free], [*high, q_high, v_high, free]
        if resting is not None:
            tau = jax.vmap(partial(drive_torque, problem.chain))(*motion)
            columns.append(jnp.concatenate([resting[None], tau[:-1]]))
            low, high = [*low, -free], [*high, free]
        if limits is not None:
            columns.append(jnp.full((count, 1), 1.0, dtype) * ratio)
            low, high = [*low, limits[:1] / nominal], [*high, limits[1:] / nominal]
        x = jnp.concatenate(columns, axis=1)
        fixed = [(0, 0, problem.q0 if self.free_duration else jnp.concatenate([problem.q0, problem.v0]))]
        if self.middles:  # no step follows the last knot
            fixed.append((-1, 3 * n, x[-1, 3 * n : 6 * n]))
        if resting is not None:
            fixed.append((0, 3 * n, resting))
        bounds = [jnp.broadcast_to(jnp.concatenate(b), x.shape) for b in (low, high)]
        for row, entry, value in fixed:
            bounds = [b.at[row, entry : entry + len(value)].set(value) for b in bounds]
        data = self.data(dtype)
        couplings = (4 if self.middles else 2) + self.rate
        equalities = data.active[0].shape[1] + self.free_duration * n
        sizes = (couplings * n + self.free_duration, equalities, data.active[1].shape[1])
        program = StagedProgram(
            data,
            jnp.zeros((0, self.unknowns), dtype),
            self.inner,
            self.stage,
            self.last,
            sizes,
            pinned=self.pinned(data.active[1], 1 + self.middles),
        )
        lower, upper = (b.reshape(-1) for b in bounds)
        return program, x.reshape(-1), lower, upper

    def data(self, dtype: Any) -> _Data:
        """Weights of the integral and masks of the enforced constraints; the midpoint after the last knot is masked out."""
        count = self.steps + 1
        ends, middle = np.zeros(count), np.full(count, 4 / 6 if self.middles else 0.0)
        ends[[0, -1]], middle[-1] = 1, 0
        equal, below = self.enforced()
        if self.middles:
            equal, below = (jnp.concatenate([x, jnp.ones_like(x).at[-1].set(0.0)], axis=1) for x in (equal, below))
        weight = (2 - ends) / (6 if self.middles else 2)
        return _Data(
            jnp.arange(count, dtype=dtype),
            jnp.asarray(weight, dtype),
            jnp.asarray(middle, dtype),
            (equal, below),
        )

    def solved(self, program: StagedProgram, result: InteriorPointResult) -> Solution:
        """Convert a result of the interior-point method to a `Solution`."""
        z = program.seen(result.x)
        u, torques = jax.vmap(self.split)(z), jax.vmap(self.torques_at)(z)
        tau = torques[:, : self.n]
        mean = (tau[:-1] + 4 * torques[:-1, self.n :] + tau[1:]) / 6 if self.middles else (tau[:-1] + tau[1:]) / 2
        t = self.problem.dt * self.steps * u.ratio[-1] * jnp.linspace(0, 1, self.steps + 1, dtype=z.dtype)
        left, right = jax.vmap(self.coupling)(z, tau)
        bounds = {"lower": program.seen(result.lower_multipliers), "upper": program.seen(result.upper_multipliers)}
        trajectory = Trajectory(t, u.q, u.v, mean)
        return self.solution(trajectory, program, result, left[:-1] + right[1:], ("dynamics", ""), bounds)
