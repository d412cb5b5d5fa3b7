"""Identification of a heavy payload in a Panda's gripper, and a fast motion with this payload within the torque limits.

First, `identify_payload` identifies the mass, centre of mass and inertia of the payload from a few seconds of motion. Then
the script plans a fast minimum-torque motion within 90 % of the torque limits with three models: without payload, with the
identified payload and with the true payload. Each plan is executed on the true arm by computed-torque control with the model
of the plan; the motors saturate at their limits. The model of the arm without payload is assumed to be known; if it is not,
see notebooks/identify_a_log.ipynb. Writes payload_motion.png.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.interpolate import make_lsq_spline

import jaxdyn

jax.config.update("jax_enable_x64", True)
steps, seconds = (24, 6.0) if os.environ.get("JAXDYN_EXAMPLES_FAST") else (48, 15.0)
duration, dt, shown, intervals = 0.7, 1e-3, 1.2, 8

model = jaxdyn.robots.panda(friction=jaxdyn.Friction(viscous=1.0))
body = jaxdyn.spatial.solids.box(
    3.0, (0.1, 0.1, 0.2), jaxdyn.spatial.se3.pose(jnp.eye(3), jnp.array([0.03, 0.0, 0.25]))
)
tip = model.link_names[-1]


def holding(parameters):
    """The arm with a body attached to the flange, given the ten inertial parameters of the body."""
    return jaxdyn.with_inertial_parameters(model, model.inertia.at[-1].add(jnp.asarray(parameters)))


arm = holding(body)

# a run with the payload, as logged by the robot
excitation = jaxdyn.identification.random_excitation(arm, seconds, 5, 1)
log = jaxdyn.identification.synthetic_log(arm, excitation, None, 100.0, 1e-5, 1.0, 1, "with payload")
found = jaxdyn.identification.identify_payload(model, log, frame=tip)
print(f"payload: {found.mass:.3f} +- {found.standard_deviations[0]:.3f} kg (true: {body[0]:.3f} kg);", end=" ")
print(f"centre of mass {1e3 * float(np.linalg.norm(found.com - body[1:4] / body[0])):.1f} mm from the true one")

limits = jaxdyn.trajectory.torque_limits(model, 0.8)
start = jnp.array([0.0, -0.4, 0.0, -2.0, 0.0, 1.6, 0.8])
goal = jnp.array([1.2, 0.5, -0.4, -1.2, 0.3, 2.0, 0.2])
rest = jnp.zeros(7)


@jax.jit
def plan(believed):
    """Plan the minimum-torque motion within 90 % of the limits, which leaves a margin for feedback."""
    problem = jaxdyn.trajectory.OptimalControlProblem(
        believed,
        start,
        rest,
        steps,
        duration / steps,
        running=(
            jaxdyn.trajectory.TorqueCost(1.0 / limits[:, 1]),
            jaxdyn.trajectory.StateCost(goal, rest, 0.0, 0.3 / model.limits.velocity),
        ),
        constraints=(jaxdyn.trajectory.velocity_limits(model),),
        terminal_constraints=(jaxdyn.trajectory.StateConstraint(goal, rest),),
        torque_limits=0.9 * limits,
    )
    return jaxdyn.trajectory.solve_by_inverse_dynamics(problem, intervals=intervals, tolerance=1e-6)


def sampled(trajectory):
    """The plan as a reference at the controller's times, at rest after arrival; exact, because the plan is a spline."""
    t = np.asarray(trajectory.t)
    knots = t[-1] * np.concatenate([np.zeros(5), np.linspace(0, 1, intervals + 1), np.ones(5)])
    spline = make_lsq_spline(t, np.asarray(trajectory.q), knots, k=5)
    times = np.arange(round(shown / dt)) * dt
    moving = (times < t[-1])[:, None]
    rows = [spline.derivative(k)(np.minimum(times, t[-1])) * np.where(k, moving, True) for k in range(3)]
    return jaxdyn.control.JointReference(*map(jnp.asarray, rows))


@jax.jit
def play(believed, reference):
    """Simulate the true arm under computed-torque control with the given model; return commanded torques and tool errors."""

    def law(_, t, q, v):
        now = jax.tree.map(lambda rows: rows[jnp.round(t / dt).astype(int)], reference)
        wanted = jaxdyn.control.computed_torque(believed, q, v, now, 400.0, 40.0)
        return jnp.clip(wanted, limits[:, 0], limits[:, 1]), wanted

    motion = jaxdyn.control.controlled_rollout(arm, start, rest, (law, rest), dt, len(reference.q))
    tool = jax.vmap(lambda q: jaxdyn.frame_pose(arm, q)[:3, 3])
    return motion.state[1:], jnp.linalg.norm(tool(motion.q[:-1]) - tool(reference.q), axis=1)


runs = {}
print("model       cost    commanded torque   saturated   tool error during motion, at arrival, 0.3 s later")
for name, believed in (("nominal", model), ("identified", holding(found.body)), ("true", arm)):
    solution = plan(believed)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED, solution.message
    wanted, off = play(believed, sampled(solution.trajectory))
    used = wanted / limits[:, 1]
    saturated = dt * float((jnp.abs(used) > 1).any(axis=1).sum())
    at = round(duration / dt)
    print(
        f"{name:10s}  {solution.cost:.3f}   {100 * jnp.abs(used).max():.0f} % of the limit   {1e3 * saturated:3.0f} ms   "
        f"{1e3 * off.max():6.2f} mm  {1e3 * off[at]:6.2f} mm  {1e3 * off[at + round(0.3 / dt)]:6.2f} mm"
    )
    runs[name] = used, off
assert jnp.abs(runs["identified"][0]).max() < 1
assert runs["identified"][1].max() < 0.2 * runs["nominal"][1].max()

figure = Figure(figsize=(9, 5.4), layout="constrained")
axes = figure.subplot_mosaic([["nominal", "identified"], ["error", "error"]], height_ratios=(1.15, 1))
times = np.arange(round(shown / dt)) * dt
for name in ("nominal", "identified"):
    used, _ = runs[name]
    lines = axes[name].plot(times, used, lw=1.2, label=[f"joint {j + 1}" for j in range(7)])
    axes[name].axhspan(-1, 1, fc="0.94", zorder=0)
    axes[name].axvline(duration, c="0.5", ls=":", lw=1)
    axes[name].set(xlabel="time [s]", title=f"plan and controller with the {name} model", xlim=(0, times[-1]))
axes["nominal"].set(ylabel="commanded torque / limit")
axes["identified"].sharey(axes["nominal"])
axes["identified"].legend(ncols=2, fontsize="x-small", loc="lower right")
for name, colour in (("nominal", "C3"), ("identified", "C0"), ("true", "0.5")):
    _, off = runs[name]
    style = "--" if name == "true" else "-"
    axes["error"].semilogy(times, 1e3 * np.maximum(off, 1e-7), c=colour, ls=style, label=name)
axes["error"].set(xlabel="time [s]", ylabel="tool error [mm]", xlim=(0, times[-1]), ylim=(1e-3, None))
axes["error"].axvline(duration, c="0.5", ls=":", lw=1)
axes["error"].legend(title="model", fontsize="small", title_fontsize="small")
figure.savefig("payload_motion.png", dpi=80)
