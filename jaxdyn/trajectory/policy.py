"""Optimisation of policies by gradient descent through many parallel rollouts, each with its own robot and initial state."""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..contact import Contacts
from ..errors import TrajectoryError, warn
from ..io.files import checksum, packed, read_headed, unpacked, write_headed
from ..model.chain import Chain
from ..model.compiled import checked
from ..simulation.rollouts import march
from .costs import Knot
from .problem import (
    OptimalControlProblem,
    Trajectory,
    advance,
    at,
    begun,
    choose,
    knot_times,
    limited_torque,
    resting_torque,
    running_cost,
    terminal_cost,
)


@functools.lru_cache(maxsize=32)  # a single object for all calls, to avoid recompilation
def supported(optimiser: Any) -> Any:
    """The optimiser, wrapped to accept (and ignore) the arguments of a line search if it has no line search."""
    import optax

    return optax.with_extra_args_support(optimiser)


@functools.lru_cache(maxsize=32)
def clipped_adam(learning_rate: float | Callable = 1e-2, clip: float = 1.0) -> Any:
    """Adam (`learning_rate`: a number or an optax schedule) on gradients clipped to the norm `clip`, for many unknowns."""
    import optax

    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(learning_rate))


def firm(tree: PyTree) -> PyTree:
    """Remove weak types from all arrays, so that the first iterate has the same types as later ones (no recompilation)."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def begin(optimiser: Any, unknowns: PyTree) -> PyTree:
    """The optimiser's initial state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes integer types
        state = optimiser.init(unknowns)
    return firm(state)


def descend(
    optimiser: Any,
    unknowns: PyTree,
    state: PyTree,
    value: Float[Array, ""],
    slope: PyTree,
    value_of: Callable[[PyTree], Array],
    scale: Float[Array, ""],
) -> tuple[PyTree, PyTree]:
    """Apply the optimiser's update, multiplied by `scale`; return the new unknowns and the optimiser's new state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        change, state = optimiser.update(slope, state, unknowns, value=value, grad=slope, value_fn=value_of)
    return jax.tree.map(lambda x, d: x + (scale * d).astype(x.dtype), unknowns, change), state


Tree = TypeVar("Tree", bound=PyTree)
FORMAT, VERSION = "jaxdyn policy progress", 2  # version 1, whose checksum covers only the arrays, is still readable


def write_progress(path: str | os.PathLike[str], carry: PyTree, history: dict[str, list[float]], lost: int) -> None:
    """Write arrays and history to the file atomically; on TrajectoryError, an existing file is unchanged."""
    header = {"format": FORMAT, "version": VERSION, "leaves": _shapes(carry), "lost": lost, "history": history}
    write_headed(path, header, packed(jax.tree.leaves(carry)), TrajectoryError)


def read_progress(path: str | os.PathLike[str], like: Tree) -> tuple[Tree, dict[str, list[float]], int]:
    """Read arrays (structured like `like`), history and number of failures; TrajectoryError if it is not this progress."""
    header, content = read_headed(path, "file with the progress", TrajectoryError)
    try:
        known = header["format"] == FORMAT and header["version"] in (1, VERSION)
        leaves, digest, history, lost = header["leaves"], header["sha256"], header["history"], int(header["lost"])
        fault = "" if known and checksum(header, content) == digest else "is damaged or was written by another version"
    except (ValueError, KeyError, TypeError, OverflowError):
        leaves, history, lost, fault = [], {}, 0, "does not contain the progress of a policy"
    if not fault and leaves != _shapes(like):
        fault = "belongs to another policy or optimiser"
    if fault:
        raise TrajectoryError(f"{os.fspath(path)}: this file {fault}; choose another file=, or remove this one")
    arrays = [jnp.asarray(x) for x in unpacked(content, len(leaves))]
    return jax.tree.unflatten(jax.tree.structure(like), arrays), history, lost


def _shapes(tree: PyTree) -> list[list]:
    return [[list(jnp.shape(x)), str(jnp.asarray(x).dtype)] for x in jax.tree.leaves(tree)]


Policy = Callable[[Array, Array, Array], Array]
Robots = Chain | tuple[Chain, Contacts] | None
_ADVICE = "so the cost means little: start from a policy that keeps the robot slow, limit the torques, or shorten dt"
_BACK = 20  # maximum number of consecutive updates without a finite gradient


class PolicyOptimisation(NamedTuple):
    """The result of `optimise_policy`, which describes it."""

    policy: Any
    cost: float
    costs: Float[np.ndarray, " rollouts"]
    updates: int
    finite: bool
    history: dict[str, Float[np.ndarray, " updates"]]
    stopped: float = 0.0

    @property
    def message(self) -> str:
        """The outcome in words."""
        if self.finite:
            diverged = f"; {100 * self.stopped:.3g} % of the rollouts diverge, {_ADVICE}" if self.stopped else ""
            return f"{self.updates} updates, mean cost {self.cost:.6g}{diverged}"
        return "no policy near the best one has a finite gradient: check the costs, or lower speed_bound"


class _Carry(NamedTuple):
    policy: Any
    optimiser: Any
    best: Any
    best_cost: Float[Array, ""]
    scale: Float[Array, ""]


class PolicySettings(NamedTuple):
    """Settings of `optimise_policy` that rarely need changing.

    Attributes:
        checkpoint: number of checkpoint levels of the backward pass, as in `rollout`.
        speed_bound: largest entry of |v|; a rollout that exceeds it is frozen [rad/s or m/s].
        save_every: number of updates between saves.
        progress: called after every update with ("optimising", updates done, total number of updates).
    """

    seed: int = 0
    checkpoint: int | None = 1
    speed_bound: float = 1e3
    save_every: int = 50
    progress: Callable[[str, int, int], None] | None = None


class _Rollouts(NamedTuple):
    """A partitioned policy, and the problem's leaves; leaves that differ between rollouts have one row per rollout."""

    trained: Any
    rest: Any
    leaves: list[Array]
    mapped: list[bool]
    structure: Any
    bound: Array  # bound on every entry of |v|


