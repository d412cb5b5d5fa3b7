"""Coverage of standard deviations and confidence intervals: `python -m tests.benchmarks.intervals`.

For real logs (in the folder `JAXDYN_DATA`), two estimates of the base parameters are compared: from the two halves of a run, or
from two runs of the UR10e. If the standard deviations are correct, 95 % of the parameters agree within two standard deviations
of their difference, and the root mean square of the normalised differences is 1. For simulated logs, the coverage is the share
of 95 % intervals that contain the true value. The simulated logs are fitted as estimation problems; with `--repeats`, logs of
a motion that is repeated, with an effect that the model lacks, are passed to `identify`, which selects nothing but delays
unless `--chosen` is given.
"""

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import identification as identify
from jaxdyn.identification.accumulate import accumulate_samples
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.defaults import BLOCKS
from jaxdyn.identification.least_squares import Estimator, SplitHalf, agreement
from jaxdyn.identification.preprocessing import repeated_motion
from jaxdyn.textbook.robots import panda

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data_paths import SHARED_DATA

CUTOFF = 20.0  # cut-off of the low-pass filter for simulated logs; a lower one blurs dry friction [Hz]
FRICTION = ("viscous", "coulomb", "offset")
GAINS = (14.87, 13.26, 11.13, 10.62, 11.03, 11.47)  # torque constants of the UR10e [N m/A]
# name: folder, file, and range of rows in which the robot moves
RUNS = {
    "UR10e 30 s": ("ur10e", "train_30sec_12harm", (635, 3510)),
    "UR10e 40 s": ("ur10e", "train_40sec_12harm", (500, 4460)),
    "UR10e 20 s": ("ur10e", "train_20sec_8harm", (320, 2310)),
    "UR10e ptp": ("ur10e", "validate_ptp_10_points", (700, 4200)),
    "UR10e 50 s": ("ur10e", "unloaded_15harm50sec", (0, None)),
    "Panda": ("panda", "exciting_1", (0, None)),
    "UR10": ("ur10", "exciting", (0, None)),
    "rokae": ("rokae", "exciting", (0, None)),
    "KR300 A": ("kr300", "A", (125, 2370)),
    "KR300 B": ("kr300", "B", (133, 2330)),
}
BEHIND_GEARS = ("panda", "rokae")  # torque sensors on the link side of the gears, which do not sense rotor inertia
ESTIMATORS: tuple[Estimator, ...] = ("weighted", "ordinary", "huber")
Problem = tuple[identify.BlockFactors, identify.BaseParameters, float]


def problem_of(
    chain: jaxdyn.Chain, samples: identify.Samples, columns: identify.Columns, base: identify.BaseParameters
) -> Problem:
    """Factors of the samples in blocks, the base parameters, and the share of independent samples."""
    motion = repeated_motion([samples])
    groups = motion and [motion.groups(0, samples.t, BLOCKS)]
    return accumulate_samples(columns, chain, [(samples, samples.tau)], groups=groups), base, samples.independence


def estimate(estimator: Estimator, problem: Problem) -> identify.Estimate:
    factors, base, independence = problem
    return identify.solve(factors, base, estimator, independence)


def samples_of(name: str) -> tuple[jaxdyn.Chain, identify.Columns, identify.Samples]:
    """The robot, columns and samples of a run, prepared as in an identification."""
    folder, file, (first, last) = RUNS[name]
    chain = jaxdyn.load(SHARED_DATA / folder / f"{folder}_kinematics.urdf")
    gains = GAINS if folder == "ur10e" else None
    log = jaxdyn.io.check_log(jaxdyn.read_log(SHARED_DATA / folder / f"{file}.csv", chain.n, gains=gains), chain)
    rows = slice(first, last)
    log = dataclasses.replace(log, t=log.t[rows], q=log.q[rows], tau=log.tau[rows], qd=None)
    columns = identify.Columns(FRICTION) if folder in BEHIND_GEARS else identify.Columns()
    return chain, columns, identify.preprocess(log)


