"""Throughput and latency of jaxdyn beside Pinocchio, in one run on one machine: `python -m tests.benchmarks`.

Every result is compared with Pinocchio's before it is timed, both libraries are timed in turn, and what is timed is waited for.
"""

import argparse
import os
import platform
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import pinocchio as pin  # noqa: E402

import jaxdyn  # noqa: E402
from tests.peer_models import to_pinocchio  # noqa: E402


def seconds(call, repeats: int) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def in_turn(calls: dict, repeats: int, rounds: int = 5) -> dict[str, float]:
    """Best median of each call over rounds in which all take turns, so that a slow spell hits all alike."""
    for call in calls.values():
        call()
    results = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            results[name].append(seconds(call, repeats))
    return {name: min(times) for name, times in results.items()}


def waited(function, *arguments):
    return lambda: jax.block_until_ready(function(*arguments))


def evaluations(chain, model, states, batch: int) -> None:
    """Each quantity over a batch, against a Python loop over Pinocchio's function of one state."""
    data = model.createData()
    q, qd, qdd = (jnp.asarray(x, chain.dtype) for x in states)
    sq, sqd, sqdd = states

    def each(function, *used):
        return np.array([np.array(function(model, data, *(x[i] for x in used))) for i in range(batch)])

    def symmetric(m):
        return np.triu(m) + np.swapaxes(np.triu(m, 1), -1, -2)

    rows = {
        "inverse dynamics": (jaxdyn.inverse_dynamics, (q, qd, qdd), pin.rnea, (sq, sqd, sqdd), None),
        "gravity": (jaxdyn.gravity_force, (q,), pin.computeGeneralizedGravity, (sq,), None),
        "mass matrix (jacfwd)": (jaxdyn.mass_matrix, (q,), pin.crba, (sq,), symmetric),
        "mass matrix (crba)": (jaxdyn.crba, (q,), pin.crba, (sq,), symmetric),
        "Coriolis matrix": (jaxdyn.coriolis_matrix, (q, qd), pin.computeCoriolisMatrix, (sq, sqd), None),
        "forward dynamics": (jaxdyn.forward_dynamics, (q, qd, qdd), pin.aba, (sq, sqd, sqdd), None),
        "regressor": (jaxdyn.regressor, (q, qd, qdd), pin.computeJointTorqueRegressor, (sq, sqd, sqdd), None),
    }
    tolerance = 1e-10 if chain.dtype == jnp.float64 else 1e-3
    print(f"{'':24s}{'jaxdyn':>9s}{'Pinocchio':>11s}{'ratio':>8s}{'max rel. error':>16s}")
    for name, (ours, arguments, theirs, used, fix) in rows.items():
        batched = jax.jit(jax.vmap(ours, (None, *[0] * len(arguments))))
        reference = each(theirs, *used)
        reference = reference if fix is None else fix(reference)
        error = np.abs(np.asarray(batched(chain, *arguments)) - reference).max() / np.abs(reference).max()
        if not error < tolerance:
            raise SystemExit(f"{name}: differs from Pinocchio by {error:.1e}")

        def loop(theirs=theirs, used=used):
            for i in range(batch):
                theirs(model, data, *(x[i] for x in used))

        t = in_turn({"ours": waited(batched, chain, *arguments), "theirs": loop}, 3)
        a, b = (1e6 * t[k] / batch for k in ("ours", "theirs"))
        print(f"{name:24s}{a:9.3f}{b:11.3f}{b / a:8.2f}{error:16.1e}")


def batches(chain, model, states, batch: int) -> None:
    """Whole batches without Python in either loop."""
    q, qd, qdd = (jnp.asarray(x, chain.dtype) for x in states)
    columns = [np.asfortranarray(x.T) for x in states]
    pool = pin.ModelPool(model, 2)
    inverse = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0)))
    forward = jax.jit(jax.vmap(jaxdyn.forward_dynamics, (None, 0, 0, 0)))
    calls = {
        "jaxdyn inverse dynamics": waited(inverse, chain, q, qd, qdd),
        "rneaInParallel, 1 thread": lambda: pin.rneaInParallel(1, pool, *columns),
        "rneaInParallel, 2 threads": lambda: pin.rneaInParallel(2, pool, *columns),
        "jaxdyn forward dynamics": waited(forward, chain, q, qd, qdd),
        "abaInParallel, 1 thread": lambda: pin.abaInParallel(1, pool, *columns),
        "abaInParallel, 2 threads": lambda: pin.abaInParallel(2, pool, *columns),
    }
    print("\nbatches without Python in the loop, us an evaluation")
    for name, t in in_turn(calls, 10).items():
        print(f"{name:28s}{1e6 * t / batch:9.3f}")


def single_calls(chain, states) -> None:
    """One robot, one state: what a control loop pays, beside a jitted function that does nothing."""
    one = [jnp.asarray(x[0], chain.dtype) for x in states]
    calls = {
        "empty, 3 arrays": waited(jax.jit(lambda *x: x[0]), *one),
        "inverse dynamics, robot closed over": waited(jax.jit(lambda *x: jaxdyn.inverse_dynamics(chain, *x)), *one),
        "empty, robot and 3 arrays": waited(jax.jit(lambda c, *x: x[0]), chain, *one),
        "inverse dynamics, robot an argument": waited(jax.jit(jaxdyn.inverse_dynamics), chain, *one),
    }
    t = in_turn(calls, 2000)
    print("\none call, us (and as a multiple of the empty jitted function above it)")
    for empty, full in (tuple(calls)[:2], tuple(calls)[2:]):
        print(f"{empty:38s}{1e6 * t[empty]:8.1f}")
        print(f"{full:38s}{1e6 * t[full]:8.1f}{t[full] / t[empty]:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--float32", action="store_true", help="time jaxdyn in float32 (Pinocchio stays in float64)")
    parser.add_argument(
        "--inline", action="store_true", help="run programs on the calling thread: for one robot in a loop"
    )
    parser.add_argument("--calls-only", action="store_true", help="only the table of single calls")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", not options.inline)
    chain = jaxdyn.robots.panda()
    model = to_pinocchio(chain)
    states = np.random.default_rng(0).normal(size=(3, options.batch, chain.n))
    if options.float32:
        chain = jax.tree.map(lambda x: x.astype(jnp.float32), chain)
    print(f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}")
    print(f"jax {jax.__version__}, Pinocchio {pin.__version__}, {chain.n}R arm, {chain.dtype}, batch {options.batch}")
    if not options.calls_only:
        print("\nus an evaluation")
        evaluations(chain, model, states, options.batch)
        batches(chain, model, states, options.batch)
    single_calls(chain, states)


if __name__ == "__main__":
    main()