@checked
def optimise_policy(
    policy: Any,
    problem: OptimalControlProblem,
    q0: Float[Array, "rollouts nq"],
    v0: Float[Array, "rollouts nv"],
    chains: Robots = None,
    *,
    updates: int = 300,
    batch: int | None = None,
    optimiser: Any = None,
    file: str | os.PathLike[str] | None = None,
    settings: PolicySettings | None = None,
) -> PolicyOptimisation:
    """Find the policy tau = policy(t, q, v) [N m] with the lowest mean cost over many rollouts, by gradient descent.

    The objective is the mean of sum_k dt l(knot_k) + l_N(knot_N) over all rollouts b, with the sums l and l_N of running and
    terminal costs, where x_{k+1} = step(chain_b, x_k, tau_k) with torques clipped to the problem's limits. Its gradient by the
    policy's arrays is computed by backpropagation through time (analytic policy gradient; Freeman et al. 2021, Brax).

    The policy is an Equinox module, for example `equinox.nn.MLP`. All its floating-point arrays are trained; to keep one
    constant, apply `jax.lax.stop_gradient` to it in the policy.

    A rollout diverges if its state becomes non-finite or its speed exceeds `settings.speed_bound`. It is then frozen at its
    last valid state, which keeps its cost and gradient finite. If the cost or gradient of an update is not finite, the update
    is discarded, the optimisation returns to the best policy so far, and all further steps are halved.

    Args:
        policy: policy to optimise, called as in `rollout`; it must be stateless.
        problem: horizon, costs, torque limits, integration method and, unless `chains` is given, the robot. Constraints are not
            supported; express them as costs.
        chains: robots of the rollouts (domain randomisation): one chain with a batch axis on the leaves that differ, or a pair
            of a chain and contacts with such leaves, for example friction.
        updates: total number of updates, including those of earlier runs that used the same file.
        batch: number of rollouts per update, drawn without replacement; None: all of them.
        optimiser: an `optax.GradientTransformation`, with or without a line search; None: `clipped_adam()`.
        file: progress is saved there by atomic writes and resumed from there, with the same results to the bit.

    Returns:
        - policy: the last policy or the best one found, whichever has the lower mean cost over all rollouts.
        - cost: mean cost of this policy.
        - costs: cost of each rollout under this policy.
        - updates: number of updates, including those of earlier runs that used the same file.
        - finite: False if the optimisation ended because no policy near the best one had a finite gradient.
        - history: "cost" (mean over the batch), "gradient" (its norm) and "stopped" (fraction that diverged) of every update.
        - stopped: fraction of rollouts that diverge under this policy; their costs say nothing.
        - message: the outcome in words.

    Raises:
        TrajectoryError: there are no rollouts; `q0`, `v0` and `chains` differ in length; the problem has constraints or a free
            duration; the policy has no floating-point arrays; `batch` is out of range; or the file is damaged or belongs to
            another policy or optimiser.

    Warns:
        RuntimeWarning: all rollouts diverge under the resulting policy.

    Cost: `batch` times `steps` simulation steps per update, forward and backward. With checkpoint=1, the states of all these
    steps are kept in memory.
    """
    settings = PolicySettings() if settings is None else settings
    rollouts = _rollouts(policy, problem, q0, v0, chains, settings.speed_bound)
    descent = supported(clipped_adam() if optimiser is None else optimiser)
    count = len(q0)
    size = count if batch is None else batch
    if not 1 <= size <= count:
        raise TrajectoryError(f"batch={size}, but there are {count} rollouts; choose a batch size from 1 to {count}")
    if not jax.tree.leaves(rollouts.trained):
        raise TrajectoryError("the policy has no floating-point arrays to optimise")
    trained = firm(rollouts.trained)
    far, one = (jnp.asarray(x, problem.dtype) for x in (jnp.inf, 1.0))
    carry = _Carry(trained, begin(descent, trained), trained, far, one)
    history, lost = {"cost": [], "gradient": [], "stopped": []}, 0  # number of consecutive non-finite updates
    if file is not None and os.path.exists(file):
        carry, history, lost = read_progress(file, carry)
    key, done = jax.random.key(settings.seed), len(history["cost"])
    try:
        while done < updates and lost <= _BACK:
            chosen = None if size == count else _drawn(jax.random.fold_in(key, done), count, size)
            carry, numbers = _update(carry, rollouts, chosen, descent, settings.checkpoint)
            for name, value in zip(history, np.asarray(numbers).tolist(), strict=True):
                history[name].append(value)
            done += 1
            lost = 0 if np.isfinite(history["cost"][-1]) and np.isfinite(history["gradient"][-1]) else lost + 1
            if settings.progress is not None:
                settings.progress("optimising", done, updates)
            if file is not None and done % settings.save_every == 0:
                write_progress(file, carry, history, lost)
    finally:
        if file is not None:
            write_progress(file, carry, history, lost)
    return _result(rollouts, carry, history, lost)


