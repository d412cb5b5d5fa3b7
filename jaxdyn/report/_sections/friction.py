"""Section on friction: measured samples, and the fitted friction law."""

import dataclasses
import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import friction_force
from ...identification._friction.fit import FrictionFit
from ...identification._regression.completion import model_torque
from ...identification._regression.robot import as_float64
from ...identification._result import Evaluation, Identification
from ...io._logs.motion import coordinate_names
from ...model._chain import Chain
from ...model._layout import leading_joints, turning_joints
from .._accuracy import with_drive
from .._markup import DASH, Column, columns_table, element, escaped, faint, number, rounded, section, unit
from .._pictures.plot import Curve, Panel, View, plot
from .._quality import measured_rows, together

_MOST = 1200  # maximum number of dots per view
_BINS = 24


@dataclasses.dataclass(frozen=True, eq=False)
class FrictionSamples:
    """Friction versus velocity for all joints.

    Attributes:
        qd: (N, n) velocities of the samples [rad/s or m/s].
        torque: (N, n) measured torque minus predicted torque without friction [N m or N].
        grid: (G, n) velocities of the curve, symmetric about zero and denser near zero [rad/s or m/s].
        curve: (G, n) friction_force of the model on the grid [N m or N].
    """

    qd: Float[np.ndarray, "N n"]
    torque: Float[np.ndarray, "N n"]
    grid: Float[np.ndarray, "G n"]
    curve: Float[np.ndarray, "G n"]


def friction_samples(chain: Chain, evaluations: Sequence[Evaluation], modelled: bool = False) -> FrictionSamples:
    """Samples tau - (prediction - friction_force(qd)), and the curve friction_force over the range of velocities.

    All other fitted torques (rigid body, rotors, further terms) are subtracted from the measured torque, so the samples
    are the fitted curve plus the residual.

    Args:
        modelled: True if the predictions contain a friction model that depends on more than velocity. In that case, the
            torque of the chain without friction is subtracted from the measured torque instead, and the effect of the
            low-pass filter on the friction model is undone, because the curve is not filtered either.
    """
    data = together(evaluations)
    qd, residual = data.qd, data.error
    if modelled:
        residual = data.tau - np.concatenate([model_torque(chain, e.samples) - smoothing(e) for e in evaluations])
    fastest = np.abs(qd).max(axis=0)
    fine = np.sinh(np.linspace(-7, 7, 301)) / np.sinh(7.0)
    grid = fine[:, None] * fastest
    with jax.enable_x64(True):
        model = as_float64(chain)
        torque, curve = np.split(np.asarray(_friction(model, jnp.asarray(np.concatenate([qd, grid])))), [len(qd)])
    return FrictionSamples(qd, torque + residual, grid, curve)


def smoothing(e: Evaluation) -> Float[np.ndarray, "N n"]:
    """What the low-pass filter removes from the predicted friction: unfiltered minus filtered prediction [N m or N]."""
    return np.zeros_like(e.prediction) if e.logged is None else e.logged[1] - e.prediction


@jax.jit
def _friction(chain: Chain, qd):
    return jax.vmap(lambda v: friction_force(chain, v))(qd)


