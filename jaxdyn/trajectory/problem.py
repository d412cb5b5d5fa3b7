"""Optimal control problems, their discretisation in time, initial guesses, and what solvers return."""

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import Literal, Tracer
from .._summary import Summary, data_frame, lines, number, numbered
from ..contact import Contacts, ContactState, contact_step
from ..dynamics import gravity_force, resistive_force
from ..errors import TrajectoryError
from ..model.chain import Chain
from ..model.compiled import checked, compiled
from ..simulation.integrate import Method, step
from ..simulation.rollouts import march
from .constraints import Constraint
from .costs import Cost, Knot, as_floats, as_floats_or_none

Tree = TypeVar("Tree")


def choose(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Select `yes` if the condition is true, else `no`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def at(tree: Tree, rows: int | slice) -> Tree:
    """Select the same row or rows of every array in a tree."""
    return jax.tree.map(lambda x: x[rows], tree)


def batched_with(tree: Tree, x: Array) -> Tree:
    """The same tree, batched under `vmap` if the scalar x is, since JAX otherwise traces the body of a loop again."""
    return jax.tree.map(lambda y: jnp.where(x == x, y, y), tree)


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


RUNNING = -1  # status of a solver that still iterates

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
    """A motion sampled at N + 1 knots: times t [s], positions q [rad or m], velocities v [rad/s or m/s], and the torques
    tau from each knot to the next [N m or N].
    """

    t: Float[Array, " knots"]
    q: Float[Array, "knots nq"]
    v: Float[Array, "knots nv"]
    tau: Float[Array, "steps nv"]

    def __repr__(self) -> str:
        return f"Trajectory: {self._in_words()}"

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with columns q1, ..., v1, ..., tau1, ..., indexed by time; the last torques are NaN.

        Raises:
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
    """Residuals of the optimality conditions, each the largest absolute value over all knots.

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
    """A warm start: trajectory and multipliers of an earlier solution, usually shifted in time by `shift_guess`."""

    trajectory: Trajectory
    multipliers: Any

    def __repr__(self) -> str:
        return f"Guess: {self.trajectory._in_words()}; multipliers of {', '.join(self.multipliers)}"


class Solution(eqx.Module, Summary):
    """What a solver returns: a solution only if the status is CONVERGED.

    Attributes:
        cost: cost of the trajectory, as discretised by the solver.
        multipliers: "dynamics", "equality", "inequality", "terminal_equality", "terminal_inequality" and others of the solver.
        status: a `Status` as an integer; under `vmap`, one per problem.
        history: numbers of each iteration, by name ("cost", ...); NaN after the last iteration.
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


# Which entries of a knot a cost's residual or a constraint's value depends on is found by tracing it: torques do not act at
# the last knot, a cost of the previous torques enlarges the state, and a residual each of whose entries depends on one entry
# of the knot has a diagonal Gauss-Newton Hessian. Operations outside these lists count as if every result depended on every
# operand: an entry may be reported that has no effect, but none is missed.
_ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy copy_p cos cosh div "
    "eq erf exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter not or pow "
    "reduce_precision rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor".split()
)
_CALLS = frozenset(("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"))
# enough for the indices in `q[entries]`
_INDICES: dict[str, Callable] = {
    "lt": np.less,
    "add": np.add,
    "convert_element_type": lambda x: x,
    "select_n": lambda which, *cases: np.choose(np.asarray(which, int), cases),
}


class Dependence(NamedTuple):
    """For each entry of the residual or value, masks of the entries of the knot on which it depends."""

    q: Bool[np.ndarray, "k nq"]
    v: Bool[np.ndarray, "k nv"]
    tau: Bool[np.ndarray, "k nv"]
    tau_before: Bool[np.ndarray, "k nv"]
    ground: Bool[np.ndarray, "k 6"]

    @property
    def is_single(self) -> bool:
        """True if each entry depends on at most one entry of (q, v, tau)."""
        counts = np.concatenate([self.q, self.v, self.tau], axis=1).sum(1)
        return bool((counts <= 1).all() and not self.tau_before.any() and not self.ground.any())


