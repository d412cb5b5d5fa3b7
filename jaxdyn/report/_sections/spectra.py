"""Spectra of torques and of what the model leaves of them: noise is flat, what the model lacks has the motion's frequencies."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import signal

from ...identification._preprocessing.filters import bandwidth
from ...identification._result import Evaluation
from .._markup import element, faint, figure, rounded, section
from .._pictures.svg import FAINT, INK, MEASURED, RESIDUAL, picture, plain_powers

_STRETCH = 4.0  # [s]


def residual_spectra(
    evaluations: Sequence[Evaluation],
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, "F n"], Float[np.ndarray, "F n"]]:
    """Frequencies [Hz] and Welch's power spectral densities of measured torque and of residual [(N m)^2/Hz].

    The mean over all gap-free pieces of the runs, each weighing by its length, in Hann-windowed stretches of 4 s that
    overlap by half (Welch 1967); of shorter length where every piece is shorter. Their integral over frequency is the
    variance. Means are taken out piece by piece.
    """
    pieces = [
        (e.samples.tau[a:b], (e.samples.tau - e.prediction)[a:b], e.samples.rate)
        for e in evaluations
        for a, b in (e.samples.segments or ((0, len(e.samples)),))
    ]
    rate = min(p[2] for p in pieces)
    longest = max(len(p[0]) / p[2] for p in pieces)
    stretch = min(_STRETCH, longest)
    grid = np.fft.rfftfreq(max(8, int(stretch * rate)), 1 / rate)
    total, weight = np.zeros((2, len(grid), pieces[0][0].shape[1])), 0
    for measured, residual, own in pieces:
        count = int(stretch * own)
        if len(measured) < count or count < 8:
            continue
        for k, y in enumerate((measured, residual)):
            f, power = signal.welch(y - y.mean(0), own, nperseg=count, axis=0, detrend=False)  # type: ignore[arg-type]
            total[k] += len(y) * np.stack([np.interp(grid, f, column) for column in power.T], axis=1)
        weight += len(measured)
    return grid, *(total / max(weight, 1))


def spectra_section(evaluations: Sequence[Evaluation], joints: Sequence[str], units: Sequence[str]) -> str:
    """A picture a joint, and what part of the residual's power lies at the motion's frequencies."""
    frequency, measured, residual = residual_spectra(evaluations)
    moved = max(bandwidth(e.samples.q, e.samples.rate) for e in evaluations)
    cutoff = min(e.samples.torque_cutoff for e in evaluations)
    below = residual[frequency <= moved].sum(0) / np.maximum(residual.sum(0), 1e-300)
    figures = ""
    for j, joint in enumerate(joints):
        detail = f"{rounded(100 * below[j])} % of the residual's power below {rounded(moved)} Hz"
        figures += figure(joint, detail, _svg(frequency, measured[:, j], residual[:, j], moved, cutoff, units[j], j))
    return section(
        "Residual spectra",
        "spectra",
        faint(
            "Power of the measured torque and of what the model leaves of it, by frequency (Welch's method), up to the "
            "low-pass filter. A residual that is flat is noise, and no model will do better. One that has the shape of the "
            f"torque's own spectrum below {rounded(moved)} Hz, where 99 % of the motion is, is something the model lacks; one "
            "that rises with frequency is friction that switches at reversals; lone peaks are ripple or vibration."
        ),
        element("div", figures, "grid"),
    )


def _svg(frequency, measured, residual, moved, cutoff, unit, joint) -> str:
    def draw(figure) -> None:
        axes = figure.subplots()
        figure.subplots_adjust(left=0.155, right=0.985, top=0.9, bottom=0.165)
        shown = (frequency > 0) & (frequency <= 1.5 * cutoff)
        axes.loglog(frequency[shown], measured[shown], color=MEASURED, linewidth=2.2, label="measured")
        axes.loglog(frequency[shown], residual[shown], color=RESIDUAL, linewidth=1.2, label="residual")
        axes.set_xlim(frequency[1] / 1.2, min(1.5 * cutoff, frequency[-1]))
        top = measured[shown].max() * 3
        axes.set_ylim(max(residual[shown].min() / 3, top * 1e-11), top)
        for x, style, name, side in ((moved, ":", " motion", "left"), (cutoff, "--", "low-pass ", "right")):
            if frequency[1] < x < frequency[-1]:
                axes.axvline(x, color=FAINT, linewidth=0.9, linestyle=style)
                axes.text(x, 0.02, name, transform=axes.get_xaxis_transform(), color=FAINT, fontsize=8, ha=side)
        plain_powers(axes.xaxis, axes.yaxis)
        axes.set_xlabel("frequency [Hz]")
        axes.set_ylabel(f"power [({unit})²/Hz]")
        figure.legend(loc="upper right", ncols=2, frameon=False, borderaxespad=0, handlelength=1.8, labelcolor=INK)

    return picture(
        draw, (5.0, 2.9), f"Spectra of measured torque and residual of joint {joint + 1}", f"spectrum {joint}"
    )