def _result(rollouts: _Rollouts, carry: _Carry, history: dict[str, list[float]], lost: int) -> PolicyOptimisation:
    """The final result, with the last policy or the best one, whichever has the lower mean cost over all rollouts."""
    found = [rollouts._replace(trained=policy) for policy in (carry.policy, carry.best)]
    costs, stopped = zip(*(map(np.asarray, _all_costs(x)) for x in found), strict=True)
    means = [float(x.mean()) if np.isfinite(x).all() else np.inf for x in costs]
    better = int(np.argmin(means))
    policy = eqx.combine(found[better].trained, rollouts.rest)
    share = float(stopped[better].mean())
    if share == 1:
        warn(f"all {len(costs[better])} rollouts of the optimised policy diverge, {_ADVICE}", RuntimeWarning)
    arrays = {name: np.array(values) for name, values in history.items()}
    mean = float(costs[better].mean())
    return PolicyOptimisation(policy, mean, costs[better], len(history["cost"]), lost <= _BACK, arrays, share)


@checked
def policy_costs(
    policy: Any,
    problem: OptimalControlProblem,
    q0: Float[Array, "rollouts nq"],
    v0: Float[Array, "rollouts nv"],
    chains: Robots = None,
    *,
    speed_bound: float = 1e3,
) -> Float[Array, " rollouts"]:
    """The cost of each rollout under a policy, for example on robots and initial states not used in training.

    Their mean is the objective of `optimise_policy`, which documents the arguments and errors.
    """
    return _all_costs(_rollouts(policy, problem, q0, v0, chains, speed_bound))[0]


def policy_trajectory(policy: Policy, problem: OptimalControlProblem) -> Trajectory:
    """Simulate the problem's robot from its initial state under a policy, with torques clipped to the problem's limits.

    Use `jax.vmap` for several robots or initial states. Unlike in `optimise_policy`, diverging motions are not frozen.
    """

    def move(state, k, _):
        q, v, near, _ = state
        tau = _torque(policy, problem, k, q, v)
        return *advance(problem, q, v, tau, near), tau

    start = begun(problem, problem.q0.astype(problem.dtype), problem.v0.astype(problem.dtype))
    q, v, _, tau = march(move, (*start, jnp.zeros_like(start[1])), None, problem.steps)
    return Trajectory(knot_times(problem, q.dtype), q, v, tau[1:])


def _torque(policy: Policy, problem: OptimalControlProblem, k: Array, q: Array, v: Array) -> Array:
    return limited_torque(problem, policy(k.astype(q.dtype) * problem.dt, q, v))


