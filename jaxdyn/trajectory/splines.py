"""Optimal control with B-splines: control points of q are the unknowns, and inverse dynamics determines the torques.

    q(t) = sum_i P_i B_i(t / T),  v = q',  a = q'',  tau = ID(q, v, a) + passive forces

Every such motion satisfies the dynamics, so there are no defects. Costs, constraints and limits are evaluated at the problem's
N + 1 knots (Bobrow, Martin, Sohl, Wang, Park & Kim 2001). The duration T may be free. The unknowns x are the control points P
and T. Knot k depends on z_k = (q, q', q'', d3q, T) = S_k x, where primes (and d3q, the third) are derivatives by t / T;
gradients and Hessians are computed with respect to z_k and mapped to x by S_k^T.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import interpolate

from .._jax_compat import Tracer
from ..dynamics.wrenches import ground_reaction
from ..errors import TrajectoryError
from .collocation import (
    HessianKind,
    KnotProgram,
    Part,
    TorqueRows,
    Transcription,
    drive_torque,
    guessed_motion,
    solve_transcribed,
    torque_jacobian,
    uncoupled,
)
from .constraints import coincide
from .costs import Knot
from .primal_dual import InteriorPointResult
from .problem import OptimalControlProblem, Solution, Trajectory, knot_dependence, resting_torque, running_cost


class SplineProgram(KnotProgram):
    """A program of knots that see control points through the splines, and the duration; solved with dense matrices."""

    basis: Float[Array, "d S k"]  # values of the splines and of their derivatives at the knots

    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S z"]:
        count = self.basis.shape[1]
        parts = jnp.einsum("dsk,kj->sdj", self.basis, x[:-1].reshape(self.basis.shape[2], -1))
        return jnp.concatenate([parts.reshape(count, -1), jnp.broadcast_to(x[-1:], (count, 1))], axis=1)


def spline_basis(intervals: int, degree: int, times: Float[np.ndarray, " times"]) -> Float[np.ndarray, "4 times k"]:
    """Values of all B-splines with uniform, clamped knots on [0, 1], and of their first three derivatives."""
    knots = np.concatenate([np.zeros(degree), np.linspace(0, 1, intervals + 1), np.ones(degree)])
    spline = interpolate.BSpline(knots, np.eye(intervals + degree), degree)
    return np.stack([spline.derivative(d)(times) if d else spline(times) for d in range(4)])


class _Data(NamedTuple):
    """The data of a knot."""

    k: Array
    weight: Array  # weight of the knot in the integral, in units of the time step
    active: tuple[Array, Array]  # 1 for enforced constraints, else 0


def solve_by_inverse_dynamics(
    problem: OptimalControlProblem,
    guess: Trajectory | None = None,
    *,
    intervals: int | None = None,
    degree: int = 5,
    hessian: HessianKind = "gauss_newton",
    tolerance: float | None = None,
    max_iterations: int = 200,
    barrier: float | Float[Array, ""] = 0.1,
) -> Solution:
    """Find the B-spline motion of minimum cost, with torques from inverse dynamics, by the interior-point method.

    Costs are integrated by the trapezoidal rule over the problem's knots. Constraints and limits are imposed at the knots, and
    are satisfied only approximately in between. With k = intervals + degree control points, the linear algebra of an iteration
    costs O((nv k)^3), independent of the number of steps. Equal lower and upper torque limits prescribe a torque at the knots,
    which needs as many control points as there are prescribed torques; in general, no spline keeps a torque at zero at all
    times. The problem's `method` is ignored. Arguments not listed are those of `solve_by_collocation`.

    Args:
        intervals: number of intervals between the spline's knots; None: a quarter of the steps, clipped to the range from 4
            to 30.

    Returns:
        The solution, with torques averaged over each step, once differentiable with respect to the problem's leaves. The
        residual `dynamics` is the error of the initial velocity, whose multipliers are "start".

    Raises:
        TrajectoryError: the robot has spherical or free joints; the problem has contacts; the spline has too few control points
            for prescribed torques (if the limits are traced, the status is INFEASIBLE instead); `intervals` is less than 1;
            `degree` is less than 3; or `hessian` is unknown.
    """
    intervals = min(max(4, problem.steps // 4), 30) if intervals is None else intervals
    if intervals < 1 or degree < 3:
        raise TrajectoryError(f"intervals={intervals} must be at least 1, and degree={degree} at least 3")
    _check_prescribed(problem, intervals + degree)
    form_of = lambda problem, exact, like: _Form(problem, intervals, degree, exact, like)
    return solve_transcribed(
        form_of, problem, guess, hessian, tolerance=tolerance, max_iterations=max_iterations, barrier=barrier
    )


def _check_prescribed(problem: OptimalControlProblem, count: int) -> None:
    """Raise TrajectoryError if a spline with `count` control points cannot have the torques that equal limits prescribe."""
    limits = problem.torque_limits
    if limits is None or isinstance(limits, Tracer):
        return
    with jax.ensure_compile_time_eval():  # the caller may be traced, while these limits are constants
        fixed = np.flatnonzero(coincide(limits[:, 0], limits[:, 1]))
    nv, knots = problem.chain.nv, problem.steps + 1
    if len(fixed) * knots > nv * (count - 2):
        raise TrajectoryError(
            f"the torques in rows {fixed.tolist()} of torque_limits are prescribed (equal limits) at {knots} knots, but the "
            f"spline has only {count} control points per joint",
            "use solve_by_collocation or solve_by_shooting, or pass more intervals, for example {intervals}",
            intervals="problem.steps",
        )


class _Form(Transcription):
    """The spline program of one problem: the layout of the unknowns, and the contributions of its knots to the program."""

    def __init__(
        self, problem: OptimalControlProblem, intervals: int, degree: int, exact: bool, like: TorqueRows | None = None
    ):
        constraints = (*problem.constraints, *problem.terminal_constraints)
        grounded = any(knot_dependence(problem, c, True).ground.any() for c in constraints)
        super().__init__(problem, exact, like, grounded=grounded)
        self.orders = 4 if problem.has_torque_rate else 3
        self.basis = spline_basis(intervals, degree, np.linspace(0, 1, problem.steps + 1))[: self.orders]

    def motion(self, z: Array) -> list[Array]:
        """q and its derivatives with respect to time."""
        return [part / z[-1] ** order for order, part in enumerate(jnp.split(z[:-1], self.orders))]

    def torques_at(self, z: Array) -> Array:
        """The torques and, if a cost or constraint needs them, their rates and the ground wrench."""
        torque = partial(drive_torque, self.problem.chain)
        q, v, a, *jerk = self.motion(z)
        parts = jax.jvp(torque, (q, v, a), (v, a, *jerk)) if jerk else (torque(q, v, a),)
        ground = (ground_reaction(self.problem.chain, q, v, a),) if self.grounded else ()
        return jnp.concatenate([*parts, *ground])

    def torques_jacobian(self, z: Array) -> Array:
        """The Jacobian of `torques_at` with respect to z; the rows of the torques are analytic unless rates are needed."""
        if self.orders > 3:
            return jax.jacfwd(self.torques_at)(z)
        rates = jax.jacfwd(lambda z: jnp.concatenate(self.motion(z)))(z)
        rows = torque_jacobian(self.problem.chain, *self.motion(z)) @ rates
        if not self.grounded:
            return rows
        of_ground = jax.jacfwd(lambda z: ground_reaction(self.problem.chain, *self.motion(z)))(z)
        return jnp.concatenate([rows, of_ground])

    def knot_of(self, k: Array, z: Array, u: Array) -> Knot:
        """The argument of costs and constraints."""
        n, h = self.n, z[-1] / self.steps
        q, v, *_ = self.motion(z)
        tau = before = u[:n]
        if self.orders > 3:
            before = jnp.where(k < 0.5, resting_torque(self.problem), tau - h * u[n : 2 * n])
        ground = u[-6:] if self.grounded else None
        return Knot(jax.lax.stop_gradient(k).astype(jnp.int32), k * h, q, v, tau, before, h, ground)

    def at_knot(self, data: _Data, z: Array, u: Array) -> Part:
        """The contribution of a knot to the integral, and its constraints."""
        knot = self.knot_of(data.k, z, u)
        equal, below = self.rows(knot)
        cost = data.weight * knot.dt * running_cost(self.problem, knot)
        return uncoupled(cost, *self.masked(data.active, equal, below))

    def at_end(self, z: Array, u: Array) -> Part:
        """The terminal cost and constraints."""
        return self.end(self.knot_of(jnp.asarray(1.0 * self.steps, z.dtype), z, u), z[-1])

    def program(self, guess: Trajectory | None) -> tuple[SplineProgram, Array, Array, Array]:
        """The program, its initial guess and its bounds."""
        problem, count, n, dtype = self.problem, self.steps + 1, self.n, self.problem.q0.dtype
        motion, duration = guessed_motion(problem, guess, jnp.linspace(0, 1, count, dtype=dtype))
        # least-squares fit to the positions of the guess and, with weight 0.1, to its velocities times the duration
        points = self.basis.shape[2]
        rows = np.concatenate([self.basis[0], 0.1 * self.basis[1], 1e-4 * np.eye(points)])
        wanted = jnp.concatenate([motion.q, 0.1 * duration * motion.v, jnp.zeros((points, n), dtype)])
        control = jnp.asarray(np.linalg.pinv(rows), dtype) @ wanted
        x = jnp.concatenate([control.at[0].set(problem.q0).reshape(-1), duration[None]])
        limits = jnp.stack([duration, duration]) if problem.duration_limits is None else problem.duration_limits
        lower, upper = (
            jnp.full_like(x, far).at[:n].set(problem.q0).at[-1].set(limit)
            for far, limit in zip((-jnp.inf, jnp.inf), limits, strict=True)
        )
        ends = np.ones(count)
        ends[[0, -1]] = 0.5
        active = self.enforced()
        # the initial velocity: q' = v0 T
        z = jnp.eye(self.orders * n + 1, dtype=dtype)
        program = SplineProgram(
            _Data(jnp.arange(count, dtype=dtype), jnp.asarray(ends, dtype), active),
            z[n : 2 * n].at[:, -1].set(-problem.v0),
            self.inner,
            self.at_knot,
            self.at_end,
            (0, active[0].shape[1], active[1].shape[1]),
            jnp.asarray(self.basis, dtype),
            pinned=self.pinned(active[1]),
        )
        return program, x, lower, upper

    def solved(self, program: SplineProgram, result: InteriorPointResult) -> Solution:
        """Convert a result of the interior-point method to a `Solution`."""
        z = program.seen(result.x)
        knots = jax.vmap(self.knot_of)(program.data.k, z, jax.vmap(self.torques_at)(z))
        trajectory = Trajectory(knots.t, knots.q, knots.v, (knots.tau[:-1] + knots.tau[1:]) / 2)
        return self.solution(trajectory, program, result, knots.v[0] - self.problem.v0, ("", "start"), {})
