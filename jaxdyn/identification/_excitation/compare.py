"""Comparison of an excitation design with random motions and with a recorded motion."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...io._logs.log import Log, check_log
from ...model._chain import Chain
from .._preprocessing.samples import Filters, preprocess
from .._regression.columns import Columns
from .design import ExcitationDesign
from .output import sample_trajectory
from .quality import ExcitationQuality, excitation_quality, variance_ratio


def compare_with_log(
    chain: Chain,
    design: ExcitationDesign,
    log: Log,
    columns: Columns | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    cutoff: float | None = None,
) -> tuple[ExcitationQuality, ExcitationQuality]:
    """Compare the quality of a design with that of a recorded motion.

    Both motions are rated with the same filter, base parameters and number of samples. The design is sampled at the
    log's rate, and both motions are preprocessed with the cutoff chosen for the log. The same number of evenly spaced
    samples is then taken from each, even if their durations differ.

    Args:
        chain: the robot; only its kinematics affect the result.
        design: the design.
        log: the recorded motion.
        columns: columns for which the motion was designed; by default as in `optimal_excitation`.
        torque_noise: (n,) standard deviations of the joint torques [N m or N]; by default all are 1.
        cutoff: cutoff of the filter [Hz]; by default that of `preprocess` for the log.

    Returns:
        The quality of the design, and the quality of the recorded motion.

    Raises:
        LogError: the log seems to be in degrees (`check_log`) or is too short to be filtered, or the cutoff is not between
            0 and half the log's rate.
        IdentificationError: as for `excitation_quality`.
    """
    recorded = preprocess(check_log(log, chain, allow_still=True), Filters(position_cutoff=cutoff, stride=1))
    samples = sample_trajectory(chain, design.trajectory, 1 / float(np.median(np.diff(log.t))))
    own = Log(t=samples.t, q=samples.q, qd=None, tau=samples.tau, source="design")
    filtered = preprocess(own, Filters(position_cutoff=recorded.position_cutoff, stride=1))
    count = min(len(recorded), len(filtered), max(1000, round(20 * recorded.position_cutoff * recorded.t[-1])))
    rated = []
    for x in (filtered, recorded):
        pick = np.linspace(0, len(x) - 1, count).round().astype(int)
        rated.append(excitation_quality(chain, x.q[pick], x.qd[pick], x.qdd[pick], columns, design.base, torque_noise))
    return rated[0], rated[1]


def summary(
    design: ExcitationDesign,
    joint_names: tuple[str, ...],
    compared: tuple[ExcitationQuality, ExcitationQuality] | None = None,
) -> str:
    """Text that compares a design with random and recorded motions, and lists its largest share of each limit."""
    lines = [
        f"{'':30}{'log det':>10}{'condition':>12}{'scaled':>9}   variances of the parameters, relative to the design"
    ]

    def line(name: str, quality: ExcitationQuality, reference: ExcitationQuality) -> str:
        ratio = variance_ratio(reference, quality)
        note = "" if quality is reference else f"{ratio:.2f} times"
        return f"{name:30}{quality.log_det:10.1f}{quality.condition:12.1f}{quality.scaled_condition:9.2f}   {note}"

    quality = design.quality
    lines.append(line(f"design ({quality.parameters} parameters)", quality, quality))
    if design.random:
        ranked = sorted(design.random, key=lambda x: x.log_det)
        if len(ranked) > 1:
            lines.append(line(f"best of {len(ranked)} random motions", ranked[-1], quality))
        lines.append(line("median random motion", ranked[(len(ranked) - 1) // 2], quality))
    if compared is not None:
        lines.append(line("design, same filter as log", compared[0], compared[0]))
        lines.append(line("log", compared[1], compared[0]))
    lines.append("largest share of each limit that is used, on a grid ten times finer than that of the optimisation:")
    for name, share in design.usage.items():
        limit = getattr(design.limits, "upper" if name == "position" else name)
        if np.isfinite(limit).any():
            worst = int(np.argmax(share))
            lines.append(f"  {name.replace('_', ' '):14}{100 * share[worst]:6.1f} %  ({joint_names[worst]})")
        else:
            lines.append(f"  {name.replace('_', ' '):14}  no limit set")
    if np.isfinite(design.clearance):
        lines.append(f"  smallest clearance {design.clearance:.3g}")
    return "\n".join([*lines, *design.notes])
