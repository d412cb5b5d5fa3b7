"""Summary section: the verdict and the key figures."""

from collections.abc import Sequence

import numpy as np

from ...identification._result import Identification
from ...identification._validation.diagnostics import Finding
from .._markup import element, escaped, items, number, rounded, section, tile
from .._quality import FAIR, GOOD, pooled, pooled_raw
from .._verdict import LEAST_AGREEING, Verdict
from .parameters import impossible_section

REFIT = "a fit without the held-out part predicted it; the written model fits all data"


def overview(result: Identification, judged: Verdict, findings: Sequence[Finding] = ()) -> str:
    """Section with the verdict and its reasons, suspected faults, and the key figures."""
    fitted, unseen = pooled(result.fitted), pooled(result.validation)
    assert fitted is not None
    raw, raw_fitted = pooled_raw(result.validation if unseen else result.fitted), pooled_raw(result.fitted)
    raw, raw_fitted = (raw, raw_fitted) if raw and raw_fitted else (None, None)  # figures are compared, so of one kind
    best, same = raw or unseen or fitted, raw_fitted or fitted
    moving = np.where(np.isnan(best.relative_moving), -1, best.relative_moving)
    worst = int(np.argmax(moving))
    if unseen:
        what, rest = (
            "held-out motion are",
            f"; for the fitted motion, the error is {rounded(same.total_relative)} %"
            + (f" ({rounded(fitted.total_relative)} %)." if raw else "."),
        )
    else:
        what, rest = "the fitted motion are", "; no motion was held out."
    behind = unseen or fitted
    filtered = f" ({rounded(behind.total_relative)} % after low-pass filtering)" if raw else ""
    total = f"{rounded(best.total_relative)} % of the {'logged ' if raw else ''}torque{filtered}"
    text = f"Torques of {what} predicted with a total error of {total}{rest}"
    if moving[worst] >= 0 and result.chain.n > 1:
        text += f" The worst joint is {result.rows[worst]}, with {rounded(moving[worst])} % while it moves."
    relative = np.nan_to_num(result.wls.relative_standard_deviations, nan=np.inf)
    size, links = result.base.size, len(result.inconsistent_links)
    behind_it = lambda fit: (
        f"{rounded(fit.total_relative)} % filtered; {fit.samples} samples" if raw else f"{fit.samples} samples"
    )
    tiles = [
        tile(
            f"{rounded(best.total_relative)} %",
            "torque error, held out",
            behind_it(unseen),
        )
        if unseen
        else "",
        tile(f"{rounded(same.total_relative)} %", "torque error, fitted", behind_it(fitted)),
        tile(str(size), "base parameters", f"of {len(result.names)} parameters"),
        tile(
            f"{int((relative <= GOOD).sum())} of {size}",
            "well determined",
            f"s.d. up to {GOOD:g} %; {int(((relative > GOOD) & (relative <= FAIR)).sum())} more up to {FAIR:g} %",
        ),
        tile(
            f"{len(halves.names) - len(halves.disagreeing)} of {size}",
            "agree in both halves",
            f"of the {'repeated motion' if halves.of_motion else 'data'}, fitted separately, within 2 s.d.",
            "warn" if halves.share < LEAST_AGREEING else "",
        )
        if (halves := result.split_half) is not None
        else "",
        tile(
            number(result.wls.condition, 3),
            "condition number",
            f"weighted; {number(result.wls.scaled_condition, 3)} with unit-norm columns",
        ),
        tile(str(links), "inconsistent links", f"of {result.chain.n}", "warn" if links else ""),
    ]
    refit = element("p", REFIT[0].upper() + REFIT[1:] + ".") if result.validation_refit and unseen else ""
    return section(
        "Summary",
        "summary",
        element("p", element("b", escaped(judged.headline)), f"verdict stamp {judged.level}"),
        element("ul", "".join(element("li", escaped(c.text), c.level) for c in judged.checks), "checks"),
        _diagnoses(findings),
        element("p", escaped(text)),
        element("div", "".join(tiles), "tiles"),
        refit,
        impossible_section(result),
    )


def _diagnoses(findings: Sequence[Finding]) -> str:
    """Warning with the findings of `diagnose_identification`; empty if there are none."""
    if not findings:
        return ""
    title = element("p", element("b", "Check"))
    return element("div", title + items(finding.text for finding in findings), "warning", id="diagnoses")
