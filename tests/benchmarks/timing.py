"""Timing of calls in turns, so that a slow period of the machine affects all of them alike."""

import time

import jax
import numpy as np

MOST_REPEATS = 2000


def seconds(call, repeats: int, statistic=np.median) -> float:
    """The median, or another statistic, of the times of repeated calls [s]."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(statistic(times))


def in_turn(calls: dict, budget: float, rounds: int = 5, statistic=np.median) -> dict[str, float]:
    """The best median time of each call over several rounds, in each of which the calls take turns [s].

    Each call is made once before it is timed. In every round, it is repeated for about `budget` seconds, at least three times.
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
    """A call of the function that returns when its results are ready."""
    return lambda: jax.block_until_ready(function(*arguments))