def real(estimator: Estimator, names: Sequence[str] = tuple(RUNS)) -> Iterator[tuple[str, SplitHalf, SplitHalf]]:
    """Yield (what is compared, agreement, agreement with the standard deviations of independent residuals).

    The comparisons are the halves of each run, followed by all pairs of runs of the UR10e.
    """
    whole, base = {}, {}
    for name in names:
        chain, columns, samples = samples_of(name)
        folder = RUNS[name][0]
        if folder not in base:
            base[folder] = identify.base_parameters(chain, columns)
        parts = [*identify.split(samples, 0.5), *([samples] if folder == "ur10e" else [])]
        problems = [problem_of(chain, part, columns, base[folder]) for part in parts]
        first, second, *rest = (estimate(estimator, problem) for problem in problems)
        yield f"{name}, halves", *_compared(base[folder].names, first, second)
        if rest:
            whole[name] = rest[0]
    for one, other in itertools.combinations(whole, 2):
        yield f"{one} and {other}", *_compared(base["ur10e"].names, whole[one], whole[other])


def _compared(names: tuple[str, ...], *estimates: identify.Estimate) -> tuple[SplitHalf, SplitHalf]:
    plain = [dataclasses.replace(x, covariance=x.independent_covariance) for x in estimates]
    return agreement(names, *estimates), agreement(names, *plain)


def arm() -> jaxdyn.Chain:
    """A 7R arm with rotor inertias, friction and torque offsets."""
    chain, rng = panda(), np.random.default_rng(0)
    like = lambda x: jnp.asarray(x, chain.dtype)
    friction = dataclasses.replace(
        chain.friction,
        viscous=like(rng.uniform(0.2, 1.2, chain.n)),
        coulomb=like(rng.uniform(0.2, 0.8, chain.n)),
        offset=like(0.1 * rng.normal(size=chain.n)),
    )
    return dataclasses.replace(chain, friction=friction, armature=like(np.linspace(0.6, 0.15, chain.n)))


def simulated(count: int, seconds: float) -> tuple[list[Problem], np.ndarray]:
    """Factors of simulated logs of motion that is not repeated, and the true base parameters.

    Each log has its own noise; the motion is one of four.
    """
    chain, columns = arm(), identify.Columns()
    base = identify.base_parameters(chain, columns)
    truth = base.matrix @ prior_parameters(chain, columns)
    problems = []
    for k in range(count):
        motion = identify.random_excitation(chain, seconds, round(0.6 * seconds), seed=k % 4)
        log = identify.synthetic_log(chain, motion, seconds, 500.0, 1e-5, 0.2, seed=100 + k)
        samples = identify.preprocess(log, identify.Filters(position_cutoff=CUTOFF))
        problems.append(problem_of(chain, samples, columns, base))
    return problems, truth


def coverage(
    estimates: Sequence[identify.Estimate], truth: np.ndarray, independent: bool = False
) -> tuple[float, float]:
    """The share of 95 % intervals that contain the true value, and the root mean square of errors / standard deviations."""
    if independent:
        estimates = [dataclasses.replace(x, covariance=x.independent_covariance, degrees=np.inf) for x in estimates]
    bounds = np.stack([x.confidence_intervals() for x in estimates])
    scaled = np.stack([(x.values - truth) / x.standard_deviations for x in estimates])
    return float(np.mean((bounds[..., 0] < truth) & (truth < bounds[..., 1]))), float(np.sqrt((scaled**2).mean()))


EFFECTS = ("none", "position", "elastic")
STIFFNESS = np.array([2e4, 2e4, 1.5e4, 1.5e4, 5e3, 5e3, 4e3])  # of the joints of the elastic arm [N m/rad]


def repeated_log(truth: jaxdyn.Chain, effect: str, repeats: int, seed: int) -> jaxdyn.Log:
    """A random motion of 10 s, repeated exactly, with torque noise and a small effect that the model lacks.

    Args:
        effect: "none"; "position": a tenth of the Coulomb friction varies with the position; or "elastic": the logged
            positions are those of the links behind elastic joints.
    """
    once = identify.synthetic_log(
        truth, identify.random_excitation(truth, 10.0, 6, seed=seed), 10.0, 200.0, 0.0, 0.0, seed=0
    )
    q, tau = np.tile(once.q, (repeats, 1)), np.tile(once.tau, (repeats, 1))
    qd, noise = np.gradient(q, 1 / 200, axis=0), np.random.default_rng(7000 + seed)
    if effect == "position":
        coulomb = np.asarray(truth.friction.coulomb)
        tau = tau + 0.1 * coulomb * np.sin(4 * q + np.arange(truth.n)) * np.tanh(qd / 0.02)
    if effect == "elastic":
        q = q + tau / STIFFNESS
    q, tau = q + 1e-5 * noise.normal(size=q.shape), tau + 0.1 * noise.normal(size=q.shape)
    return jaxdyn.Log(t=np.arange(len(q)) / 200, q=q, qd=None, tau=tau, source="simulated")


