"""The time-stepping loop of all rollouts, which stores states and, for derivatives, checkpoints."""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..errors import ModelError

State = TypeVar("State")


def march(
    advance: Callable[[State, Array, PyTree], State],
    state: State,
    inputs: PyTree,
    steps: int,
    every: int = 1,
    checkpoint: int | None = None,
) -> State:
    """Iterate state = advance(state, k, row k of inputs), and return the initial state and every `every`-th state, stacked.

    The state may contain further outputs of a step, such as its torques; each row after the first then contains the outputs
    of the step that leads to it.

    If `checkpoint` is given, the steps run in that number of nested loops, each of about steps^(1 / checkpoint) iterations. For
    reverse-mode derivatives, only the state at the start of each iteration is stored (`jax.checkpoint`); everything else is
    recomputed.

    Raises:
        ModelError: `every` does not divide the number of steps, or `checkpoint` is less than 1.
    """
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
    """Iterate carry = advance(carry, x); return the last carry, and keep(carry) after each iteration.

    The iterations run as nested loops of about `turns` iterations each, or as one loop if `turns` is None.
    """
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
        nested = _scan(nested if turns is None else jax.checkpoint(nested, prevent_cse=False), size)
    carry, kept = nested(carry, jax.tree.map(by_levels, (live, xs)))
    return carry, jax.tree.map(lambda x: jnp.reshape(x, (total, *x.shape[len(sizes) :]))[:length], kept)


def _scan(body, length):
    return lambda carry, xs: jax.lax.scan(body, carry, xs, length=length)


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
