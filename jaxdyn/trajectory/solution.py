"""Selection and batching of pytrees under `jit`.

The common result of all solvers: the trajectory, its multipliers, and its optimality residuals."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._jax_compat import Tracer
from .._summary import Summary, data_frame, lines, number, numbered
from ..errors import TrajectoryError

Tree = TypeVar("Tree")


def choose(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Select `yes` if the condition is true, else `no`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def at(tree: Tree, rows: int | slice) -> Tree:
    """Select the same row or rows of every array in a tree."""
    return jax.tree.map(lambda x: x[rows], tree)


def batched_with(tree: Tree, x: Array) -> Tree:
    """The same tree; under `vmap`, all of its leaves are batched if the scalar x is batched.

    Under `vmap`, JAX traces the body of a loop again whenever another part of the carry turns out to be batched. If all parts
    are batched from the start, the body is traced only once.
    """
    return jax.tree.map(lambda y: jnp.where(x == x, y, y), tree)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """True if every number in a tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


# -- solution


class Status(enum.IntEnum):
    """The outcome of a solver. Only CONVERGED indicates a solution; otherwise, the result is the best or the last iterate."""

    CONVERGED = 0
    MAX_ITERATIONS = 1
    STALLED = 2
    INFEASIBLE = 3
    NOT_FINITE = 4
    CONTRADICTORY_LIMITS = 5
    UNREACHABLE = 6

    @property
    def message(self) -> str:
        """The status in words, with advice."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.CONVERGED: "converged",
    Status.MAX_ITERATIONS: "stopped at the maximum number of iterations: allow more, or start from a better guess",
    Status.STALLED: "no step improves the best iterate: check its residuals, rescale the costs, or change the guess",
    Status.INFEASIBLE: "the constraints cannot all be satisfied near the best iterate: check which are violated",
    Status.NOT_FINITE: "the initial state, a cost or the dynamics are not finite: check the problem's numbers and the guess",
    Status.CONTRADICTORY_LIMITS: "a lower limit exceeds its upper limit: swap or relax them",
    Status.UNREACHABLE: "no start converged: the pose is probably out of reach within the joint limits; try more starts",
}


def status_message(status: Int[Array, "*batch"], words: Callable[[Status], str] = lambda s: s.message) -> str:
    """A status in words; for a batch, the number of problems with each status."""
    codes, counts = np.unique(np.asarray(status), return_counts=True)
    if np.ndim(status) == 0:
        return words(Status(int(codes[0])))
    return "; ".join(f"{n} of {np.size(status)}: {words(Status(int(c)))}" for c, n in zip(codes, counts, strict=True))


class Trajectory(eqx.Module, Summary):
    """A motion sampled at N + 1 knots.

    Attributes:
        t: times [s].
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        tau: torques from each knot to the next [N m or N].
    """

    t: Float[Array, " knots"]
    q: Float[Array, "knots nq"]
    v: Float[Array, "knots nv"]
    tau: Float[Array, "steps nv"]

    def __repr__(self) -> str:
        return f"Trajectory: {self._in_words()}"

    def to_pandas(self) -> Any:
        """Convert to a `pandas.DataFrame` with time as index.

        The columns are q1, q2, ..., v1, v2, ..., tau1, tau2, ...; the torques in the last row are NaN.

        Raises:
            ImportError: pandas is not installed.
            TrajectoryError: the trajectory is a batch.
        """
        if self.t.ndim != 1:
            raise TrajectoryError(
                f"a table can contain only one motion, not a batch of shape {self.t.shape[:-1]}",
                "select one by its index",
            )
        tau = jnp.concatenate([self.tau, jnp.full_like(self.tau[:1], jnp.nan)])
        return data_frame(numbered("q", self.q) | numbered("v", self.v) | numbered("tau", tau), self.t, "t")

    def _in_words(self) -> str:
        *batch, steps, nv = self.tau.shape
        several = f"{tuple(batch)} of " if batch else ""
        span = f" in {number(self.t[-1])} s" if not batch else ""
        return f"{several}{steps} steps{span}, {nv} velocities, largest torque {number(jnp.abs(self.tau).max())} N m"


class Residuals(eqx.Module, Summary):
    """Residuals of the optimality conditions at an iterate, each the largest absolute value over all knots.

    Attributes:
        stationarity: gradient of the Lagrangian.
        dynamics: gaps x_{k+1} - step(x_k, tau_k) of shooting, or defects of another discretisation.
        constraints: violations of equalities, inequalities and limits.
        complementarity: products of the multipliers and slacks of inequalities.
    """

    stationarity: Float[Array, ""]
    dynamics: Float[Array, ""]
    constraints: Float[Array, ""]
    complementarity: Float[Array, ""]

    def __repr__(self) -> str:
        rows = (f"{field.name} {number(getattr(self, field.name))}" for field in dataclasses.fields(self))
        return f"Residuals: {', '.join(rows)}"

    @property
    def largest(self) -> Float[Array, ""]:
        """The Karush-Kuhn-Tucker residual, that is, the largest of the four residuals."""
        state = jnp.maximum(self.stationarity, self.dynamics)
        return jnp.maximum(state, jnp.maximum(self.constraints, self.complementarity))


class Guess(eqx.Module, Summary):
    """A warm start: trajectory and multipliers from an earlier solution, usually shifted in time by `shift_guess`.

    Attributes:
        trajectory: times, positions, velocities and torques.
        multipliers: multipliers of the dynamics and constraints, by name, as in `Solution`.
    """

    trajectory: Trajectory
    multipliers: Any

    def __repr__(self) -> str:
        return f"Guess: {self.trajectory._in_words()}; multipliers of {', '.join(self.multipliers)}"


class Solution(eqx.Module, Summary):
    """The trajectory returned by a solver, which is a solution only if the status is CONVERGED.

    Attributes:
        trajectory: times, positions, velocities and torques.
        cost: cost of this trajectory, as discretised by the solver.
        multipliers: multipliers of the dynamics and constraints, by name; the names depend on the solver.
        status: a `Status` as an integer; under `vmap`, one per problem.
        residuals: residuals of the Karush-Kuhn-Tucker conditions.
        iterations: number of iterations.
        history: quantities recorded at each iteration, by name ("cost", "residual", ...); NaN after the last iteration.
    """

    trajectory: Trajectory
    cost: Float[Array, ""]
    multipliers: Any
    status: Int[Array, ""]
    residuals: Residuals
    iterations: Int[Array, ""]
    history: dict[str, Float[Array, " iterations"]]

    def __repr__(self) -> str:
        return lines(
            f"Solution: {'traced' if isinstance(self.status, Tracer) else self.message}",
            f"cost {number(self.cost)} after {number(self.iterations)} iterations",
            repr(self.residuals),
            repr(self.trajectory),
            f"multipliers: {', '.join(self.multipliers)}",
        )

    @property
    def message(self) -> str:
        """The status in words; for a batch, the number of problems with each status."""
        return status_message(self.status)
