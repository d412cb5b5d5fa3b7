"""The parameters of a friction model, beside the curves."""

import numpy as np

from ...identification._friction.fit import FrictionFit
from .._markup import DASH, element, escaped, number, rounded, table, unit


def friction_table(fit: FrictionFit) -> str:
    """Linear parameters with their standard deviations, then widths, velocities and exponents joint by joint."""
    n, size = fit.chain.n, fit.base.size
    turns = np.any(np.asarray(fit.chain.screw[:, :3]) != 0, axis=1).tolist()
    names, units = fit.model.names(n), fit.model.units(turns)
    values, deviations = fit.values[size:], np.sqrt(np.diag(fit.covariance))[size:]
    cell = lambda text: element("td", text)
    rows = [
        cell(element("code", escaped(name))) + cell(number(value)) + cell(rounded(sd)) + cell(unit(text))
        for name, value, sd, text in zip(names, values.tolist(), deviations.tolist(), units, strict=True)
    ]
    for k, name in enumerate(fit.model.nonlinear_names()):
        for j in range(n):
            spread = float(fit.nonlinear_deviations[j, k])
            if not np.isfinite(spread):
                continue
            value = float(fit.nonlinear[j, k])
            label = element("code", escaped(f"{name} of joint {j + 1}"))
            rows.append(cell(label) + cell(number(value)) + cell(rounded(abs(value) * spread)) + cell(DASH))
    head = "".join(element("th", text) for text in ("friction model", "value", "sd", "unit"))
    return element(
        "p",
        "Friction was fitted by a model of its own, in place of viscous, Coulomb and constant terms; the curve in each picture "
        "is the nearest such law, which the model files hold. Predicted torques are the friction model's.",
    ) + table([head], rows)
