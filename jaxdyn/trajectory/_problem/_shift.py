"""Model-predictive control: an earlier solution moved on in time, as the next problem's guess."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...model._compiled import compiled
from ._problem import OptimalControlProblem, advance
from ._solution import Guess, Solution, Trajectory


def shift_guess(problem: OptimalControlProblem, solution: Solution | Guess, steps: int = 1) -> Guess:
    """A solution as seen `steps` knots later: its rest, then the last torque held; multipliers alike.

    Give it as guess to the solver of the same problem from a newer start, `q0` and `v0`, which replace the first knot.

    Args:
        problem: whose robot and step move the last state on.
        steps: how many knots have gone by.
    """
    return _shifted(problem, Guess(solution.trajectory, solution.multipliers), steps)


@compiled
def _shifted(problem: OptimalControlProblem, guess: Guess, steps: int) -> Guess:
    old = guess.trajectory

    def one(state, _):
        q, v = state
        q, v = advance(problem, q, v, old.tau[-1])
        return (q, v), (q, v)

    _, (q, v) = jax.lax.scan(one, (old.q[-1], old.v[-1]), None, length=steps)
    trajectory = Trajectory(
        old.t, jnp.concatenate([old.q, q])[steps:], jnp.concatenate([old.v, v])[steps:], moved_on(old.tau, steps)
    )
    knots = {name: x.shape[0] in (old.tau.shape[0], old.q.shape[0]) for name, x in guess.multipliers.items()}
    multipliers = {
        name: moved_on(x, steps) if knots[name] and name != "terminal_constraints" else x
        for name, x in guess.multipliers.items()
    }
    return Guess(trajectory, multipliers)


def moved_on(rows: Array, steps: int) -> Array:
    """Rows from number `steps` on, then the last one again and again."""
    last = jnp.broadcast_to(rows[-1:], (steps, *rows.shape[1:]))
    return jnp.concatenate([rows, last])[steps:]
