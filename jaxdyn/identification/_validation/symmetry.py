"""Comparison of left and right limbs, as a test of an identification that does not assume symmetry."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from .._regression.mirror import mirrored_links, mirrored_parameters
from .._result import Identification

AGREEING = 2.0  # standard deviations
SEEN = 1e-7  # below this relative singular value, a difference between limbs is not determined


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
    """Agreement between the identified parameters of left and right limbs.

    Attributes:
        pairs: the compared pairs of links, (left, right).
        differences: statistically independent differences between identifiable parameter combinations, in standard
            deviations.
    """

    pairs: tuple[tuple[str, str], ...]
    differences: Float[np.ndarray, " d"]

    @property
    def share(self) -> float:
        """Fraction of the differences that are below two standard deviations; about 0.95 for equal limbs."""
        return float(np.mean(np.abs(self.differences) <= AGREEING))

    @property
    def rms(self) -> float:
        """RMS of the differences, in standard deviations; about 1 for equal limbs."""
        return float(np.sqrt(np.mean(self.differences**2)))

    def __str__(self) -> str:
        agree = int((np.abs(self.differences) <= AGREEING).sum())
        return (
            f"left and right limbs agree in {agree} of {len(self.differences)} combinations within 2 standard deviations "
            f"(RMS {self.rms:.2g} standard deviations)"
        )


def limb_symmetry(result: Identification, pairs: Sequence[tuple[str, str]] | None = None) -> Symmetry:
    """Test whether independently identified left and right limbs are mirror images within their uncertainty.

    The difference of a pair is pi_right - T pi_left, where the matrix T maps the parameters of the left link to those
    of its mirror image. Those combinations of the differences that depend only on base parameters are decorrelated and
    divided by their standard deviations.

    Most robots are built symmetrically. Results well above 1 therefore show that the standard deviations are too small
    or that the limbs really differ, for example because of a battery, cables or worn gears on one side. If
    `Knowledge.mirrored` was specified, the fit itself makes the differences small, and the test is not informative.

    Args:
        result: result of `identify`.
        pairs: pairs of links, (left, right); by default the result of `mirrored_links`.

    Raises:
        IdentificationError: there are no pairs, a link is unknown, two links do not mirror each other, or the logs do
            not determine any difference.
    """
    chain, base = result.prior, result.base
    pairs = tuple(mirrored_links(chain) if pairs is None else pairs)
    if not pairs:
        raise IdentificationError(
            "no two links of this robot mirror each other in the x-z plane of its base: name the pairs"
        )
    rows = np.zeros((10 * len(pairs), base.matrix.shape[1]))
    for k, (left, right) in enumerate(pairs):
        at, image = slice(10 * k, 10 * k + 10), mirrored_parameters(chain, left, right)
        i, j = (10 * chain.link_names.index(name) for name in (left, right))
        rows[at, j : j + 10], rows[at, i : i + 10] = np.eye(10), -image
    combine = _determined(rows, base.matrix)
    if not len(combine):
        raise IdentificationError("the logs do not determine any difference between the limbs")
    change = combine @ rows @ np.linalg.pinv(base.matrix)
    covariance = change @ result.wls.covariance @ change.T
    scale = np.sqrt(np.diag(covariance))
    values, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > 1e-9 * values[-1]
    off = axes[:, kept].T @ ((change @ result.wls.values) / scale)
    return Symmetry(pairs, off / np.sqrt(values[kept]))


def _determined(rows: Float[np.ndarray, "m p"], base: Float[np.ndarray, "b p"]) -> Float[np.ndarray, "d m"]:
    """Matrix A for which the rows of A @ rows lie in the row space of `base`."""
    _, _, vt = np.linalg.svd(base)
    null = vt[len(base) :].T
    if not null.shape[1]:
        return np.eye(len(rows))
    u, s, _ = np.linalg.svd(rows @ null)
    rank = int((s > SEEN * max(s.max(initial=0), 1e-300)).sum())
    return u[:, rank:].T