def binned_medians(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], bins: int = _BINS
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Medians of x and y in bins along x with equal numbers of samples, separately for each sign of x."""
    points = []
    for side in (x < 0, x > 0):
        order = np.argsort(x[side])
        if len(order) >= bins:
            points += [
                (np.median(x[side][part]), np.median(y[side][part])) for part in np.array_split(order, bins // 2)
            ]
    return tuple(np.array(points).reshape(-1, 2).T)  # type: ignore[return-value]


def with_friction(chain: Chain, evaluations: Sequence[Evaluation]) -> list[int]:
    """Coordinates whose friction can be shown: those with a drive and a measured torque."""
    return [j for j in measured_rows(evaluations) if with_drive(chain)[j]]


def friction_section(
    chain: Chain, evaluations: Sequence[Evaluation], units: Sequence[str], fit: FrictionFit | None = None
) -> str:
    """Section with samples, medians and fitted curve of a selectable joint, and the parameters of a friction model."""
    data = friction_samples(chain, evaluations, fit is not None)
    turns = turning_joints(chain)[leading_joints(chain)]
    joints = with_friction(chain, evaluations)
    views = [_view(data, j, bool(turns[j]), units[j]) for j in joints]
    return section(
        "Friction",
        "friction",
        plot("Friction versus velocity", views, [("joint", [coordinate_names(chain)[j] for j in joints])], "low"),
        faint(
            "Measured torque minus predicted torque without friction. Dots are samples of the fitted runs, rings are medians "
            "over equal numbers of samples, and the line is the fitted law. Rings off the line indicate a different friction "
            "law: Stribeck friction if friction first falls and then rises with speed, or asymmetric friction if the two "
            "directions differ. Scatter that widens near standstill indicates presliding. Scatter that is wide everywhere "
            "indicates rigid-body model errors or load-dependent friction."
        ),
        _table(fit) if fit else "",
    )


def friction_name(result: Identification) -> str:
    """The fitted friction in words: its terms, with their joints if they do not apply to all."""
    n = result.chain.n
    if result.friction is None:
        words = {"viscous": "viscous", "coulomb": "Coulomb", "offset": "constant"}
        terms = [words[term] for term in result.columns.drive_terms if term in words]
        return f"{', '.join(terms)} friction at every joint" if terms else "none identified"
    terms = []
    for term in result.friction.model.terms:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(term).__name__)
        name = {"Viscous": "viscous", "Offset": "constant"}.get(name, name)
        joints = (
            []
            if term.joints is None or len(term.joints) == n
            else [result.chain.joint_names[j - 1] for j in term.joints]
        )
        terms.append(name + (f" ({', '.join(joints)})" if joints else ""))
    return ", ".join(terms)


def _view(data: FrictionSamples, joint: int, turns: bool, unit: str) -> View:
    x, y = data.qd[:, joint], data.torque[:, joint]
    spread = float(np.std(y - np.interp(x, data.grid[:, joint], data.curve[:, joint])))
    most = rounded(float(np.abs(data.curve[:, joint]).max()))
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST)).round().astype(int))
    low, high = np.percentile(y, [0.2, 99.8])
    low, high = min(low, data.curve[:, joint].min()), max(high, data.curve[:, joint].max())
    room = 0.08 * float(high - low)
    middle = binned_medians(x, y)
    curves = [
        Curve("samples", "measured", y[chosen], x=x[chosen], style="dots"),
        Curve("fitted", "predicted", data.curve[:, joint], x=data.grid[:, joint], width=2.0),
        Curve("medians", "ink", middle[1], x=middle[0], style="rings"),
    ]
    return View(
        "velocity [rad/s]" if turns else "velocity [m/s]",
        [Panel(f"friction [{unit}]", curves, limits=(float(low) - room, float(high) + room))],
        f"up to {most} {unit}, standard deviation about the curve {rounded(spread)}",
    )


def _table(fit: FrictionFit) -> str:
    """Table of linear parameters with their standard deviations, then of widths, velocities and exponents, by joint."""
    names, values, deviations, units = fit.rows()
    units = [unit(text) if text else DASH for text in units]
    columns = [
        Column("friction model", [element("code", escaped(name)) for name in names]),
        *(Column("value", [*map(number, values)]), Column("sd", [*map(rounded, deviations)]), Column("unit", units)),
    ]
    return element(
        "p",
        "In model.eqx and in the predicted torques, a friction model replaces the viscous, Coulomb and constant terms. The "
        "plot shows the nearest dissipative law with only these three terms, which the URDF and MJCF files contain.",
    ) + element("details", element("summary", "Its parameters") + columns_table(columns))
