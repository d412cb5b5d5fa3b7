"""Tables and plots of excitation trajectories."""

import io
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import friction_force, inverse_dynamics
from ...errors import IdentificationError
from ...io._files import write_whole
from ...model._chain import Chain
from .._regression.robot import as_float64
from .limits import MotionLimits, bounded
from .trajectories import JointTrajectory


class TrajectorySamples(NamedTuple):
    """A trajectory sampled uniformly from start to end.

    Attributes:
        t: times [s].
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations [rad/s^2 or m/s^2].
        tau: torques required by the motion, including friction [N m or N].
    """

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N n"]
    qd: Float[np.ndarray, "N n"]
    qdd: Float[np.ndarray, "N n"]
    tau: Float[np.ndarray, "N n"]


def sample_trajectory(chain: Chain, trajectory: JointTrajectory, rate: float = 1000.0) -> TrajectorySamples:
    """Sample a trajectory and its torques in float64, at t = 0, 1 / rate, ... up to its duration.

    Args:
        chain: the robot, whose inertias and friction determine the torques.
        trajectory: the motion t -> q, qd, qdd.
        rate: sample rate [1/s].

    Raises:
        IdentificationError: the rate is not positive, or is so low that there would be fewer than two samples.
    """
    if not (rate > 0 and np.isfinite(rate) and rate * trajectory.duration >= 1):
        raise IdentificationError(
            f"{rate:g} samples per second are too few for a motion of {trajectory.duration:g} s; specify a higher rate"
        )
    t = np.arange(int(trajectory.duration * rate + 1e-6) + 1) / rate
    with jax.enable_x64(True):

        @jax.jit
        def sampled(chain, t):
            motion = trajectory(t)
            return *motion, jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))(*motion)

        return TrajectorySamples(t, *(np.asarray(x) for x in sampled(as_float64(chain), jnp.asarray(t))))


def write_trajectory(path: str | os.PathLike[str], samples: TrajectorySamples) -> None:
    """Write samples as a table with columns t, q1.., qd1.., qdd1.., tau1.., which `read_log` reads as a log.

    All numbers are in SI units. The file is either written completely or left unchanged.

    Args:
        path: the file.
        samples: the samples.

    Raises:
        ModelError: the file cannot be written; an existing file remains unchanged.
    """
    n = samples.q.shape[1]
    names = ["t", *(f"{name}{j + 1}" for name in ("q", "qd", "qdd", "tau") for j in range(n))]
    text = io.StringIO()
    rows = np.column_stack(samples)
    np.savetxt(text, rows + 0.0, fmt="%.10g", delimiter=",", header=",".join(names), comments="")  # + 0: no -0
    write_whole(path, text.getvalue())


def draw_trajectory(
    path: str | os.PathLike[str], chain: Chain, samples: TrajectorySamples, limits: MotionLimits
) -> None:
    """Plot q, qd, qdd and tau of every joint over time, relative to their limits.

    Positions are plotted as distances from the middle of their range, so that their limits are -1 and 1. Quantities
    without a limit are plotted relative to their largest magnitude.

    Args:
        path: the file; its suffix determines the format (png if there is none).
        chain: the robot.
        samples: the samples.
        limits: limits from `motion_limits`.

    Raises:
        ModelError: the file cannot be written; an existing file remains unchanged.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    limits = bounded(chain, limits)
    middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
    rows = (
        ("position", samples.q - middle, half),
        ("velocity", samples.qd, limits.velocity),
        ("acceleration", samples.qdd, limits.acceleration),
        ("torque", samples.tau, limits.torque),
    )
    figure = Figure(figsize=(9, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), 1, sharex=True)
    for ax, (name, values, limit) in zip(axes, rows, strict=True):
        own = np.maximum(np.abs(values).max(axis=0), 1e-12)
        lines = ax.plot(samples.t, values / np.where(np.isfinite(limit), limit, own), linewidth=1)
        for y in (-1, 1):
            ax.axhline(y, color="black", linewidth=0.8, linestyle="--")
        free = "" if np.isfinite(limit).any() else " (no limit: relative to the largest value)"
        ax.set_ylabel(f"{name} / limit{free}")
        ax.set_ylim(-1.1, 1.1)
        ax.grid(alpha=0.3)
    axes[-1].set(xlabel="t [s]", xlim=(samples.t[0], samples.t[-1]))
    figure.legend(lines, chain.joint_names, loc="outside upper center", ncols=min(chain.n, 4), frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format=os.path.splitext(os.fspath(path))[1][1:] or "png", dpi=110)
    write_whole(path, picture.getvalue())