def dependence(part: Any, function: str, chain: Chain, dtype: Any, grounded: bool = False) -> Dependence:
    """The dependence of `part.function(chain, knot)` for a cost or constraint, with the ground reaction if `grounded`."""
    leaves, structure = jax.tree.flatten((part, chain))
    kinds = tuple(_kind(x) if eqx.is_array_like(x) else None for x in leaves)
    fixed = tuple(None if kind else x for x, kind in zip(leaves, kinds, strict=True))
    sizes = chain.nq, chain.nv, chain.nv, chain.nv, 6
    return _dependence(structure, kinds, fixed, function, sizes, jnp.dtype(dtype), grounded)


def _kind(x: Any) -> tuple[Hashable, ...]:
    """Shape, dtype and weak type: all that tracing reads of an array."""
    return jnp.shape(x), jnp.result_type(x), not hasattr(x, "dtype") or getattr(x, "weak_type", False)


@functools.lru_cache(maxsize=512)
def _dependence(
    structure: Any, kinds: tuple, fixed: tuple, function: str, sizes: tuple[int, ...], dtype: Any, grounded: bool
) -> Dependence:
    def program(given, k, t, dt, q, v, tau, tau_before, ground):
        rest = iter(given)
        part, chain = jax.tree.unflatten(structure, [next(rest) if k else x for k, x in zip(kinds, fixed, strict=True)])
        knot = Knot(k, t, q, v, tau, tau_before, dt, ground if grounded else None)
        return jnp.ravel(getattr(part, function)(chain, knot))

    of = lambda *shape: jax.ShapeDtypeStruct(shape, dtype)
    given = [jax.ShapeDtypeStruct(shape, kind, weak_type=weak) for shape, kind, weak in filter(None, kinds)]
    index = jax.ShapeDtypeStruct((), jnp.asarray(0).dtype)
    closed = jax.make_jaxpr(program)(given, index, of(), of(), *map(of, sizes))
    rows = np.split(np.eye(sum(sizes), dtype=bool), np.cumsum(sizes)[:-1], axis=1)
    (out,) = _followed(closed, [_UNKNOWN] * (len(given) + 3) + [_Seen(None, mask) for mask in rows])
    mask = np.zeros((sum(sizes), *closed.out_avals[0].shape), bool) if out.mask is None else out.mask
    return Dependence(*np.split(mask.T, np.cumsum(sizes)[:-1], axis=1))


class _Seen(NamedTuple):
    """What is known of an intermediate result: its value, or the mask (inputs, *shape) of the inputs it depends on."""

    value: np.ndarray | None
    mask: np.ndarray | None  # None: it depends on none


_UNKNOWN = _Seen(None, None)


def _followed(closed: Any, inputs: list[_Seen]) -> list[_Seen]:
    """The results of a traced program, given its arguments."""
    constants = [_UNKNOWN if isinstance(x, Tracer) else _Seen(np.asarray(x), None) for x in closed.consts]
    known = dict(zip((*closed.jaxpr.constvars, *closed.jaxpr.invars), (*constants, *inputs), strict=True))
    read = lambda x: _Seen(np.asarray(x.val), None) if isinstance(x, Literal) else known[x]
    for line in closed.jaxpr.eqns:
        given = [read(x) for x in line.invars]
        known.update(zip(line.outvars, _of_line(line, given), strict=True))
    return [read(x) for x in closed.jaxpr.outvars]


