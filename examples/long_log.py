"""Identification from a log larger than memory, which is read in parts, in one or several processes.

The script first writes the log to a file. `work` contains the user's program, which does not depend on the number of
processes. Each process reads its share of the file in parts and reduces it to triangular factors; at the end, the factors
of all processes are merged and saved. By default, the script runs `work` in one and in two processes, and
compares the results. On a cluster, every process calls `jax.distributed.initialize()`, which discovers the
other processes, and then `work`.
"""

import argparse
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np

import jaxdyn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
SAMPLES, RATE, PART, CUTOFF = (6_000, 100.0, 1_000, 5.0) if FAST else (24_000, 200.0, 5_000, 10.0)
COLUMNS = jaxdyn.identification.Columns(("viscous", "coulomb", "offset"))
LIMIT = 300  # time after which a hanging process is killed [s]


def write_log(file):
    """Write an .npz log of an arm that tracks sines for one or two minutes, with noise on the torques."""
    arm = jaxdyn.robots.ur10()
    rng = np.random.default_rng(0)
    t = np.arange(SAMPLES) / RATE
    omega = 2 * np.pi * np.array([0.11, 0.31, 0.53])[:, None, None]
    angle = omega * t[:, None] + rng.uniform(0, 6, (3, 1, arm.n))
    size = rng.normal(size=(3, 1, arm.n)) * 0.5
    q, qd, qdd = (
        (size * np.sin(angle)).sum(0),
        (omega * size * np.cos(angle)).sum(0),
        -(omega**2 * size * np.sin(angle)).sum(0),
    )
    tau = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0)))(arm, q, qd, qdd)
    np.savez(file, t=t, q=q, tau=np.asarray(tau) + rng.normal(size=q.shape))


def work(log, result):
    """Run the user's program; every process calls this function."""
    arm = jaxdyn.robots.ur10()
    parts = jaxdyn.identification.preprocess_stream(
        jaxdyn.io.read_log_chunks(log, PART), jaxdyn.identification.Filters(position_cutoff=CUTOFF, stride=1)
    )
    mine = itertools.islice(parts, jax.process_index(), None, jax.process_count())  # every n-th part
    factors = jaxdyn.identification.merge_over_processes(jaxdyn.identification.accumulate_stream(COLUMNS, arm, mine))
    estimate = jaxdyn.identification.solve(factors, jaxdyn.identification.base_parameters(arm, COLUMNS))
    if jax.process_index() == 0:
        jaxdyn.identification.save_factors(result, factors)
    print(
        f"process {jax.process_index()} of {jax.process_count()}: "
        f"{factors.total.counts[0]} samples, noise {np.round(estimate.noise, 4)} N m"
    )


def launch(folder, processes):
    """Run `work` in separate processes and return the factors."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = folder / f"{processes}.npz"
    order = [sys.executable, __file__, "--join", f"127.0.0.1:{port}", str(processes)]
    names = [folder / f"{processes}-{i}.log" for i in range(processes)]
    children = []
    try:
        for i in range(processes):
            with open(names[i], "w") as out:
                command = [*order, str(i), str(folder / "log.npz"), str(file)]
                children.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
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
        raise RuntimeError("\n".join(name.read_text() for name in names))
    print("".join(name.read_text() for name in names), end="")
    return jaxdyn.identification.load_factors(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--join",
        nargs=5,
        metavar=("ADDRESS", "COUNT", "INDEX", "LOG", "FILE"),
        help="run as one of the processes that this script starts",
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.join:
        address, count, index, log, file = options.join
        if int(count) > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            jax.distributed.initialize(address, int(count), int(index), initialization_timeout=60)
        work(log, file)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.npz")
        alone, two = (launch(folder, count) for count in (1, 2))
    arm = jaxdyn.robots.ur10()
    base = jaxdyn.identification.base_parameters(arm, COLUMNS)
    one, both = (jaxdyn.identification.solve(f, base) for f in (alone, two))
    off = np.abs((both.values - one.values) / one.standard_deviations).max()
    print(f"two processes agree with one to {off:.0e} standard deviations")
    assert off < 1e-7
    draw(base, one)


def draw(base, estimate):
    """Plot the standard deviation of each base parameter."""
    order = np.argsort(estimate.relative_standard_deviations)
    figure, axes = plt.subplots(figsize=(8, 0.17 * len(order) + 1.2), layout="constrained")
    names = [base.names[k] if len(base.names[k]) < 50 else base.names[k][:47] + "..." for k in order]
    axes.barh(names, estimate.relative_standard_deviations[order], color="#0b5d8a")
    axes.set(
        xscale="log", xlabel="standard deviation [% of the estimate]", title="Base parameters of a UR10 from a long log"
    )
    axes.tick_params(axis="y", labelsize=6)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    figure.savefig("long_log.png", dpi=110)


if __name__ == "__main__":
    main()
