"""A batch distributed over two processes with jax.distributed; the result equals that of a single process.

`work` contains the user's code, which does not depend on the number of processes. Each process simulates its share of the
arms without communication. The processes exchange only two sums: that of the tracking errors and that of the normal matrices
of the regressor (p x p for p parameters). For identification, the normal matrices alone suffice. By default, this script
starts the processes on this machine and compares their results. On a cluster, every process calls
`jax.distributed.initialize()`, which discovers the other processes, and then `work`.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
ARMS, STEPS, DT = (16, 40, 5e-3) if FAST else (256, 400, 5e-3)
LIMIT = 300  # time after which a hanging process is killed [s]


def simulate(robot, q):
    """Positions, velocities, accelerations and tracking errors of an arm that tracks a sine about its initial position."""
    inertia = jaxdyn.mass_matrix(robot, q)

    def wanted(t):
        return q + 0.3 * jnp.sin(2 * t)

    def policy(t, x, v):
        return jaxdyn.gravity_force(robot, x) + inertia @ (80 * (wanted(t) - x) + 16 * (0.6 * jnp.cos(2 * t) - v))

    positions, velocities = jaxdyn.rollout(robot, q, jnp.zeros_like(q), policy, DT, STEPS)
    errors = positions - jax.vmap(wanted)(jnp.arange(STEPS + 1) * DT)
    return positions[:-1], velocities[:-1], jnp.diff(velocities, axis=0) / DT, errors[:-1]


def normal_matrix(robot, q, qd, qdd):
    """Normal matrix Y^T Y of the regressor Y over one run."""
    rows = jax.vmap(jaxdyn.regressor, (None, 0, 0, 0))(robot, q, qd, qdd).reshape(-1, 10 * robot.n)
    return rows.T @ rows


def work(file):
    """Run the user's program; every process calls this function."""
    robot = jaxdyn.robots.panda()
    starts = np.random.default_rng(0).normal(size=(ARMS, robot.n)) * 0.3
    mine = np.split(starts, jax.process_count())[jax.process_index()]  # for a large log, read only this part
    q, qd, qdd, error = jaxdyn.sharded_vmap(simulate, (None, 0))(robot, jaxdyn.parallel.shard_batch(mine))
    square = jaxdyn.parallel.sharded_sum(lambda e: jnp.mean(e**2))(error)
    normal = jaxdyn.parallel.sharded_sum(normal_matrix, (None, 0, 0, 0))(robot, q, qd, qdd)
    rms = np.sqrt(float(square) / ARMS)
    np.savez(file, rms=rms, normal=np.asarray(normal), ends=jaxdyn.parallel.local_rows(q)[:, -1])
    print(
        f"process {jax.process_index()} of {jax.process_count()}: {len(mine)} of {ARMS} arms, "
        f"RMS tracking error of all arms {rms:.6f} rad, trace of Y^T Y {np.trace(normal):.6e}"
    )


def launch(count, folder):
    """Run `count` processes to completion and return their saved results; no process outlives this call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [folder / f"{count}-{i}.npz" for i in range(count)]
    logs = [folder / f"{count}-{i}.log" for i in range(count)]
    children = []
    try:
        for i in range(count):
            order = [sys.executable, __file__, "--join", f"127.0.0.1:{port}", str(count), str(i), str(files[i])]
            with open(logs[i], "w") as log:
                children.append(subprocess.Popen(order, stdout=log, stderr=subprocess.STDOUT))
        end = time.monotonic() + LIMIT
        while any(child.poll() is None for child in children):
            if any(child.poll() for child in children) or time.monotonic() > end:
                break  # if a process has failed, the others would wait for it forever
            time.sleep(0.05)
    finally:
        for child in children:
            child.kill()
            child.wait()
    if any(child.returncode for child in children):
        raise RuntimeError("\n".join(log.read_text() for log in logs))
    print("".join(log.read_text() for log in logs), end="")
    return [dict(np.load(file)) for file in files]


def launch_again(count, folder, tries=3):
    """Call `launch`, and retry on another port if another program has taken the port in the meantime."""
    for left in reversed(range(tries)):
        try:
            return launch(count, folder)
        except RuntimeError as error:
            if not left or "address" not in str(error).lower():
                raise


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--join",
        nargs=4,
        metavar=("ADDRESS", "COUNT", "INDEX", "FILE"),
        help="run as one of the processes that this script starts",
    )
    parser.add_argument("--processes", type=int, default=2, help="number of processes, a divisor of the number of arms")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.join:
        address, count, index, file = options.join
        if hasattr(signal, "alarm"):
            signal.alarm(LIMIT)  # ends this process even if its parent no longer exists
        if int(count) > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            jax.distributed.initialize(address, int(count), int(index), initialization_timeout=60)
        work(file)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (alone,) = launch_again(1, folder)
        parts = launch_again(options.processes, folder)
    assert np.isfinite(alone["rms"]) and alone["rms"] < 0.1, "the arms do not track the sine"
    for part in parts:
        np.testing.assert_allclose(part["rms"], alone["rms"], rtol=1e-10)
        np.testing.assert_allclose(part["normal"], alone["normal"], rtol=1e-9, atol=1e-9 * alone["normal"].max())
    np.testing.assert_allclose(np.concatenate([part["ends"] for part in parts]), alone["ends"], rtol=1e-9, atol=1e-9)
    exchanged = alone["normal"].nbytes + alone["rms"].nbytes
    print(f"{options.processes} processes agree with one process, exchanging sums of {exchanged} bytes")


if __name__ == "__main__":
    main()
