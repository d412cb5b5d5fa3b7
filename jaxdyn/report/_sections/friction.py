"""Friction as it was measured, sample by sample, and the fitted law through it."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import friction_force
from ...identification._friction.fit import FrictionFit
from ...identification._regression.robot import as_float64
from ...identification._result import Evaluation
from ...identification._validation.resimulation import model_torque
from ...model._chain import Chain
from ...model._layout import turning_joints
from .._markup import DASH, Column, columns_table, element, escaped, faint, figure, number, rounded, section, unit
from .._pictures.svg import FAINT, INK, LINE, MEASURED, PREDICTED, picture

_MOST = 1200  # dots a picture
_BINS = 24


@dataclasses.dataclass(frozen=True, eq=False)
class FrictionSamples:
    """Friction of all joints over velocity.

    Attributes:
        qd: (N, n) velocities of the samples [rad/s or m/s].
        torque: (N, n) measured torque minus all of the predicted one but friction [N m].
        grid: (G, n) velocities for the curve, symmetric about zero and finer there.
        curve: (G, n) friction_force of the model on it.
    """

    qd: Float[np.ndarray, "N n"]
    torque: Float[np.ndarray, "N n"]
    grid: Float[np.ndarray, "G n"]
    curve: Float[np.ndarray, "G n"]


def friction_samples(chain: Chain, evaluations: Sequence[Evaluation], modelled: bool = False) -> FrictionSamples:
    """tau - (prediction - friction_force(qd)), sample by sample, and friction_force over the velocities that occur.

    What is taken off is the rigid-body torque, rotors and whatever else was fitted with it; the samples are therefore the
    fitted curve plus the residual.

    Args:
        modelled: predictions hold the torque of a friction model that no function of velocity gives: the torque of the chain
            without friction is taken off instead.
    """
    qd = np.concatenate([e.samples.qd for e in evaluations])
    residual = np.concatenate([e.samples.tau - e.prediction for e in evaluations])
    if modelled:
        residual = np.concatenate([e.samples.tau - model_torque(chain, e.samples) for e in evaluations])
    fastest = np.abs(qd).max(axis=0)
    fine = np.sinh(np.linspace(-7, 7, 301)) / np.sinh(7.0)
    grid = fine[:, None] * fastest
    with jax.enable_x64(True):
        model = as_float64(chain)
        torque, curve = (np.asarray(_friction(model, jnp.asarray(v))) for v in (qd, grid))
    return FrictionSamples(qd, torque + residual, grid, curve)


@jax.jit
def _friction(chain: Chain, qd):
    return jax.vmap(lambda v: friction_force(chain, v))(qd)


def binned_medians(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], bins: int = _BINS
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Medians of x and y in bins of equally many samples by x, for each sign of x apart."""
    points = []
    for side in (x < 0, x > 0):
        order = np.argsort(x[side])
        if len(order) >= bins:
            points += [
                (np.median(x[side][part]), np.median(y[side][part])) for part in np.array_split(order, bins // 2)
            ]
    return tuple(np.array(points).reshape(-1, 2).T)  # type: ignore[return-value]


def friction_section(
    chain: Chain, evaluations: Sequence[Evaluation], units: Sequence[str], fit: FrictionFit | None = None
) -> str:
    """A picture a joint: samples, their medians and the fitted curve; and the parameters of a friction model of its own."""
    data = friction_samples(chain, evaluations, fit is not None)
    turns = turning_joints(chain)
    figures = ""
    for j, joint in enumerate(chain.joint_names):
        spread = float(np.std(data.torque[:, j] - np.interp(data.qd[:, j], data.grid[:, j], data.curve[:, j])))
        speed = "velocity [rad/s]" if turns[j] else "velocity [m/s]"
        most = rounded(float(np.abs(data.curve[:, j]).max()))
        detail = f"up to {most} {units[j]}, spread about the curve {rounded(spread)}"
        figures += figure(joint, detail, _svg(data, j, speed, units[j]))
    return section(
        "Friction",
        "friction",
        faint(
            "Measured torque less the predicted one without friction, against velocity: one dot a sample of the fitted runs, "
            "rings the medians of equally many of them, and the fitted law. Rings off the curve on both sides alike mean "
            "another law (falling before it rises: Stribeck; different on both sides: asymmetric); a cloud that opens "
            "up near standstill is friction that depends on the path, which no function of velocity describes; a cloud that "
            "is wide everywhere is error of the rigid model, or friction that depends on load."
        ),
        element("div", figures, "grid"),
        _table(fit) if fit else "",
    )


def _thinned(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, _MOST)).round().astype(int))


def _svg(data: FrictionSamples, joint: int, speed: str, unit: str) -> str:
    x, y = data.qd[:, joint], data.torque[:, joint]
    chosen = _thinned(len(x))
    width = float(np.abs(x).max()) / 260
    gap = np.full(len(chosen), np.nan)
    dots = np.stack([x[chosen] - width, x[chosen] + width, gap], 1).reshape(-1)  # one path, short strokes for dots
    level = np.stack([y[chosen], y[chosen], gap], 1).reshape(-1)
    middle = binned_medians(x, y)

    def draw(figure) -> None:
        axes = figure.subplots()
        figure.subplots_adjust(left=0.135, right=0.985, top=0.9, bottom=0.165)
        axes.axhline(0, color=LINE, linewidth=0.9)
        axes.axvline(0, color=LINE, linewidth=0.9)
        axes.plot(dots, level, color=MEASURED, linewidth=1.7, label="samples")
        axes.plot(data.grid[:, joint], data.curve[:, joint], color=PREDICTED, linewidth=1.8, label="fitted")
        if len(middle[0]):
            ring = {"marker": "o", "markersize": 3.6, "markerfacecolor": "none", "markeredgewidth": 1.0}
            axes.plot(*middle, color=INK, linestyle="none", label="medians", **ring)
        low, high = np.percentile(y, [0.2, 99.8])
        low, high = min(low, data.curve[:, joint].min()), max(high, data.curve[:, joint].max())
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
        axes.set_xlabel(speed)
        axes.set_ylabel(f"friction [{unit}]")
        axes.yaxis.label.set_color(FAINT)
        figure.legend(loc="upper right", ncols=3, frameon=False, borderaxespad=0, handlelength=1.6)

    return picture(draw, (5.0, 2.9), f"Friction against velocity of joint {joint + 1}", f"friction {joint}")


def _table(fit: FrictionFit) -> str:
    """Linear parameters with their standard deviations, then widths, velocities and exponents joint by joint."""
    names, values, deviations, units = fit.rows()
    units = [unit(text) if text else DASH for text in units]
    columns = [
        Column("friction model", [element("code", escaped(name)) for name in names]),
        *(Column("value", [*map(number, values)]), Column("sd", [*map(rounded, deviations)]), Column("unit", units)),
    ]
    return element(
        "p",
        "Friction was fitted by a model of its own, in place of viscous, Coulomb and constant terms; the curve in each picture "
        "is the nearest such law, which the model files hold. Predicted torques are the friction model's.",
    ) + columns_table(columns)
