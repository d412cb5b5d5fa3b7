"""A computed-torque loop at 1 kHz: time from state to torques, start jitter, and tracking error.

The robot is a simulated 7R arm, whose masses differ from those of the controller's model by up to 10 %. Every millisecond,
the loop reads the state, computes torques and "sends" them. Latencies do not include the simulation. The script prints the
distribution of latencies and the number of missed deadlines, and plots latencies and tracking errors in control_loop.png.
Use `--turns 60000` for a longer run.
"""

import argparse
import gc
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxdyn

# By default, JAX's CPU backend computes in a separate thread, and calls return immediately. Waiting for the result then costs
# two thread switches. This setting must be changed before the first computation:
jax.config.update("jax_cpu_enable_async_dispatch", False)
jax.config.update("jax_enable_x64", True)
FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
PERIOD = 1e-3

model = jaxdyn.robots.panda()
scale = 1 + 0.1 * jax.random.uniform(jax.random.key(0), (model.n, 1), minval=-1.0, maxval=1.0)
robot = jaxdyn.with_inertial_parameters(model, model.inertia * scale)
centre = jnp.array([0.0, -0.3, 0.0, -2.0, 0.0, 2.0, 0.8])
frequency = jnp.linspace(1.0, 3.0, 7)


def reference(t):
    turn = frequency * t
    return jaxdyn.control.JointReference(
        centre + 0.3 * (1 - jnp.cos(turn)), 0.3 * frequency * jnp.sin(turn), 0.3 * frequency**2 * jnp.cos(turn)
    )


@jax.jit  # the model is closed over, so its parameters become constants of the program
def control(t, q, v):
    wanted = reference(t)
    return jaxdyn.control.computed_torque(model, q, v, wanted, kp=400.0, kd=40.0), wanted.q - q


@jax.jit
def plant(q, v, tau):
    return jaxdyn.step(robot, q, v, tau, PERIOD)


def loop(turns):
    """Computation time [s], start delay [s] and joint tracking errors [rad] of every cycle."""
    q, v = np.asarray(centre), np.zeros(7)
    for _ in range(100):  # the first call compiles
        tau, _ = control(0.0, q, v)
        plant(q, v, np.asarray(tau))
    taken, late, error = np.zeros(turns), np.zeros(turns), np.zeros((turns, 7))
    gc.collect()
    gc.freeze()
    gc.disable()  # no garbage collection during the loop
    start = time.perf_counter() + 0.01
    for k in range(turns):
        due = start + k * PERIOD
        while (left := due - time.perf_counter()) > 0:
            if left > 3e-4:
                time.sleep(left - 2e-4)  # sleep first, then busy-wait, because sleep overshoots
        begin = time.perf_counter()
        tau, missing = control(k * PERIOD, q, v)
        tau = np.asarray(tau)  # "send to the drives"
        taken[k], late[k] = time.perf_counter() - begin, begin - due
        error[k] = missing
        q, v = (np.asarray(x) for x in plant(q, v, tau))
    gc.enable()
    return taken, late, error


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500 if FAST else 5000)
    taken, late, error = loop(max(10, parser.parse_args().turns))
    for name, values in (("latency", taken), ("lateness", late)):
        middle, high = np.percentile(1e6 * values, [50, 99])
        print(f"{name} [us]: p50 {middle:.0f}, p99 {high:.0f}, max {1e6 * values.max():.0f}")
    missed = (late + taken > PERIOD).sum()
    print(f"{(taken > PERIOD).sum()} of {len(taken)} cycles took longer than 1 ms; {missed} missed their deadline")
    print(f"largest tracking error in the second half: {1e3 * np.abs(error[len(error) // 2 :]).max():.2f} mrad")
    assert np.isfinite(error).all() and np.abs(error).max() < 0.2

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    bins = np.geomspace(max(1.0, 1e6 * taken.min() * 0.8), max(2e3, 1e6 * (late + taken).max() * 1.1), 70)
    left.hist(1e6 * taken, bins=bins, alpha=0.7, label="from state to torques")
    left.hist(1e6 * (late + taken), bins=bins, histtype="step", label="from the start of the period")
    left.axvline(1e6 * np.percentile(taken, 99), color="tab:red", linestyle="--", linewidth=1, label="99th percentile")
    left.axvline(1e6 * PERIOD, color="black", linewidth=1, label="period")
    left.set(xscale="log", yscale="log", xlabel="latency [µs]", ylabel="cycles")
    left.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    right.plot(PERIOD * np.arange(len(error)), 1e3 * error, label=[f"joint {j + 1}" for j in range(error.shape[1])])
    right.set(xlabel="time [s]", ylabel="tracking error [mrad]")
    right.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    figure.savefig("control_loop.png", dpi=120)


if __name__ == "__main__":
    main()