def _of_line(line: Any, given: list[_Seen]) -> list[_Seen]:
    """The results of one operation."""
    name, parameters, shape = line.primitive.name, line.params, line.outvars[0].aval.shape
    if name in _CALLS and hasattr(inner := parameters.get("jaxpr", parameters.get("call_jaxpr")), "consts"):
        return _followed(inner, given)
    if all(x.mask is None for x in given):
        if not given or any(x.value is None for x in given):  # unknown, but independent of the knot
            return [_UNKNOWN] * len(line.outvars)
        values = [x.value for x in given if x.value is not None]
        if name in _INDICES:
            return [_Seen(np.broadcast_to(_INDICES[name](*values), shape), None)]
        places = _places(name, parameters, values[0].shape, shape, given[1:])
        return [_UNKNOWN if places is None else _Seen(values[0].reshape(-1)[places], None)] * len(line.outvars)
    masks = [x.mask for x in given if x.mask is not None]
    if name in _ELEMENTWISE:
        return [_Seen(None, _any(masks, shape))]
    if name in ("concatenate", "stack"):
        none = np.zeros((len(masks[0]), 1), bool)
        sizes = [x.aval.shape for x in line.invars]
        rows = [_any([none], n) if x.mask is None else x.mask for x, n in zip(given, sizes, strict=True)]
        if name == "stack":
            return [_Seen(None, np.stack(rows, axis=parameters["axis"] + 1))]
        return [_Seen(None, np.concatenate(rows, axis=parameters["dimension"] + 1))]
    if name == "split":
        cuts = np.cumsum(parameters["sizes"])[:-1]
        return [_Seen(None, x) for x in np.split(masks[0], cuts, axis=parameters["axis"] + 1)]
    if given[0].mask is not None:
        places = _places(name, parameters, line.invars[0].aval.shape, shape, given[1:])
        if places is not None:
            return [_Seen(None, given[0].mask.reshape(len(given[0].mask), -1)[:, places])]
    every = np.any([mask.reshape(len(mask), -1).any(1) for mask in masks], axis=0)
    return [_Seen(None, _any([every[:, None]], x.aval.shape)) for x in line.outvars]


