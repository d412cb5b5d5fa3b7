"""The directions of parameter space that no torque shows, one for each parameter that is not identified by itself."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ._base_parameters import BaseParameters


@dataclasses.dataclass(frozen=True, eq=False)
class NullDirection:
    """A change of parameters that changes no torque: `parameter` grows by one while the others change as given.

    Attributes:
        parameter: name of the one that leads it.
        vector: (p,) the change, in column order: 1 for `parameter`, and what makes up for it.
        text: the same to read: "m3 + 1: mz3 + 0.2, Ixx2 - 0.04", or "m1 + 1 alone".
    """

    parameter: str
    vector: Float[np.ndarray, " p"]
    text: str


def null_space(base: BaseParameters, names: tuple[str, ...]) -> tuple[NullDirection, ...]:
    """A basis of the null space of the regressor: W(q, qd, qdd) vector = 0 in every state, p - b directions.

    With the base parameters B p, whose columns of the kept parameters are the identity, the column k of a parameter that was
    not kept gives the direction e_k - sum_i B_ik e_kept(i). Coefficients have the units of the kept parameter over those of
    the leading one.

    Args:
        names: of all p parameters, in column order (`Identification.names`).
    """
    kept = set(base.kept.tolist())
    directions = []
    for k, name in enumerate(names):
        if k in kept:
            continue
        vector = np.zeros(len(names))
        vector[k] = 1
        vector[base.kept] = -base.matrix[:, k]
        others = [i for i in np.flatnonzero(vector) if i != k]
        changes = ", ".join(f"{names[i]} {'+' if vector[i] > 0 else '-'} {abs(vector[i]):.4g}" for i in others)
        directions.append(NullDirection(name, vector, f"{name} + 1: {changes}" if others else f"{name} + 1 alone"))
    return tuple(directions)
