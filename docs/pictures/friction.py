"""Draw the picture of docs/friction.md: `python docs/pictures/friction.py FOLDER`, where FOLDER contains the UR10e's logs."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import jaxdyn
from jaxdyn.identification import (
    Columns,
    Coulomb,
    FrictionModel,
    LoadedSlip,
    MaxwellSlip,
    Offset,
    PowerViscous,
    Stribeck,
    Viscous,
)

FULL_RATE = jaxdyn.identification.Filters(position_cutoff=7.5, torque_cutoff=10.0, stride=1)
GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]


def main(folder: Path) -> None:
    """Fit two friction models to one run, and plot joints 5 and 2 in another run."""
    chain = jaxdyn.load(folder / "ur10e_kinematics.urdf")

    def read(name: str, rows: tuple[int, int] | None = None) -> tuple[jaxdyn.Log, jaxdyn.identification.Samples]:
        log = jaxdyn.io.check_log(jaxdyn.read_log(folder / f"{name}.csv", 6, gains=GAINS, rows=rows), chain)
        return log, jaxdyn.identification.preprocess(log, FULL_RATE)

    _, train = read("train_30sec_12harm")  # includes the rest before and after the motion
    log, check = read("validate_ptp_10_points", (700, 4200))
    base = jaxdyn.identification.base_parameters(chain, Columns(("armature",)))
    usual = (Viscous(), Coulomb(width=0.02), Offset())
    slips = (MaxwellSlip(width=1e-4), MaxwellSlip(width=1e-3, joints=(2, 3, 4, 5, 6)))
    others = (PowerViscous(joints=(1, 2, 3)), LoadedSlip(joints=(2, 3)), Stribeck(joints=(5,)))
    plain, memory = (
        jaxdyn.identification.fit_friction(chain, [train], FrictionModel(terms, 10.0), stride=3, base=base)
        for terms in (usual, (Viscous(), Coulomb(), Offset(), *slips, *others))
    )
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplot_mosaic([["time", "time"], ["creep", "creep"], ["curve", "load"]], height_ratios=[3, 1, 3])
    t = check.t - check.t[0]
    seen = (t > 15) & (t < 30)
    raw = np.interp(check.t, log.t, log.tau[:, 4])
    axes["time"].plot(t[seen], raw[seen], color="0.8", lw=0.6, label="measured")
    axes["time"].plot(t[seen], check.tau[seen, 4], color="0.4", lw=0.8, label="measured, below 10 Hz")
    axes["time"].plot(t[seen], plain.predict(check)[seen, 4], "C1", lw=1.2, label="smooth sign of the speed")
    axes["time"].plot(t[seen], memory.predict(check)[seen, 4], "C0", lw=1.4, label="slipping springs")
    axes["time"].set(ylabel="torque [N m]", title="Joint 5 of a UR10e, on a run that was not fitted", xlim=(15, 30))
    axes["time"].legend(ncols=2, fontsize="small")
    rest = (t > 24.2) & (t < 28.5)
    axes["creep"].plot(t[rest], 1e3 * (check.q[rest, 4] - check.q[rest, 4][0]), "C0")
    axes["creep"].set(ylabel="q - q(24.2 s)\n[mrad]", xlabel="t [s]", xlim=(15, 30))
    axes["creep"].annotate("not at rest: creeps at 0.3 mrad/s", (18, -0.6), fontsize="small")
    friction = check.tau - memory.load(check)
    model = memory.predict(check) - memory.load(check)
    axes["curve"].plot(
        check.qd[:, 4], friction[:, 4], ".", ms=1.5, color="0.6", label="measured minus rigid-body torque"
    )
    axes["curve"].plot(check.qd[:, 4], model[:, 4], ".", ms=1, color="C0", label="model")
    axes["curve"].set(xlabel="speed of joint 5 [rad/s]", ylabel="friction of joint 5 [N m]")
    axes["curve"].legend(fontsize="small", markerscale=5)
    load, moves = memory.load(check), np.abs(check.qd[:, 1]) > 0.05
    smooth = (memory.model.signals(check, load) @ memory.values[base.size :])[:, 1]
    names = memory.model.names(6)
    dry = [names.index(name) for name in ("fv2", "fp2")]
    drag = memory.model.signals(check, load)[:, 1][:, dry] @ memory.values[base.size :][dry]
    sign = np.sign(check.qd[:, 1])
    for values, color in ((friction[:, 1], "0.6"), (smooth, "C0")):
        axes["load"].plot(np.abs(load[moves, 1]), (sign * (values - drag))[moves], ".", ms=1.5, color=color)
    axes["load"].set(xlabel="load of joint 2 [N m]", ylabel="dry friction of joint 2 [N m]", ylim=(0, None))
    for axis in axes.values():
        axis.grid(alpha=0.3)
    figure.savefig(Path(__file__).with_name("friction.png"), dpi=100)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
