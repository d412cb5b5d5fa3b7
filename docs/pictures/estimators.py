"""Print the tables for real logs in docs/estimators.md: `python docs/pictures/estimators.py FOLDER`, with panda/ and ur10e/.

Every estimator is fitted to one part of the data and predicts a held-out part, which was not used for any choice: the last
30 % of the Panda's run, and the UR10e's point-to-point run. The logs contain neither the references nor the controllers, so
the simulated robot tracks the measured motion by computed torque (IV, DIDIM) or is driven by the measured torques (CLOE).
"""

import functools
import sys
import time
from pathlib import Path

import jax
import numpy as np

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
from jaxdyn.identification.base import with_parameters, with_stand_ins
from jaxdyn.identification.factors import as_float64
from jaxdyn.identification.least_squares import without_friction

FULL_RATE = jaxdyn.identification.Filters(position_cutoff=7.5, torque_cutoff=10.0, stride=1)
GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]
PANDA_DELAYS = np.array([2, 2, 2, 4, 12, 2, 12]) / 1e3  # selected on the fitted data [s]
PERIOD = 2.2e-3  # sample time of the simulated controller [s]; need not be shorter, as friction is a known torque
BANDWIDTH = 30.0  # of the controller that keeps the simulated arm near the measured motion, for CLOE [rad/s]
PLAIN = (Viscous(), Coulomb(width=0.02), Offset())


def panda(folder: Path):
    """The Panda's model, drive terms, reader of its logs, torque delays, and friction models without and with presliding."""
    chain = jaxdyn.load(folder / "panda_kinematics.urdf")
    log = jaxdyn.io.check_log(jaxdyn.read_log(folder / "exciting_1.csv", chain.n), chain)

    def read(delays):
        filters = jaxdyn.identification.Filters(position_cutoff=10.0, stride=4, delay=delays)
        return jaxdyn.identification.split(jaxdyn.identification.preprocess(log, filters))

    slips = FrictionModel((Viscous(), Coulomb(width=0.05), Offset(), MaxwellSlip(width=1e-3)), 10.0)
    return chain, (), read, PANDA_DELAYS, FrictionModel(PLAIN, 10.0), slips


def ur10e(folder: Path):
    """The UR10e's model, drive terms, reader, torque delays, and friction models; the second is that of docs/friction.md."""
    chain = jaxdyn.load(folder / "ur10e_kinematics.urdf")

    def read(delays):
        for name, rows in (("train_30sec_12harm", (635, 3510)), ("validate_ptp_10_points", (700, 4200))):
            log = jaxdyn.io.check_log(jaxdyn.read_log(folder / f"{name}.csv", 6, gains=GAINS, rows=rows), chain)
            yield jaxdyn.identification.preprocess(log, FULL_RATE.but(delay=delays))

    slips = (MaxwellSlip(width=1e-4), MaxwellSlip(width=1e-3, joints=(2, 3, 4, 5, 6)))
    others = (PowerViscous(joints=(1, 2, 3)), LoadedSlip(joints=(2, 3)), Stribeck(joints=(5,)))
    memory = FrictionModel((Viscous(), Coulomb(), Offset(), *slips, *others), 10.0)
    return chain, ("armature",), read, None, FrictionModel(PLAIN, 10.0), memory


def possible_start(chain, columns, base, samples, friction):
    """A physically consistent robot to simulate, fitted to torques less friction, and its base and friction parameters."""
    with jax.enable_x64(True):
        filled, _ = with_stand_ins(without_friction(as_float64(chain)))
        rigid = samples.tau - friction.predict(samples) + friction.load(samples)
        factors = jaxdyn.identification.accumulate_stream(
            columns, filled, [(samples.q, samples.qd, samples.qdd, rigid)]
        )
        wls = jaxdyn.identification.weighted_least_squares(factors, base)
        problem = jaxdyn.identification.consistent_problem(
            factors, base, wls, columns, jaxdyn.identification.prior_parameters(filled, columns)
        )
        parameters = jaxdyn.identification.consistent_least_squares(problem, base).parameters
        arm = with_parameters(filled, columns, parameters)
    return arm, np.concatenate([base.matrix @ parameters, friction.values[base.size :]])


def study(name: str, chain, terms, read, delays, plain: FrictionModel, memory: FrictionModel) -> None:
    """Fit and predict with both friction models; delays that are not given are estimated from the training run."""
    columns = Columns(terms)
    base = jaxdyn.identification.base_parameters(chain, columns)
    if delays is None:
        delay = jaxdyn.identification.estimate_delay(chain, next(iter(read(None))))
        delays = np.where(delay.inside, delay.seconds, 0.0)
    print(f"{name}: torque delays [ms]", np.round(1e3 * delays, 1))
    for title, model, late in (("plain", plain, None), ("memory and delays", memory, delays)):
        train, check = read(late)
        friction = jaxdyn.identification.fit_friction(chain, [train], model, base=base, columns=columns, stride=3)
        options = {"columns": columns, "base": base, "friction": friction}
        make = functools.partial(jaxdyn.identification.estimation_problem, chain, **options)
        linear, held = make(train), make(check)
        start = jaxdyn.identification.estimate_wls(linear)
        arm, values = possible_start(chain, columns, base, train, friction)
        law = jaxdyn.identification.drive_gains(arm, BANDWIDTH)
        follow = make(train, loops=jaxdyn.identification.ClosedLoop.tracking(train, period=PERIOD), start=start.values)
        driven = make(train, loops=jaxdyn.identification.ClosedLoop.replaying(train, law, PERIOD), start=values)
        estimators = [
            (e, linear, {})
            for e in (
                jaxdyn.identification.estimate_ols,
                jaxdyn.identification.estimate_wls,
                jaxdyn.identification.estimate_irls,
            )
        ]
        estimators += [(jaxdyn.identification.estimate_recursive, linear, {})]
        estimators += [
            (jaxdyn.identification.estimate_iv, follow, {}),
            (jaxdyn.identification.estimate_didim, follow, {}),
        ]
        estimators += [(jaxdyn.identification.estimate_cloe, driven, {"iterations": 8, "tolerance": 0.01})]
        print(f"{name}, {title}: held-out RMS [N m] and RRE of moving samples [%]")
        for estimator, problem, bounds in estimators:
            begin = time.perf_counter()
            try:
                found = estimator(problem, **bounds)
            except jaxdyn.IdentificationError as error:
                print(f"  {estimator.__name__}: {error}")
                continue
            seconds = time.perf_counter() - begin
            fit = jaxdyn.identification.fit_quality(held.samples[0].tau, held.predictions(found.values)[0], check.qd)
            rms = " ".join(f"{x:.3f}" for x in fit.rms)
            moving = " ".join(f"{x:.1f}" for x in fit.relative_moving)
            done = f"{found.iterations} steps, {'converged' if found.converged else 'not converged'}"
            print(f"  {found.method:6s} | {rms} | {moving} | {seconds:.1f} s, {done}", flush=True)


def main(folder: Path, *robots: str) -> None:
    """Study both robots, or only the named ones."""
    for name, prepare in (("panda", panda), ("ur10e", ur10e)):
        if name in (robots or (name,)):
            study(name, *prepare(folder / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
