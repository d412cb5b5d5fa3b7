"""Parts shared by collocation and inverse dynamics: torques, constraints at a knot, initial guesses, and solutions."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._jax_compat import Tracer
from ..dynamics import inverse_dynamics, inverse_dynamics_derivatives, resistive_force
from ..errors import TrajectoryError
from ..model.chain import Chain
from .constraints import Constraint, PositionLimits, StateConstraint, VelocityLimits
from .costs import StateCost
from .interior_point import InteriorPointResult, differentiable, solve_program
from .knot import Knot, coincide, reference_at
from .problem import (
    OptimalControlProblem,
    constraint_values,
    on_forces,
    pinned_values,
    status_of_problem,
)
from .solution import Residuals, Solution, Status, Trajectory

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
    """Raise an error if the robot is not supported.

    Raises:
        TrajectoryError: the robot has quaternion joints.
    """
    if problem.chain.topology.quaternion_joints:
        raise TrajectoryError(
            "collocation and inverse dynamics need positions that form a vector space, but this robot has spherical or free "
            "joints; use solve_by_shooting, or model the base by three prismatic and three revolute joints"
        )


def check_hessian(hessian: str) -> bool:
    """Check the name of the Hessian; return True for the exact Hessian.

    Raises:
        TrajectoryError: the name is unknown.
    """
    if hessian not in ("exact", "gauss_newton"):
        raise TrajectoryError(f"the Hessian must be 'exact' or 'gauss_newton', not {hessian!r}")
    return hessian == "exact"


def path_rows(
    problem: OptimalControlProblem, rows: TorqueRows, knot: Knot, bounded: tuple[type, ...] = ()
) -> tuple[Float[Array, " p"], Float[Array, " r"]]:
    """Equalities and inequalities (<= 0) at a knot; the inequalities are those of torques, then those of constraints.

    Constraints of the types in `bounded` are omitted, because `state_bounds` handles them.
    """
    equal, below = constraint_values(_path_constraints(problem, bounded), problem.chain, knot)
    return equal, jnp.concatenate([rows.inequalities(knot.tau), below])


def pinned_rows(
    problem: OptimalControlProblem, rows: TorqueRows, active: Float[Array, "knots r"], bounded: tuple[type, ...] = ()
) -> tuple[Bool[Array, "knots r"], Bool[Array, " end"]]:
    """True for the inequalities of `path_rows`, and for those of the terminal constraints, that must be zero.

    Args:
        active: 1 for enforced inequalities of `path_rows`, else 0.
    """
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
    """Initial motion and duration: the interpolated guess, or a motion from the initial position to a goal.

    Without a guess, the motion is a quintic polynomial from rest at q0 to rest at the first goal found in the terminal
    constraints and costs. Without such a goal, the robot stays at rest at q0. The duration is N dt, clipped to the duration
    limits.

    Args:
        times: times as fractions of the duration.
    """
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
    """Masks of the enforced rows of `path_rows` at each knot.

    At the first knot, only rows that depend on torques or on the ground wrench are enforced; at other knots, all rows are
    enforced.
    """
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
    """Solve a transcribed problem; the solution is differentiable with respect to the problem's leaves.

    Args:
        form_of: function (problem, exact, like) -> object with `torques`, `program(guess)` and `solution(program, result)`.
            `exact` selects the exact Hessian; `like` is None, or torque rows whose structure is copied.
    """
    bare, guess = jax.lax.stop_gradient((problem, guess))
    form = form_of(bare, check_hessian(hessian), None)
    program, x, lower, upper = form.program(guess)
    result = solve_program(
        program, x, lower, upper, tolerance=tolerance, max_iterations=max_iterations, barrier=barrier
    )
    differentiated = lambda problem: form_of(problem, True, form.torques)
    result = differentiable(lambda problem: differentiated(problem).program(guess), problem, result)
    return differentiated(problem).solution(program, result)