def _any(masks: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The union of masks, broadcast to a shape."""
    spread = [mask.reshape(len(mask), *mask.shape[1:] if mask[0].size > 1 else (1,) * len(shape)) for mask in masks]
    return np.any([np.broadcast_to(mask, (len(mask), *shape)) for mask in spread], axis=0)


def _places(
    name: str, parameters: dict, before: tuple[int, ...], shape: tuple[int, ...], rest: list[_Seen]
) -> np.ndarray | None:
    """For an operation that only moves entries, the flat index of each entry in the operand; None for other operations."""
    index = np.arange(math.prod(before)).reshape(before)
    if name in ("reshape", "squeeze", "expand_dims"):
        return index.reshape(shape)
    if name == "transpose":
        return index.transpose(parameters["permutation"])
    if name == "tile":
        return np.tile(index, parameters["reps"])
    if name == "rev":
        return np.flip(index, parameters["dimensions"])
    if name == "broadcast_in_dim":
        kept = [1] * len(shape)
        for size, axis in zip(before, parameters["broadcast_dimensions"], strict=True):
            kept[axis] = size
        return np.broadcast_to(index.reshape(kept), shape)
    if name == "slice":
        strides = parameters["strides"] or (1,) * len(before)
        bounds = zip(parameters["start_indices"], parameters["limit_indices"], strides, strict=True)
        return index[tuple(slice(*x) for x in bounds)]
    values = [x.value for x in rest if x.value is not None]
    if len(values) < len(rest):
        return None
    if name == "dynamic_slice":
        starts = [
            min(max(int(x), 0), n - m) for x, n, m in zip(values, before, shape, strict=True)
        ]  # as XLA clamps them
        return index[tuple(slice(x, x + m) for x, m in zip(starts, shape, strict=True))]
    if name == "gather" and len(before) == 1 and not parameters["dimension_numbers"].offset_dims:
        chosen = values[0][..., 0]
        return index[chosen] if ((chosen >= 0) & (chosen < before[0])).all() else None
    return None


class OptimalControlProblem(eqx.Module):
    """A discretised optimal control problem.

    Minimise sum_k dt l(knot_k) + l_N(knot_N) over tau_0 ... tau_{N-1}, subject to (q_{k+1}, v_{k+1}) = step(chain, q_k, v_k,
    tau_k, dt), where l and l_N are the sums of the running and the terminal costs. `solve_by_collocation` and
    `solve_by_inverse_dynamics` discretise the same continuous-time problem differently. All floating-point numbers are pytree
    leaves: `jax.vmap` solves many problems at once, and solutions are differentiable with respect to them.

    With `contacts`, step is `contact_step`, MuJoCo's scheme with implicit damping, and motions are optimised through contact
    with its exact derivatives. Only `solve_by_shooting` and `optimise_policy` support this (docs/contact.md).

    Attributes:
        steps: number N of time steps.
        dt: time step [s]; only an initial guess if the duration is free.
        constraints: constraints on the state at knots 1 ... N and on the torques at knots 0 ... N-1.
        torque_limits: (lower, upper) of each torque [N m or N], for example `torque_limits(chain)`; None: no limits.
        duration_limits: shortest and longest duration [s] if the duration is free; None: the duration is N dt.
        duration_weight: cost per second of duration [1/s].
        tau0: torques before the first knot [N m or N]; None: those that hold the robot still at q0, without contacts.
        method: integration scheme, as in `step`.
        contacts: contacts, joint limits and dry friction of the robot; None: it touches nothing.

    Raises:
        TrajectoryError: `steps` is less than 1, vectors or limits have the wrong shape, a reference with one row per knot has
            too few rows, contacts are given with another method than "semi_implicit_euler", or they are those of another robot.
    """

    chain: Chain
    q0: Float[Array, " nq"] = eqx.field(converter=as_floats)
    v0: Float[Array, " nv"] = eqx.field(converter=as_floats)
    steps: int = eqx.field(static=True)
    dt: Float[Array, ""] = eqx.field(converter=as_floats)
    running: tuple[Cost, ...] = ()
    terminal: tuple[Cost, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    terminal_constraints: tuple[Constraint, ...] = ()
    torque_limits: Float[Array, "nv 2"] | None = eqx.field(converter=as_floats_or_none, default=None)
    duration_limits: Float[Array, "2"] | None = eqx.field(converter=as_floats_or_none, default=None)
    duration_weight: Float[Array, ""] = eqx.field(converter=as_floats, default=0.0)
    tau0: Float[Array, " nv"] | None = eqx.field(converter=as_floats_or_none, default=None)
    method: Method = eqx.field(static=True, default="semi_implicit_euler")
    contacts: Contacts | None = None

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise TrajectoryError(f"steps={self.steps}; a problem needs at least one step")
        nq, nv = self.chain.nq, self.chain.nv
        if self.contacts is not None:
            if self.method != "semi_implicit_euler":
                raise TrajectoryError(
                    f"steps with contacts are those of 'semi_implicit_euler', not {self.method!r}", "omit the method"
                )
            if (size := jnp.shape(self.contacts.weight)[-1]) != nv:
                raise TrajectoryError(
                    f"the contacts are those of a robot with {size} velocities, but this one has {nv}",
                    "make them for this robot",
                )
        wanted = {"q0": (self.q0, (nq,)), "v0": (self.v0, (nv,)), "dt": (self.dt, ())}
        if self.torque_limits is not None:
            wanted["torque_limits"] = self.torque_limits, (nv, 2)
        if self.duration_limits is not None:
            wanted["duration_limits"] = self.duration_limits, (2,)
        if self.tau0 is not None:
            wanted["tau0"] = self.tau0, (nv,)
        for name, (value, shape) in wanted.items():
            got = jnp.shape(value)
            if got[len(got) - len(shape) :] != shape:  # leading axes: a batch of problems
                raise TrajectoryError(f"{name} has shape {got}, but this robot requires {shape}")
        if jnp.ndim(self.q0) == 1:
            _check_rows(self.running, self.steps)
            _check_rows((*self.constraints, *self.terminal, *self.terminal_constraints), self.steps + 1)

    @property
    def dtype(self) -> Any:
        """Floating-point type of the states."""
        return jnp.result_type(self.q0, self.chain.dtype)

    @property
    def has_torque_rate(self) -> bool:
        """True if a cost depends on the previous torques, which therefore become part of the state."""
        costs = (*self.running, *self.terminal)
        return any(knot_dependence(self, cost).tau_before.any() for cost in costs)


def _check_rows(parts: tuple[Cost | Constraint, ...], knots: int) -> None:
    """Raise TrajectoryError if a time-varying reference has fewer rows than there are knots."""
    for part in parts:
        for field in dataclasses.fields(part):
            x, dimensions = getattr(part, field.name), field.metadata.get("dimensions")
            if dimensions is not None and x is not None and x.ndim == dimensions + 1 and len(x) < knots:
                raise TrajectoryError(
                    f"{type(part).__name__}: {field.name} has {len(x)} rows, but it is evaluated at {knots} knots; pass one "
                    "row per knot"
                )


def knot_dependence(problem: OptimalControlProblem, part: Cost | Constraint, grounded: bool = False) -> Dependence:
    """The entries of a knot on which the residual of a cost, the value of a scalar cost, or a constraint depends."""
    function = "residual" if isinstance(part, Cost) and part.has_residual else "value"
    return dependence(part, function, problem.chain, problem.dtype, grounded)


def on_forces(
    problem: OptimalControlProblem, constraints: tuple[Constraint, ...], grounded: bool = False
) -> tuple[Bool[np.ndarray, " equalities"], Bool[np.ndarray, " inequalities"]]:
    """True for the `constraint_values` that depend on torques or, if the knots contain it, on the ground reaction."""
    rows: dict[str, list] = {"equality": [np.zeros(0, bool)], "inequality": [np.zeros(0, bool)]}
    for constraint in constraints:
        of = knot_dependence(problem, constraint, grounded)
        rows[constraint.kind].append(of.tau.any(1) | of.ground.any(1))
    return np.concatenate(rows["equality"]), np.concatenate(rows["inequality"])


def running_cost(problem: OptimalControlProblem, knot: Knot) -> Float[Array, ""]:
    """The sum l(knot) of the running costs, not multiplied by dt."""
    return _sum(problem.running, problem, knot)


def terminal_cost(problem: OptimalControlProblem, knot: Knot) -> Float[Array, ""]:
    """The sum l_N(knot) of the terminal costs."""
    return _sum(problem.terminal, problem, knot)


def _sum(costs: tuple[Cost, ...], problem: OptimalControlProblem, knot: Knot) -> Float[Array, ""]:
    return sum((cost.value(problem.chain, knot) for cost in costs), jnp.zeros((), knot.q.dtype))


def residuals(costs: tuple[Cost, ...], chain: Chain, knot: Knot) -> Float[Array, " k"]:
    """The residuals of all costs that have one."""
    parts = [cost.residual(chain, knot) for cost in costs if cost.has_residual]
    return jnp.concatenate(parts) if parts else jnp.zeros(0, knot.q.dtype)


def constraint_values(
    constraints: tuple[Constraint, ...], chain: Chain, knot: Knot
) -> tuple[Float[Array, " equalities"], Float[Array, " inequalities"]]:
    """Values of equalities, which must be zero, and of inequalities, which must not be positive."""
    values: dict[str, list[Array]] = {"equality": [], "inequality": []}
    for constraint in constraints:
        values[constraint.kind].append(constraint.value(chain, knot))
    none = jnp.zeros(0, knot.q.dtype)
    equal, below = (jnp.concatenate(v) if v else none for v in values.values())
    return equal, below


def pinned_values(constraints: tuple[Constraint, ...], chain: Chain, knot: Knot) -> Bool[Array, " inequalities"]:
    """True for the inequalities in `constraint_values` that must be zero."""
    below = [constraint for constraint in constraints if constraint.kind == "inequality"]
    return jnp.concatenate([jnp.zeros(0, bool), *(x.pinned(x.value(chain, knot)) for x in below)])


def advance(
    problem: OptimalControlProblem,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    near: Float[Array, " nv"] | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"], Float[Array, " nv"] | None]:
    """The state one time step later and, with contacts, the accelerations `near` which the next step searches its own."""
    if problem.contacts is None:
        return *step(problem.chain, q, v, tau, problem.dt, method=problem.method), None
    state = ContactState(q, v, jnp.zeros_like(v) if near is None else near)
    return tuple(contact_step(problem.chain, problem.contacts, state, tau, problem.dt))  # type: ignore[return-value]


def begun(problem: OptimalControlProblem, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> tuple[Array, Array, Any]:
    """A state from which to `advance` repeatedly."""
    return q, v, None if problem.contacts is None else jnp.zeros_like(v)


def resting_torque(problem: OptimalControlProblem) -> Float[Array, " nv"]:
    """The torques before the first knot: `tau0`, or the torques that hold the robot still at its initial position."""
    return holding_torque(problem) if problem.tau0 is None else problem.tau0


def holding_torque(problem: OptimalControlProblem) -> Float[Array, " nv"]:
    """The torque that holds the robot still at its initial position, against gravity, springs and friction offsets."""
    still = jnp.zeros_like(problem.v0)
    return gravity_force(problem.chain, problem.q0) + resistive_force(problem.chain, problem.q0, still)


def with_resting_torque(problem: OptimalControlProblem) -> OptimalControlProblem:
    """The problem with `tau0` set, so that `knots_of` does not recompute it."""
    if problem.tau0 is not None:
        return problem
    return eqx.tree_at(lambda p: p.tau0, problem, resting_torque(problem), is_leaf=lambda x: x is None)


def knots_of(problem: OptimalControlProblem, trajectory: Trajectory) -> Knot:
    """All N + 1 knots of a trajectory, stacked; the last knot repeats the last torque."""
    steps = problem.steps
    tau = jnp.concatenate([trajectory.tau, trajectory.tau[-1:]])
    before = jnp.concatenate([resting_torque(problem)[None], trajectory.tau])
    dt = jnp.full(steps + 1, (trajectory.t[-1] - trajectory.t[0]) / steps, tau.dtype)
    return Knot(jnp.arange(steps + 1), trajectory.t, trajectory.q, trajectory.v, tau, before, dt)


def total_cost(problem: OptimalControlProblem, trajectory: Trajectory) -> Float[Array, ""]:
    """The cost of a trajectory: running costs times dt, terminal costs, and `duration_weight` times the duration."""
    knots = knots_of(problem, trajectory)
    running = jax.vmap(lambda knot: running_cost(problem, knot))(at(knots, slice(None, -1)))
    last = at(knots, -1)
    return knots.dt[0] * jnp.sum(running) + terminal_cost(problem, last) + problem.duration_weight * trajectory.t[-1]


def knot_times(problem: OptimalControlProblem, dtype: Any) -> Float[Array, " knots"]:
    """The times k dt of all N + 1 knots [s]."""
    return problem.dt * jnp.arange(problem.steps + 1, dtype=dtype)


def limited_torque(problem: OptimalControlProblem, tau: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """The torques, clipped to the problem's limits."""
    limits = problem.torque_limits
    return tau if limits is None else jnp.clip(tau, limits[:, 0], limits[:, 1])


@checked
def simulate_controls(
    problem: OptimalControlProblem, tau: Float[Array, "steps nv"], checkpoint: int | None = None
) -> Trajectory:
    """The motion of the problem's robot under given torques [N m or N], not clipped; `checkpoint` as in `rollout`."""

    def move(state, _, tau):
        q, v, near = state
        return advance(problem, q, v, tau, near)

    start = begun(problem, problem.q0.astype(problem.dtype), problem.v0.astype(problem.dtype))
    q, v, _ = march(move, start, tau, problem.steps, checkpoint=checkpoint)
    return Trajectory(knot_times(problem, q.dtype), q, v, tau)


def status_of_problem(problem: OptimalControlProblem) -> Int[Array, ""]:
    """CONVERGED, or the status of a problem that cannot be solved: NOT_FINITE (also if dt <= 0) or CONTRADICTORY_LIMITS."""
    numbers = jnp.concatenate([problem.q0, problem.v0, problem.dt[None]])
    finite = jnp.all(jnp.isfinite(numbers)) & (problem.dt > 0)
    ordered = jnp.ones((), bool)
    if problem.torque_limits is not None:
        ordered &= jnp.all(problem.torque_limits[:, 0] <= problem.torque_limits[:, 1])
    if problem.duration_limits is not None:
        ordered &= problem.duration_limits[0] <= problem.duration_limits[1]
    for constraint in (*problem.constraints, *problem.terminal_constraints):
        lower, upper = getattr(constraint, "lower", None), getattr(constraint, "upper", None)
        if lower is not None and upper is not None:
            ordered &= jnp.all(lower <= upper)
    status = jnp.where(ordered, Status.CONVERGED, Status.CONTRADICTORY_LIMITS)
    return jnp.where(finite, status, Status.NOT_FINITE).astype(jnp.int32)


def stationary_guess(problem: OptimalControlProblem) -> Trajectory:
    """The simplest guess: the robot at rest at q0, with the torques that hold it there, clipped to their limits."""
    steps, q0 = problem.steps, problem.q0
    tau = limited_torque(problem, holding_torque(problem))
    q = jnp.broadcast_to(q0, (steps + 1, *q0.shape))
    v = jnp.zeros((steps + 1, problem.chain.nv), q0.dtype)
    return Trajectory(knot_times(problem, q0.dtype), q, v, jnp.broadcast_to(tau, (steps, *tau.shape)))


def shift_guess(problem: OptimalControlProblem, solution: Solution | Guess, steps: int = 1) -> Guess:
    """A solution and its multipliers `steps` knots later, extended by simulation under the last torques.

    It is a guess for the same problem with a new initial state, which replaces the guess's first state: its `trajectory` and
    `multipliers` have the form of a solution's.
    """
    return _shifted(problem, Guess(solution.trajectory, solution.multipliers), steps)


@compiled
def _shifted(problem: OptimalControlProblem, guess: Guess, steps: int) -> Guess:
    old = guess.trajectory

    def hold(state, *_):
        q, v, near = state
        return advance(problem, q, v, old.tau[-1], near)

    ahead = march(hold, begun(problem, old.q[-1], old.v[-1]), None, steps)
    q, v = (jnp.concatenate([x, more[1:]])[steps:] for x, more in zip((old.q, old.v), ahead[:2], strict=True))
    trajectory = Trajectory(old.t, q, v, moved_on(old.tau, steps))
    knots = {name: x.shape[0] in (old.tau.shape[0], old.q.shape[0]) for name, x in guess.multipliers.items()}
    multipliers = {
        name: moved_on(x, steps) if knots[name] and not name.startswith("terminal") else x
        for name, x in guess.multipliers.items()
    }
    return Guess(trajectory, multipliers)


def moved_on(rows: Array, steps: int) -> Array:
    """The rows from index `steps` on, padded to the original length with copies of the last row."""
    last = jnp.broadcast_to(rows[-1:], (steps, *rows.shape[1:]))
    return jnp.concatenate([rows, last])[steps:]
