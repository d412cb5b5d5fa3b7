"""Which estimator? A Monte-Carlo comparison after BIRDy (Leboutet et al. 2021): an arm under its position controller, noise on
positions and torques, and estimators that start from parameters that are 15 % off.

    python compare_estimators.py                          a planar arm, three starts, half a minute
    python compare_estimators.py --protocol               the whole protocol: TX40-like arm, 25 starts, five noise levels
    python compare_estimators.py --arm tx40 --starts 25 --noise standard
"""

import argparse
import collections
import csv
import functools
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import jaxdyn

LINEAR = (
    jaxdyn.estimate_ols,
    jaxdyn.estimate_wls,
    jaxdyn.estimate_irls,
    jaxdyn.estimate_tls,
    jaxdyn.estimate_recursive,
)
SIMULATING = (jaxdyn.estimate_iv, jaxdyn.estimate_didim, jaxdyn.estimate_cloe)


def planar_arm() -> jaxdyn.Chain:
    """Two links in a vertical plane, with friction and a rotor."""
    mass, length, reach, inertia = 3.0, 0.5, 0.2, 0.03
    about_frame = inertia + mass * reach**2
    link = [mass, mass * reach, 0, 0, inertia, 0, about_frame, 0, 0, about_frame]
    return jaxdyn.from_dh(
        a=[0, length],
        alpha=[np.pi / 2, 0],
        d=[0, 0],
        theta=[0, 0],
        inertia=[link, link],
        convention="modified",
        armature=[0.0, 0.05],
        viscous_friction=[1.0, 0.6],
        coulomb_friction=[0.8, 0.5],
        coulomb_velocity=[0.1, 0.1],
        position_limits=[(-2.0, 2.0)] * 2,
        velocity_limit=[3.0, 3.0],
    )


def problem(start, columns, base, run, options):
    """The problem of one run, starting from one model."""
    loop, samples = run
    return jaxdyn.estimation_problem(start, samples, columns, base=base, loops=loop, parallel_cutoff=options.parallel)


def study(arm, level, options):
    """A row (method, merit, converged) an estimate: linear methods once, those that simulate from every start."""
    columns = jaxdyn.Columns(("armature", "viscous", "coulomb"))
    base = jaxdyn.base_parameters(arm, columns)
    truth = base.matrix @ jaxdyn.prior_parameters(arm, columns)
    law = jaxdyn.drive_gains(arm)
    runs = []
    for seed in (1, 2):  # one motion to fit, another to check
        motion = jaxdyn.random_excitation(arm, options.duration, 5, seed=seed, usage=0.5)
        loop = jaxdyn.following(motion, law, options.duration, 1e-3, every=2)
        log = jaxdyn.closed_loop_log(arm, loop, jaxdyn.NOISE_LEVELS[level], seed)
        runs.append((loop, jaxdyn.preprocess(log, position_cutoff=options.cutoff, stride=1)))
    starts = jaxdyn.perturbed_chains(arm, options.starts, seed=3)
    check = problem(arm, columns, base, runs[1], options)
    rows = []
    for k, start in enumerate(starts):
        fit = problem(start, columns, base, runs[0], options)
        bounded = [functools.partial(e, tolerance=0.025, iterations=10) for e in SIMULATING]
        for estimator in (*(LINEAR if k == 0 else ()), *bounded):
            begin = time.perf_counter()
            try:
                estimate = estimator(fit)
            except jaxdyn.IdentificationError as error:
                rows.append((estimator.func.__name__.removeprefix("estimate_").upper(), None, False))
                print(f"  start {k}: {error}")
                continue
            seconds = time.perf_counter() - begin
            merit = jaxdyn.figures_of_merit(check, estimate, truth, seconds)
            rows.append((estimate.method, merit, estimate.converged))
            if options.verbose:
                print(f"  start {k}: {estimate.method:6s}", *(f"{x:.4g}" for x in merit), flush=True)
    return rows


def table(level, rows):
    """Means and deviations over the starts, printed and returned."""
    groups = collections.defaultdict(list)
    for method, merit, converged in rows:
        groups[method].append((merit, converged))
    print(
        f"\nnoise level {level}: {jaxdyn.NOISE_LEVELS[level].position:.2g} rad, {jaxdyn.NOISE_LEVELS[level].torque:.2g} N m"
    )
    print(f"{'':8s}{'d_tau %':>16s}{'d_q %':>18s}{'d_beta %':>16s}{'d_t s':>8s}{'N_it':>6s}{'N_sim':>7s}  converged")
    out = {}
    for method, results in groups.items():
        found = np.array([merit for merit, _ in results if merit is not None])
        count = f"{sum(converged for _, converged in results)} of {len(results)}"
        if len(found):
            mean, spread = found.mean(0), found.std(0)
            pair = lambda k, mean=mean, spread=spread: f"{mean[k]:.4f} +- {spread[k]:.4f}"
            seconds = np.median(found[:, 3])  # the first call compiles
            print(f"{method:8s}{pair(0):>16s}{pair(1):>18s}{mean[2]:9.2f} +- {spread[2]:.2f}{seconds:8.2f}", end="")
            print(f"{mean[4]:6.1f}{mean[5]:7.1f}  {count}")
            out[method] = (*mean[:3], seconds, *mean[4:], *spread[:3])
        else:
            print(f"{method:8s}none converged, {count}")
    return out


def draw(results, path):
    """d_q and d_beta by method and noise level."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
    for axis, k, title in zip(
        axes, (0, 1, 2), ("torque error d_tau [%]", "position error d_q [%]", "d_beta [%]"), strict=True
    ):
        for level, found in results.items():
            axis.plot(list(found), [v[k] for v in found.values()], "o-", label=level, lw=0.8)
        axis.set_ylim(bottom=0)
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=45)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", choices=("planar", "tx40"), default="planar")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--noise", nargs="+", choices=tuple(jaxdyn.NOISE_LEVELS), default=["standard"])
    parser.add_argument("--duration", type=float, default=5.0, help="of the motion [s]")
    parser.add_argument("--cutoff", type=float, default=50.0, help="of the positions' low-pass [Hz]")
    parser.add_argument("--parallel", type=float, default=20.0, help="of the low-pass on regressor and torque [Hz]")
    parser.add_argument("--protocol", action="store_true", help="TX40-like arm, 25 starts, all noise levels, 10 s")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.protocol:
        options.arm, options.starts, options.noise, options.duration = "tx40", 25, list(jaxdyn.NOISE_LEVELS), 10.0
    arm = planar_arm() if options.arm == "planar" else jaxdyn.tx40_like()
    results = {level: table(level, study(arm, level, options)) for level in options.noise}
    with open("compare_estimators.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["noise", "method", "d_tau", "d_q", "d_beta", "d_t", "N_it", "N_sim", "sd_tau", "sd_q", "sd_beta"]
        )
        writer.writerows([level, method, *row] for level, found in results.items() for method, row in found.items())
    draw(results, "compare_estimators.png")
    print("\nwritten: compare_estimators.csv, compare_estimators.png")


if __name__ == "__main__":
    main()
