"""Initial guesses: a robot at rest, or an earlier solution shifted in time for model-predictive control."""

import jax.numpy as jnp
from jaxtyping import Array

from ...model._compiled import compiled
from ...simulation._march import march
from .problem import OptimalControlProblem, advance, holding_torque, knot_times, limited_torque
from .solution import Guess, Solution, Trajectory


def stationary_guess(problem: OptimalControlProblem) -> Trajectory:
    """The simplest guess: the robot at rest at q0, with the torques that hold it there, clipped to their limits."""
    steps, q0 = problem.steps, problem.q0
    tau = limited_torque(problem, holding_torque(problem))
    q = jnp.broadcast_to(q0, (steps + 1, *q0.shape))
    v = jnp.zeros((steps + 1, problem.chain.nv), q0.dtype)
    return Trajectory(knot_times(problem, q0.dtype), q, v, jnp.broadcast_to(tau, (steps, *tau.shape)))


def shift_guess(problem: OptimalControlProblem, solution: Solution | Guess, steps: int = 1) -> Guess:
    """Shift a solution and its multipliers forward by `steps` knots, and extend it by simulation under its last torques.

    Use the result as the guess for the same problem with a new initial state. Solvers replace the first state of the guess by
    the problem's `q0` and `v0`.

    Args:
        problem: problem that defines the robot, time step and integration method used for the extension.
        solution: earlier solution or guess.
        steps: number of time steps that have elapsed.
    """
    return _shifted(problem, Guess(solution.trajectory, solution.multipliers), steps)


@compiled
def _shifted(problem: OptimalControlProblem, guess: Guess, steps: int) -> Guess:
    old = guess.trajectory

    hold = lambda state, k, row: advance(problem, state[0], state[1], old.tau[-1])
    ahead = march(hold, (old.q[-1], old.v[-1]), None, steps)
    q, v = (jnp.concatenate([x, more[1:]])[steps:] for x, more in zip((old.q, old.v), ahead, strict=True))
    trajectory = Trajectory(old.t, q, v, moved_on(old.tau, steps))
    knots = {name: x.shape[0] in (old.tau.shape[0], old.q.shape[0]) for name, x in guess.multipliers.items()}
    multipliers = {
        name: moved_on(x, steps) if knots[name] and name != "terminal_constraints" else x
        for name, x in guess.multipliers.items()
    }
    return Guess(trajectory, multipliers)


def moved_on(rows: Array, steps: int) -> Array:
    """The rows from index `steps` on, padded to the original length with copies of the last row."""
    last = jnp.broadcast_to(rows[-1:], (steps, *rows.shape[1:]))
    return jnp.concatenate([rows, last])[steps:]
