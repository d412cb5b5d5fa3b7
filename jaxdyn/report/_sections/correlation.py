"""Section on the correlation of the estimates, which shows which base parameters the motion separates poorly."""

import base64
import json

import numpy as np
from jaxtyping import Float

from ...identification._estimators.estimate import Estimate
from ...identification._regression.base_parameters import BaseParameters
from .._markup import MINUS, Column, columns_table, element, escaped, faint, folded

_PAIRS = 8  # number of pairs that are named
_SHADES = 10


def correlation(estimate: Estimate) -> Float[np.ndarray, "b b"]:
    """Correlation matrix cov_ij / (s_i s_j) of the estimates; entries are zero where a standard deviation s is zero."""
    s = estimate.standard_deviations
    inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s > 0)
    return np.clip(estimate.covariance * inverse * inverse[:, None], -1.0, 1.0)


def correlation_section(base: BaseParameters, estimate: Estimate) -> str:
    """Section with a picture of the correlation matrix, and a table of its largest values."""
    found = correlation(estimate)
    rows, columns = np.tril_indices(base.size, -1)
    order = np.argsort(-np.abs(found[rows, columns]))[:_PAIRS]
    pairs = [(int(rows[k]), int(columns[k])) for k in order]
    table = columns_table(
        [
            Column("correlation", [f"{found[i, j]:.2f}".replace("-", MINUS) for i, j in pairs]),
            Column("of", [escaped(base.names[i]) for i, _ in pairs], "text", "text sum"),
            Column("and", [escaped(base.names[j]) for _, j in pairs], "text", "text sum"),
        ]
    )
    return folded(
        "Correlation of the base parameters",
        "correlation",
        faint(
            "Correlation between the errors of the estimates, in the order of the table of base parameters. If the correlation "
            "of two parameters is close to 1 or -1, their difference or sum, respectively, is known much more accurately than "
            "each parameter alone."
        ),
        element("div", _matrix(found, base.names) + table, "beside"),
    )


def _matrix(values: Float[np.ndarray, "b b"], names: tuple[str, ...]) -> str:
    """The lower triangle of the matrix as coloured cells, one path per shade; page.js shows the value under the pointer."""
    b = len(values)
    shades = np.where(np.tri(b, dtype=bool), np.round(_SHADES * values), 0).astype(int)
    cells = "".join(
        element(
            "path",
            "",
            "plus" if shade > 0 else "minus",
            d="".join(f"M{j} {i}h1v1h-1z" for i, j in np.argwhere(shades == shade).tolist()),
            fill_opacity=f"{abs(shade) / _SHADES:g}",
        )
        for shade in (*range(-_SHADES, 0), *range(1, _SHADES + 1))
        if np.any(shades == shade)
    )
    coded = base64.b64encode(np.round(100 * values).astype(np.int8).tobytes()).decode("ascii")
    data = json.dumps({"names": names, "values": coded}, ensure_ascii=False).replace("<", "\\u003c")
    key = "".join(element("span", "", f"key {kind}") + text for kind, text in (("plus", "1"), ("minus", f"{MINUS}1")))
    label = f"Correlation matrix of {b} base parameters"
    svg = (
        f'<svg viewBox="-0.2 -0.2 {b + 0.4} {b + 0.4}" role="img" aria-label="{label}">'
        f'<path class="outline" d="M0 0{"".join("h1v1" for _ in range(b))}H0z"/>{cells}<path class="cursor" d=""/></svg>'
    )
    hint = element("output", "Point at a cell to see its value.")
    held = element("script", data, type="application/json")
    return element("figure", svg + element("figcaption", key + " " + hint) + held, "matrix")
