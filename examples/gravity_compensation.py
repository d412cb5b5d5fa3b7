"""Deployment: gravity compensation of a 7R arm, exported to a file, and a 1 kHz loop in a process that has only the file.

The second process needs neither the robot description nor the code that was exported. Every millisecond, its loop reads joint
positions, which are simulated here, and computes the torques to send. The process prints the computation times and the start
delays of the cycles, and plots both in gravity_compensation.png. Use `--seconds 10` for a longer run.
"""

import argparse
import gc
import os
import subprocess
import sys
import time

import jax
import numpy as np

import jaxdyn

RATE, FILE = 1000.0, "panda_gravity.jaxdyn"
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))


def export():
    """Export gravity compensation on the computer that has the robot description and the code."""
    jax.config.update("jax_enable_x64", True)
    robot = jaxdyn.robots.panda()
    jaxdyn.deployment.export_function(jaxdyn.gravity_force, robot, np.zeros(robot.nq), path=FILE)
    print(f"wrote {FILE}, {os.path.getsize(FILE)} bytes")
    q = np.linspace(-0.5, 0.5, robot.nq)
    return np.asarray(jaxdyn.gravity_force(robot, q)), q


def control(ticks):
    """Run the loop on the robot and return the computation time and start delay of every cycle [us]."""
    # By default, JAX's CPU backend computes in a separate thread, and calls return immediately. Waiting for the result
    # then costs two thread switches per cycle. This setting must be changed before the first computation.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_x64", True)
    gravity = jaxdyn.deployment.load_exported(FILE)
    print(gravity)
    q = np.zeros(gravity.nq)
    for _ in range(100):
        np.asarray(gravity(q))  # the first call compiles
    gc.collect()
    gc.freeze()
    gc.disable()  # no garbage collection during the loop
    taken, late = np.zeros(ticks), np.zeros(ticks)
    start = time.perf_counter() + 0.01
    for k in range(ticks):
        due = start + k / RATE
        while (left := due - time.perf_counter()) > 0:
            if left > 3e-4:
                time.sleep(left - 2e-4)  # sleep first, then busy-wait, because sleep overshoots
        begin = time.perf_counter()
        q[:] = 0.5 * np.sin(2 * np.pi * 0.2 * k / RATE)  # "read the encoders"
        torque = np.asarray(gravity(q))  # "send to the drives"
        taken[k], late[k] = time.perf_counter() - begin, begin - due
    gc.enable()
    assert np.isfinite(torque).all()
    return 1e6 * taken, 1e6 * late


def draw(taken, late):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, values, name in zip(axes, (taken, late), ("computation, positions to torques", "start delay"), strict=True):
        values = np.maximum(values, 0.1)
        ax.hist(values, bins=np.geomspace(values.min(), values.max() * 1.01, 60))
        ax.axvline(np.percentile(values, 99), color="tab:red", linestyle="--", label="99th percentile")
        ax.set(xscale="log", yscale="log", xlabel=f"{name} [µs]")
        ax.xaxis.set_minor_formatter("")  # labels of minor ticks would overlap if the axis spans less than a decade
        ax.legend()
    axes[0].set_ylabel("cycles")
    figure.savefig("gravity_compensation.png", dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3 if FAST else 5.0)
    parser.add_argument("--control", action="store_true", help=f"run the control loop of the robot, which reads {FILE}")
    options = parser.parse_args()
    if not options.control:
        torque, q = export()
        jax.config.update("jax_enable_x64", True)
        assert np.allclose(jaxdyn.deployment.load_exported(FILE)(q), torque, rtol=1e-12)
        again = [sys.executable, __file__, "--control", "--seconds", str(options.seconds)]
        raise SystemExit(subprocess.run(again, timeout=120 + options.seconds).returncode)
    taken, late = control(max(10, int(options.seconds * RATE)))
    for name, values in (("computation", taken), ("lateness", late)):
        low, middle, high, top = np.percentile(values, [50, 95, 99, 99.9])
        print(
            f"{name} [us]: median {low:.0f}, 95 % {middle:.0f}, 99 % {high:.0f}, 99.9 % {top:.0f}, max {values.max():.0f}"
        )
    print(f"{(taken > 1e6 / RATE).sum()} of {len(taken)} cycles took longer than {1e6 / RATE:.0f} us")
    draw(taken, late)


if __name__ == "__main__":
    main()