def _cost(
    policy: Policy, problem: OptimalControlProblem, checkpoint: int | None, bound: Array
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The cost of one rollout, and whether it diverged."""

    def move(state, k, _):
        (q, v, near), before, total, going = state
        tau = _torque(policy, problem, k, q, v)
        knot = Knot(k, k.astype(q.dtype) * problem.dt, q, v, tau, before, problem.dt)
        total = total + problem.dt * running_cost(problem, knot)
        ahead = advance(problem, q, v, tau, near)
        going = going & jnp.all(jnp.abs(ahead[1]) < bound) & jnp.all(jnp.isfinite(ahead[0]))
        return choose(going, ahead, (q, v, near)), tau, total, going

    dtype = problem.dtype
    q, v, before, total = (x.astype(dtype) for x in (problem.q0, problem.v0, resting_torque(problem), jnp.zeros(())))
    start = begun(problem, q, v), before, total, jnp.ones((), bool)
    steps = problem.steps
    rows = march(move, start, None, steps, every=steps, checkpoint=checkpoint)
    (q, v, _), tau, total, going = at(rows, -1)
    end = Knot(jnp.asarray(steps), problem.dt * steps, q, v, tau, tau, problem.dt)
    return total + terminal_cost(problem, end), ~going


def _each(x: _Rollouts, checkpoint: int | None = None) -> tuple[Array, Array]:
    """The costs of all rollouts, and a mask of those that diverged."""
    policy = eqx.combine(x.trained, x.rest)
    single = lambda *leaves: _cost(policy, jax.tree.unflatten(x.structure, leaves), checkpoint, x.bound)
    return jax.vmap(single, in_axes=tuple(0 if m else None for m in x.mapped))(*x.leaves)


_all_costs = eqx.filter_jit(_each)


@eqx.filter_jit
def _drawn(key: Array, count: int, size: int) -> Array:
    return jax.random.choice(key, count, (size,), replace=False)


@eqx.filter_jit
def _update(carry: _Carry, x: _Rollouts, chosen: Array | None, descent: Any, checkpoint: int | None):
    """Make one update; return the new state and (cost, norm of the gradient, fraction of diverged rollouts)."""
    if chosen is not None:
        x = x._replace(leaves=[leaf[chosen] if m else leaf for leaf, m in zip(x.leaves, x.mapped, strict=True)])

    def loss(trained):
        costs, stopped = _each(x._replace(trained=trained), checkpoint)
        return jnp.mean(costs), jnp.mean(stopped.astype(costs.dtype))

    (cost, stopped), slope = jax.value_and_grad(loss, has_aux=True)(carry.policy)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(slope)))
    finite = jnp.isfinite(cost) & jnp.isfinite(norm)
    better = finite & (cost < carry.best_cost)
    best, best_cost = choose(better, (carry.policy, cost), (carry.best, carry.best_cost))
    moved, state = descend(descent, carry.policy, carry.optimiser, cost, slope, lambda x: loss(x)[0], carry.scale)
    trained, state = choose(finite, (moved, state), (best, begin(descent, best)))
    scale = jnp.where(finite, carry.scale, 0.5 * carry.scale)
    return _Carry(trained, state, best, best_cost, scale), jnp.stack([cost, norm.astype(cost.dtype), stopped])


def _rollouts(
    policy: Any, problem: OptimalControlProblem, q0: Array, v0: Array, chains: Robots, speed_bound: float
) -> _Rollouts:
    """Check the arguments, partition the policy, and collect the problem's leaves, stacked where they differ."""
    if problem.constraints or problem.terminal_constraints:
        raise TrajectoryError("policy optimisation does not support constraints; express them as costs")
    if problem.duration_limits is not None:
        raise TrajectoryError("policy optimisation needs a fixed duration; omit duration_limits")
    nominal = problem.chain, problem.contacts
    robots = nominal if chains is None else chains if isinstance(chains, tuple) else (chains, problem.contacts)
    if jax.tree.structure(nominal) != jax.tree.structure(robots):
        raise TrajectoryError(
            "the rollouts' robots and the problem's robot have different structures (joints, couplings, drives, contacts)"
        )
    extra = jax.tree.map(lambda a, b: jnp.ndim(b) - jnp.ndim(a), nominal, robots)
    if not set(jax.tree.leaves(extra)) <= {0, 1}:
        raise TrajectoryError(
            "every array in chains must have the same shape as in the problem's robot, optionally with one leading batch axis"
        )
    where = lambda p: (p.chain, p.contacts, p.q0, p.v0)
    flags = *jax.tree.map(lambda x: x == 1, extra), True, True
    is_leaf = lambda x: x is None
    mapped = eqx.tree_at(where, jax.tree.map(lambda _: False, problem), flags, is_leaf=is_leaf)
    whole = eqx.tree_at(where, problem, (*robots, jnp.asarray(q0), jnp.asarray(v0)), is_leaf=is_leaf)
    leaves, structure = jax.tree.flatten(whole)
    batched = jax.tree.leaves(mapped)
    sizes = {len(x) for x, m in zip(leaves, batched, strict=True) if m}
    if len(sizes) != 1 or sizes == {0}:
        rows = ", ".join(map(str, sorted(sizes)))
        raise TrajectoryError(f"q0, v0 and chains have {rows} rows; pass the same number for each, at least one")
    trained, rest = eqx.partition(policy, eqx.is_inexact_array)
    return _Rollouts(trained, rest, leaves, batched, structure, jnp.asarray(speed_bound, problem.dtype))
