"""Times of calls, taken in turns, so that a slow spell of the machine hits all alike."""

import time

import jax
import numpy as np

MOST_REPEATS = 2000


def seconds(call, repeats: int, statistic=np.median) -> float:
    """Median time of a call, or another statistic."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(statistic(times))


def in_turn(calls: dict, budget: float, rounds: int = 5, statistic=np.median) -> dict[str, float]:
    """Best median of each call over rounds in which all take turns.

    A call is made once before anything is timed. In a round it is repeated for about `budget` seconds, at least three times.
    """
    repeats, results = {}, {name: [] for name in calls}
    for name, call in calls.items():
        call()
        once = max(seconds(call, 1), 1e-7)
        repeats[name] = int(np.clip(budget / once, 3, MOST_REPEATS))
    for _ in range(rounds):
        for name, call in calls.items():
            results[name].append(seconds(call, repeats[name], statistic))
    return {name: min(times) for name, times in results.items()}


def waited(function, *arguments):
    """A call that returns when its results are there."""
    return lambda: jax.block_until_ready(function(*arguments))
