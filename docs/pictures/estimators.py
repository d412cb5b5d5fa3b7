"""Prints the tables of real logs in docs/estimators.md: `python docs/pictures/estimators.py FOLDER`, with panda/ and ur10e/.

Every estimator is fitted to one stretch and predicts another, which no choice has seen: the last 30 % of the Panda's run, and
the UR10e's point-to-point run. Neither robot's reference nor controller is in the logs: the simulated robot follows the
measured motion by computed torque (IV, DIDIM), or is driven by the measured torques (CLOE).
"""

import functools
import sys
import time
from pathlib import Path

import numpy as np

import jaxdyn
from jaxdyn import Columns, Coulomb, FrictionModel, LoadedSlip, MaxwellSlip, Offset, PowerViscous, Stribeck, Viscous
from jaxdyn.identification.completion import with_parameters

GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]
BANDWIDTH = 10.0  # of the law that holds the simulated arm near the measured motion, for output error [rad/s]
PLAIN = (Viscous(), Coulomb(width=0.02), Offset())


def panda(folder: Path):
    """Training and validation samples, and their friction models: plain, and with presliding."""
    chain = jaxdyn.load(folder / "panda_kinematics.urdf")
    log = jaxdyn.check_log(jaxdyn.read_log(folder / "exciting_1.csv", chain.n), chain)
    samples = jaxdyn.preprocess(log, position_cutoff=10.0, stride=4)
    train, check = jaxdyn.split(samples)
    slips = FrictionModel((Viscous(), Coulomb(width=0.05), Offset(), MaxwellSlip(width=1e-3)), 10.0)
    return chain, (), train, check, FrictionModel(PLAIN, 10.0), slips


def ur10e(folder: Path):
    """The same of the UR10e: the friction is that of docs/friction.md, chosen on training runs."""
    chain = jaxdyn.load(folder / "ur10e_kinematics.urdf")

    def read(name: str, rows: tuple[int, int]) -> jaxdyn.Samples:
        log = jaxdyn.check_log(jaxdyn.read_log(folder / f"{name}.csv", 6, gains=GAINS, rows=rows), chain)
        return jaxdyn.preprocess(log, position_cutoff=7.5, torque_cutoff=10.0, stride=1)

    train, check = read("train_30sec_12harm", (635, 3510)), read("validate_ptp_10_points", (700, 4200))
    slips = (MaxwellSlip(width=1e-4), MaxwellSlip(width=1e-3, joints=(2, 3, 4, 5, 6)))
    others = (PowerViscous(joints=(1, 2, 3)), LoadedSlip(joints=(2, 3)), Stribeck(joints=(5,)))
    memory = FrictionModel((Viscous(), Coulomb(), Offset(), *slips, *others), 10.0)
    return chain, ("armature",), train, check, FrictionModel(PLAIN, 10.0), memory


def study(name: str, chain, terms, train, check, plain: FrictionModel, memory: FrictionModel) -> None:
    """Fits and predicts with each friction model, with the delays that the training run shows."""
    columns = Columns(terms)
    base = jaxdyn.base_parameters(chain, columns)
    delay = jaxdyn.estimate_delay(chain, train)
    delays = np.where(delay.inside, delay.seconds, 0.0)
    print(f"{name}: delays of the torques [ms]", np.round(1e3 * delays, 1))
    for title, model, late in (("plain", plain, None), ("memory and delays", memory, delays)):
        shifted = train if late is None else jaxdyn.align_torques(train, late)[0]
        friction = jaxdyn.fit_friction(chain, [shifted], model, base=base, columns=columns, stride=3)
        options = {"columns": columns, "base": base, "friction": friction, "delays": late}
        make = functools.partial(jaxdyn.estimation_problem, chain, **options)
        linear, held = make(train), make(check)
        start = jaxdyn.estimate_wls(linear)
        arm = with_parameters(chain, columns, linear.full(start.values))
        follow = make(train, loops=jaxdyn.tracking(shifted), start=start.values)
        driven = make(train, loops=jaxdyn.replaying(shifted, jaxdyn.drive_gains(arm, BANDWIDTH)), start=start.values)
        estimators = [(e, linear) for e in (jaxdyn.estimate_ols, jaxdyn.estimate_wls, jaxdyn.estimate_irls)]
        estimators += [(jaxdyn.estimate_recursive, linear)]
        estimators += [(jaxdyn.estimate_iv, follow), (jaxdyn.estimate_didim, follow), (jaxdyn.estimate_cloe, driven)]
        print(f"{name}, {title}: RMS [N m] and RRE of moving samples [%] held out")
        for estimator, problem in estimators:
            begin = time.perf_counter()
            try:
                found = estimator(problem)
            except jaxdyn.IdentificationError as error:
                print(f"  {estimator.__name__}: {error}")
                continue
            seconds = time.perf_counter() - begin
            fit = jaxdyn.fit_quality(held.samples[0].tau, held.predictions(found.values)[0], check.qd)
            rms = " ".join(f"{x:.3f}" for x in fit.rms)
            moving = " ".join(f"{x:.1f}" for x in fit.relative_moving)
            done = f"{found.iterations} steps, {'converged' if found.converged else 'not converged'}"
            print(f"  {found.method:6s} | {rms} | {moving} | {seconds:.1f} s, {done}", flush=True)


def main(folder: Path) -> None:
    """Both robots."""
    study("Panda", *panda(folder / "panda"))
    study("UR10e", *ur10e(folder / "ur10e"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