def repeated_coverage(
    seeds: int, effect: str, repeats: int, choose: tuple = ("delays",)
) -> tuple[float, float, int, float]:
    """Coverage of `identify`'s 95 % intervals for the links' base parameters if a motion of 10 s is repeated.

    Returns:
        The share of intervals that contain the true value; the least share in a log; the number of logs whose halves
        could be compared, and the share of parameters on which these halves agree.
    """
    chain, rng = panda(), np.random.default_rng(0)
    like = lambda x: jnp.asarray(x, chain.dtype)
    friction = dataclasses.replace(
        chain.friction,
        viscous=like(rng.uniform(0.5, 1.5, 7)),
        coulomb=like(rng.uniform(2, 6, 7)),
        offset=like(0.1 * rng.normal(size=7)),
    )
    truth = dataclasses.replace(chain, friction=friction, armature=like(np.linspace(0.6, 0.15, 7)))
    inside, agree = [], []
    for seed in range(seeds):
        log = repeated_log(truth, effect, repeats, seed)
        result = jaxdyn.identify(chain, log, terms=identify.Terms(choose=choose))
        true = result.base.matrix @ np.asarray(prior_parameters(truth, result.columns))
        links = np.array([not name.startswith(("fc", "fv", "off", "k")) for name in result.base.names])
        low, high = result.estimate.confidence_intervals().T
        inside.append(float(np.mean(((low <= true) & (true <= high))[links])))
        agree += [] if result.split_half is None else [result.split_half.share]
    return float(np.mean(inside)), min(inside), len(agree), float(np.mean(agree)) if agree else np.nan


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.intervals", description=__doc__)
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=["weighted"])
    parser.add_argument("--logs", type=int, default=20, help="simulated logs of each length; 0 for none")
    parser.add_argument("--seconds", type=float, nargs="+", default=[20.0, 40.0], help="length of the simulated logs")
    parser.add_argument("--no-real", action="store_true", help="simulated logs only")
    parser.add_argument("--repeats", type=int, nargs="*", help="only logs of a motion that is repeated so many times")
    parser.add_argument("--effects", nargs="+", choices=EFFECTS, default=EFFECTS, help="what the model lacks")
    parser.add_argument("--chosen", action="store_true", help="select all terms, as `identify` does by default")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.repeats:
        choose = identify.Terms().choose if options.chosen else ("delays",)
        for effect, repeats in itertools.product(options.effects, options.repeats):
            share, least, count, agree = repeated_coverage(options.logs, effect, repeats, choose)
            print(
                f"{effect}, {repeats} x 10 s: 95 % intervals hold the truth in {100 * share:.1f} % (at least "
                f"{100 * least:.0f} % of a log); the halves agree on {100 * agree:.0f} % in {count} of {options.logs} logs",
                flush=True,
            )
        return
    for name in options.estimators if SHARED_DATA.is_dir() and not options.no_real else ():
        print(f"{name + ', real logs':32s} within 2 s.d.   rms   for independent residuals")
        for what, found, plain in real(name):
            shares = (f"{100 * x.share:10.0f} %  {x.rms:5.2f}" for x in (found, plain))
            apart = ", ".join(x.split(" ")[0] for x in found.disagreeing[:4])
            print(f"{what:32s}", *shares, "  apart:" if apart else "", apart, flush=True)
    for seconds in options.seconds if options.logs else ():
        problems, truth = simulated(options.logs, seconds)
        for name in options.estimators:
            estimates = [estimate(name, problem) for problem in problems]
            rows = [coverage(estimates, truth, plain) for plain in (False, True)]
            text = "; for independent residuals ".join(f"{100 * share:.1f} % (rms {rms:.2f})" for share, rms in rows)
            print(
                f"{name}, {options.logs} simulated logs of {seconds:g} s: 95 % intervals hold the truth in {text}",
                flush=True,
            )


if __name__ == "__main__":
    main()
