"""Rollouts: many steps of one robot in one compiled loop, which stores states and, for derivatives, checkpoints.

All rollouts consist of a function for one step and `repeated` or `march`, which iterate it. They share the arguments of
`rollout`, which documents them. `adaptive_rollout` uses diffrax, an optional dependency (`pip install "jaxdyn[adaptive]"`).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics import forward_dynamics, resistive_force
from ..errors import ControlError, ModelError
from ..model.chain import Chain, Position, Velocity, Wrenches
from ..model.compiled import checked, compiled
from ..model.configuration import integrate, normalise_configuration
from .integrate import Method, promoted, step

State = TypeVar("State")
Controller = tuple[Callable[[Any, Array, Array, Array], tuple[Array, Any]], Any]
Controls = Float[Array, "steps nv"] | Callable[[Array, Array, Array], Array]
Motion = tuple[Float[Array, "times nq"], Float[Array, "times nv"]]


@compiled
def rollout(
    chain: Chain,
    q: Position,
    qd: Velocity,
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "semi_implicit_euler",
    external_wrenches: Wrenches | Float[Array, "steps n 6"] | None = None,
    every: int = 1,
    checkpoint: int | None = None,
) -> Motion:
    """Positions and velocities at t = 0, every * dt, 2 * every * dt, ..., steps * dt, starting from the state (q, qd).

    The result has steps / every + 1 rows. A rollout stores only the controls and the returned rows, so with a policy
    and every = steps, its memory does not grow with the horizon.

    Unless `checkpoint` is set, reverse-mode derivatives store the intermediate values of every step. With L levels of
    checkpoints, about L steps^(1 / L) states and the intermediate values of one step are stored, and every step is
    computed up to L + 1 times (L + 2 times if 1 < every < steps). L = 1 stores all states but no intermediate values;
    L = 2 suffices for thousands of steps. Values and derivatives do not depend on L.

    Args:
        controls: torques, constant during each step [N m or N], or a policy tau = controls(t, q, qd).
        dt: time step [s].
        steps: number of steps; required if `controls` is a policy.
        method: integration scheme, as in `step`.
        external_wrenches: wrenches (n, f) on each link, in its frame, for all steps or one row per step [N m, N].
        every: number of steps between returned states; must divide the total number of steps.
        checkpoint: number L of checkpoint levels.

    Raises:
        ModelError: `steps` differs from the number of torque rows, or is missing although `controls` is a policy;
            `every` does not divide `steps`; `checkpoint` is less than 1; or the scheme is unknown.
    """
    by_step = external_wrenches is not None and jnp.ndim(external_wrenches) == 3

    def move(_, q, qd, tau, dt, row):
        return step(chain, q, qd, tau, dt, row if by_step else external_wrenches, method)

    state, rows = promoted(chain, q, qd), external_wrenches if by_step else None
    return repeated(move, state, controls, dt, steps, every, checkpoint, rows)


class ControlledMotion(NamedTuple):
    """The result of `controlled_rollout`, which describes it."""

    t: Float[Array, " times"]
    q: Float[Array, "times nq"]
    qd: Float[Array, "times nv"]
    tau: Float[Array, "times nv"]
    state: Any


@functools.partial(compiled, error=ControlError)
def controlled_rollout(
    chain: Chain,
    q: Position,
    qd: Velocity,
    controller: Controller,
    dt: float | Float[Array, ""],
    steps: int,
    method: Method = "semi_implicit_euler",
    substeps: int = 1,
    every: int = 1,
    disturbance: Callable[[Array, Array, Array], Array] | None = None,
) -> ControlledMotion:
    """Simulate the robot under a control law (tau, state) = law(state, t, q, qd) with control period dt [s].

    Torques are constant within a control period. The simulation includes the robot's friction and springs. For
    stateless controllers, use `rollout`.

    Args:
        controller: the pair (law, initial state). The law is a pure function that returns torques [N m or N] and the
            next state, a pytree of arrays with constant shapes and types.
        steps: number of control periods; `every` counts periods as well.
        method: integration scheme, as in `step`.
        substeps: number of integration steps per period.
        disturbance: function of (t, q, qd) that returns additional joint torques [N m or N], constant during a substep.

    Returns:
        - t, q, qd: times and states, one row at t = 0 and one row after every `every` control periods.
        - tau: torques applied in the preceding period; zero in the first row [N m or N].
        - state: controller states; every leaf of the pytree has one row per time.

    Raises:
        ControlError: the controller does not return `nv` torques, or `substeps` is less than 1.
        ModelError: `every` does not divide the number of periods, or the method is unknown.
    """
    if substeps < 1:
        raise ControlError(f"substeps={substeps}; it must be at least 1")
    law, state = controller
    q, qd = promoted(chain, q, qd)
    dt = jnp.asarray(dt, q.dtype)
    short = dt / substeps

    def advance(carry, k, _):
        q, qd, _, state = carry
        time = k.astype(dt.dtype) * dt
        tau, state = law(state, time, q, qd)
        if jnp.shape(tau) != (chain.nv,):
            raise ControlError(f"the controller's torques have shape {jnp.shape(tau)}; this robot needs ({chain.nv},)")
        tau = tau.astype(qd.dtype)

        def substep(inner, j):
            x, xd = inner
            acting = tau
            if disturbance is not None:
                acting = tau + disturbance(time + j.astype(dt.dtype) * short, x, xd)
            return step(chain, x, xd, acting, short, method=method), None

        if substeps == 1:
            (q, qd), _ = substep((q, qd), jnp.zeros((), int))
        else:
            (q, qd), _ = jax.lax.scan(substep, (q, qd), jnp.arange(substeps))
        return q, qd, tau, state

    state = jax.tree.map(jnp.asarray, state)
    q, qd, tau, states = march(advance, (q, qd, jnp.zeros_like(qd), state), None, steps, every)
    return ControlledMotion(jnp.arange(len(q)).astype(dt.dtype) * (dt * every), q, qd, tau, states)


class AdaptiveRollout(NamedTuple):
    """The result of `adaptive_rollout`, which describes it."""

    positions: Float[Array, "times nq"]
    velocities: Float[Array, "times nv"]
    steps: Int[Array, ""]
    successful: Bool[Array, ""]


@checked
def adaptive_rollout(
    chain: Chain,
    q: Position,
    qd: Velocity,
    controls: Float[Array, "intervals nv"] | Callable[[Array, Array, Array], Array],
    times: Float[Array, " times"],
    rtol: float | None = None,
    atol: float | None = None,
    external_wrenches: Wrenches | None = None,
    **options: Any,
) -> AdaptiveRollout:
    """Integrate qdd = forward_dynamics(tau - resistive_force) with adaptive steps and return the states at requested times.

    Quaternions are integrated from their rates, d/dt (w, x, y, z) = (w, x, y, z) (0, omega) / 2, and returned with unit
    length. A step is accepted if the estimated error of y = (q, qd), divided by atol + rtol |y|, has an RMS below 1
    over all entries.

    JAX differentiates through the integration steps, by default in reverse mode with checkpoints
    (`diffrax.RecursiveCheckpointAdjoint`). For forward mode, pass adjoint=diffrax.ForwardMode().

    Args:
        controls: either torques [N m or N], one row for each interval between successive times, or a policy tau =
            controls(t, q, qd). Torques are constant within an interval, and no step extends beyond it. A policy must be
            smooth, and must accept quaternions whose length differs slightly from 1.
        times: increasing times [s]; (q, qd) is the state at the first time.
        rtol: relative tolerance; by default, the square root of the machine epsilon: 1.5e-8 (float64) or 3.5e-4
            (float32).
        atol: absolute tolerance, with the same default [rad or m, rad/s or m/s].
        external_wrenches: constant wrench (n, f) on each link, in the link's frame [N m, N].
        options: keyword arguments for `diffrax.diffeqsolve`. The default `solver` is `Tsit5`, an explicit fifth-order
            scheme; use `Kvaerno5` for stiff friction. If more than `max_steps` (4096) steps are needed, `successful` is
            False.

    Returns:
        - positions, velocities: the states at the times; not finite at later times if the integration stops early.
        - steps: number of steps, including rejected ones.
        - successful: True if the integration reached the last of the requested times.

    Raises:
        ImportError: diffrax is not installed.
        ModelError: there are fewer than two times, or the number of torque rows differs from the number of intervals.
    """
    try:
        import diffrax
    except ModuleNotFoundError as missing:
        raise ImportError(
            'adaptive_rollout needs diffrax, which is not installed: pip install "jaxdyn[adaptive]"'
        ) from missing

    q, qd = promoted(chain, q, qd)
    times = jnp.asarray(times, q.dtype)
    policy, rows = (controls, None) if callable(controls) else (None, jnp.asarray(controls))
    if len(times) < 2:
        raise ModelError(
            f"an adaptive rollout needs at least two times, the first for the initial state; got {len(times)}"
        )
    if rows is not None and len(rows) != len(times) - 1:
        raise ModelError(
            f"{len(rows)} rows of torques are given for {len(times) - 1} intervals between times; pass one row per interval"
        )

    def rate(t, y, arguments):
        robot, wrenches, torques = arguments
        x, xd = y
        if policy is not None:
            tau = policy(t, x, xd)
        else:
            tau = torques[jnp.clip(jnp.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)]
        _, velocity = jax.jvp(lambda dq: integrate(robot, x, dq), (jnp.zeros_like(xd),), (xd,))
        return velocity, forward_dynamics(robot, x, xd, tau - resistive_force(robot, x, xd), wrenches)

    default = float(jnp.finfo(q.dtype).eps) ** 0.5
    controller = diffrax.PIDController(default if rtol is None else rtol, default if atol is None else atol)
    if rows is not None:
        controller = diffrax.ClipStepSizeController(controller, jump_ts=times[1:-1])
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        options.pop("solver", None) or diffrax.Tsit5(),
        times[0],
        times[-1],
        None,
        (q, qd),
        (chain, external_wrenches, rows),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=controller,
        throw=False,
        **options,
    )
    ys: Any = solution.ys
    positions, velocities = ys
    positions = jax.vmap(lambda x: normalise_configuration(chain, x))(positions)
    return AdaptiveRollout(
        positions, velocities, solution.stats["num_steps"], solution.result == diffrax.RESULTS.successful
    )


def repeated(
    move: Callable[..., tuple[Array, ...]],
    start: Sequence[Array],
    controls: Controls,
    dt: float | Array,
    steps: int | None,
    every: int,
    checkpoint: int | None,
    rows: PyTree = None,
) -> Any:
    """The motion by steps (q, qd) = move(t, q, qd, tau, dt, row) from the time t; arguments and errors as for `rollout`.

    The state may contain further arrays after q and qd, which the step receives and returns in the same order.
    """
    dt = jnp.asarray(dt, start[0].dtype)
    policy, torques = (controls, None) if callable(controls) else (None, jnp.asarray(controls))
    if torques is not None and steps not in (None, len(torques)):
        raise ModelError(
            f"{len(torques)} rows of torques are given for {steps} steps; omit steps, or pass one row per step"
        )
    steps = steps if torques is None else len(torques)
    if steps is None:
        raise ModelError("a rollout under a policy needs the number of steps; pass steps=")

    def advance(state, k, x):
        tau, row = x
        t = k.astype(dt.dtype) * dt
        return move(t, *state, tau if policy is None else policy(t, *state[:2]), dt, row)

    return march(advance, tuple(start), (torques, rows), steps, every, checkpoint)


def march(
    advance: Callable[[State, Array, PyTree], State],
    state: State,
    inputs: PyTree,
    steps: int,
    every: int = 1,
    checkpoint: int | None = None,
) -> State:
    """Iterate state = advance(state, k, row k of inputs); return the initial and every `every`-th state, stacked."""
    if every < 1 or steps % every:
        raise ModelError(
            f"every={every} does not divide {steps} steps; choose a divisor, or every=steps for only the first and last state"
        )
    if checkpoint is not None and checkpoint < 1:
        raise ModelError(f"checkpoint={checkpoint}; the number of checkpoint levels must be at least 1, or None")
    turns = None if checkpoint is None else max(2, math.ceil(steps ** (1 / checkpoint) - 1e-9))

    def one(carry, x):
        k, state = carry
        return k + 1, advance(state, k, x)

    def block(carry, x):
        return one(carry, x) if every == 1 else _loop(one, lambda _: None, carry, x, every, turns)[0]

    blocks = steps // every
    if every > 1:
        inputs = jax.tree.map(lambda x: jnp.reshape(x, (blocks, every, *x.shape[1:])), inputs)
    _, kept = _loop(block, lambda carry: carry[1], (jnp.zeros((), int), state), inputs, blocks, turns)
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), state, kept)


def _loop(advance, keep, carry, xs, length, turns):
    """Iterate carry = advance(carry, x) in nested loops of about `turns` iterations, and stack keep(carry) of each."""
    sizes = (length,) if turns is None else level_sizes(length, turns)
    total = math.prod(sizes)
    idle = total - length

    def turn(carry, x):
        live, x = x
        if idle:  # skip the padded iterations; with `where` instead of `cond`, derivatives could become NaN
            carry = jax.lax.cond(live, advance, lambda carry, x: carry, carry, x)
        else:
            carry = advance(carry, x)
        return carry, keep(carry)

    def by_levels(x):
        padded = jnp.concatenate([x, jnp.zeros((idle, *x.shape[1:]), x.dtype)]) if idle else x
        return jnp.reshape(padded, (*sizes, *x.shape[1:]))

    live = jnp.arange(length) >= 0 if idle else None  # padded with False
    nested = turn
    for size in reversed(sizes):
        body = nested if turns is None else jax.checkpoint(nested, prevent_cse=False)
        nested = functools.partial(jax.lax.scan, body, length=size)
    carry, kept = nested(carry, jax.tree.map(by_levels, (live, xs)))
    return carry, jax.tree.map(lambda x: jnp.reshape(x, (total, *x.shape[len(sizes) :]))[:length], kept)


def level_sizes(length: int, turns: int) -> tuple[int, ...]:
    """Iteration counts of nested loops, each about `turns` or less; their product is `length` or slightly more."""
    sizes = []
    levels = 1
    while turns**levels < length:
        levels += 1
    for left in range(levels, 1, -1):
        size = math.ceil(length ** (1 / left) - 1e-9)
        near = [x for x in range(math.ceil(size / 1.5), math.floor(1.5 * size) + 1) if length % x == 0]
        sizes.append(min(near, key=lambda x: abs(x - size)) if near else size)
        length = -(-length // sizes[-1])
    return (*sizes, length)
