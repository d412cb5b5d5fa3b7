"""Section on excitation: singular values of the base regressor, and the least excited directions."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...identification._estimators.estimate import Estimate
from ...identification._regression.base_parameters import BaseParameters
from .._markup import Column, columns_table, element, escaped, faint, number, rounded, section
from .._pictures.plot import Curve, Panel, View, plot

_WEAKEST = 3
_NAMED = 0.25  # components above this fraction of the largest are named


@dataclasses.dataclass(frozen=True, eq=False)
class Excitation:
    """Singular values of the weighted base regressor, in units of the noise, in descending order.

    Attributes:
        values: (b,) singular values s_k; the standard deviation of the combination along direction k is 1 / s_k, in
            mixed units.
        scaled: (b,) singular values with columns of unit norm, relative to the largest.
        directions: (b, b) row k contains the direction of scaled[k], with components along the normalised base parameters.
    """

    values: Float[np.ndarray, " b"]
    scaled: Float[np.ndarray, " b"]
    directions: Float[np.ndarray, "b b"]


def excitation(estimate: Estimate) -> Excitation:
    """Singular values of the base regressor W divided by the noise s, computed from the covariance of the estimate.

    For independent residuals, the covariance is C = (W^T W / s^2)^-1. The singular values are the inverse square roots
    of the eigenvalues of C, and the column norms are the square roots of the diagonal of C^-1.
    """
    spread, axes = np.linalg.eigh(estimate.independent_covariance)
    spread = np.maximum(spread, np.finfo(float).eps * spread[-1])
    gram = (axes / spread) @ axes.T
    norms = np.sqrt(np.diag(gram))
    scaled, directions = np.linalg.eigh(gram / norms / norms[:, None])
    scaled = np.sqrt(np.maximum(scaled[::-1], 0))
    return Excitation(1 / np.sqrt(spread), scaled / scaled[0], directions.T[::-1])


def excitation_section(base: BaseParameters, estimate: Estimate) -> str:
    """Section with a picture of the singular values, and the least excited directions in terms of the base parameters."""
    found = excitation(estimate)
    weaker, directions = [], []
    for k in range(base.size - 1, max(-1, base.size - 1 - _WEAKEST), -1):
        part = found.directions[k]
        order = np.argsort(-np.abs(part))
        shown = [i for i in order[:5] if abs(part[i]) >= _NAMED * abs(part[order[0]])]
        sign = np.sign(part[order[0]])
        words = " ".join(
            f"{'' if not n and sign * part[i] > 0 else '+' if sign * part[i] > 0 else '-'} "
            f"{abs(part[i]):.2f} [{base.names[i].split(' ')[0]}{' + ..' if ' ' in base.names[i] else ''}]"
            for n, i in enumerate(shown)
        )
        weaker.append(rounded(found.scaled[0] / found.scaled[k]))
        directions.append(element("code", escaped(words.strip())))
    heading = "direction, in base parameters scaled to equal effect"
    facts = (
        f"{number(estimate.condition, 3)} unscaled and {number(estimate.scaled_condition, 3)} with columns of unit norm"
    )
    return section(
        "Excitation",
        "excitation",
        faint(
            f"Singular values of the base regressor, with the rows of each joint divided by the joint's noise. The condition "
            f"number, the ratio of the largest to the smallest singular value, is {facts}. The second value does not depend on "
            "units. It should be below 30; if it exceeds 100, use another trajectory."
        ),
        element(
            "div",
            _plot(found)
            + element(
                "div",
                element("h3", "Least excited directions")
                + columns_table([Column("times weaker", weaker), Column(heading, directions, "text", "wrap")]),
            ),
            "beside",
        ),
    )


def _plot(found: Excitation) -> str:
    x = np.arange(1.0, len(found.values) + 1)
    given = (
        (found.values / found.values[0], "measured", "unscaled"),
        (found.scaled, "predicted", "columns of unit norm"),
    )
    curves = [Curve(name, colour, np.maximum(y, 1e-300)) for y, colour, name in given]
    panel = Panel("relative to the largest", curves, logarithmic=True)
    return plot("Singular values of the base regressor", [View("number", [panel], x=x)], kind="low")
