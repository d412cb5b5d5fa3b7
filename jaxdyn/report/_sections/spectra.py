"""Section with spectra of torques and residuals, which distinguish noise from model errors within the motion's band."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import signal

from ...identification._preprocessing.filters import bandwidth
from ...identification._result import Evaluation
from .._markup import faint, rounded, section
from .._pictures.plot import Curve, Panel, View, plot
from .._quality import measured_rows

_STRETCH = 4.0  # window length [s]


def residual_spectra(
    evaluations: Sequence[Evaluation],
) -> tuple[Float[np.ndarray, " F"], Float[np.ndarray, "F n"], Float[np.ndarray, "F n"]]:
    """Frequencies [Hz] and power spectral densities of the measured torque and of the residual [(N m)^2/Hz or N^2/Hz].

    Welch's method (1967) is applied to all gap-free pieces of the runs, and the results are averaged with weights
    proportional to length. Hann windows of 4 s overlap by half; windows are shorter if every piece is shorter than 4 s.
    The mean of each piece is removed. The integral of a density over frequency is the variance.
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
    """Section with spectra of a selectable joint, and the fraction of the residual's power within the motion's band."""
    frequency, measured, residual = residual_spectra(evaluations)
    moved = max(bandwidth(e.samples.q, e.samples.rate) for e in evaluations)
    cutoff = min(e.samples.torque_cutoff for e in evaluations)
    below = residual[frequency <= moved].sum(0) / np.maximum(residual.sum(0), 1e-300)
    shown = (frequency > 0) & (frequency <= 1.5 * cutoff)
    marks = [(x, name) for x, name in ((moved, "motion"), (cutoff, "low-pass")) if x > frequency[1]]
    views, x = [], frequency[shown]
    chosen = measured_rows(evaluations)
    for j in chosen:
        # avoids the logarithm of zero
        powers = [np.maximum(power[shown, j], 1e-300) for power in (measured, residual)]
        curves = [Curve("measured", "measured", powers[0], width=2.2), Curve("residual", "residual", powers[1])]
        top = 3 * float(powers[0].max())
        limits = (max(float(powers[1].min()) / 3, 1e-11 * top), top)
        panel = Panel(f"power [({units[j]})²/Hz]", curves, logarithmic=True, limits=limits)
        caption = f"{rounded(100 * below[j])} % of the residual's power below {rounded(moved)} Hz"
        views.append(View("frequency [Hz]", [panel], caption, x, logarithmic=True, marks=marks))
    return section(
        "Residual spectra",
        "spectra",
        plot("Spectra of measured torque and of the residual", views, [("joint", [joints[j] for j in chosen])], "low"),
        faint(
            "Power spectral densities (Welch's method) up to the low-pass cutoff. A flat residual is noise. A residual "
            f"spectrum that resembles that of the torque below {rounded(moved)} Hz, the band that contains 99 % of the "
            "motion, indicates missing model terms. A residual spectrum that rises with frequency indicates friction at "
            "reversals. Isolated peaks indicate ripple or vibration."
        ),
    )
