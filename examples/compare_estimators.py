"""Monte-Carlo comparison of estimators for an arm under position control, after BIRDy (Leboutet et al. 2021).

Positions and torques are noisy, and iterative estimators start from parameters with errors of 15 %. With standard noise, all
estimators agree. With ten times the position noise and a filter that does not remove it, least squares is biased, and most
of the models that it identifies diverge in simulation. Instrumental variables, DIDIM and output error remain accurate.

    python compare_estimators.py                          a planar arm, two starts, half a minute
    python compare_estimators.py --protocol               the full protocol: TX40-like arm, 25 starts, five noise levels
    python compare_estimators.py --arm tx40 --starts 25 --noise standard

Estimates are appended to compare_estimators_runs.csv, so an interrupted run can be resumed. Writes compare_estimators.csv
and compare_estimators.png.
"""

import argparse
import collections
import csv
import functools
import os
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import jaxdyn

LINEAR = (
    jaxdyn.identification.estimate_ols,
    jaxdyn.identification.estimate_wls,
    jaxdyn.identification.estimate_irls,
    jaxdyn.identification.estimate_tls,
    jaxdyn.identification.estimate_recursive,
)
KEYS = ("arm", "duration", "cutoff", "parallel", "noise", "start", "method")
FIGURES = ("d_tau", "d_q", "d_beta", "d_t", "N_it", "N_sim")
RUNS = "compare_estimators_runs.csv"
LABELS = {
    "low_position": "low position",
    "standard": "standard",
    "high_torque": "high torque",
    "high_position": "high position",
    "high_both": "high both",
}
SIMULATING = (
    jaxdyn.identification.estimate_iv,
    jaxdyn.identification.estimate_didim,
    jaxdyn.identification.estimate_cloe,
)


def planar_arm() -> jaxdyn.Chain:
    """An arm of two links in a vertical plane, with friction and, at the second joint, a rotor."""
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
        friction=jaxdyn.Friction(viscous=[1.0, 0.6], coulomb=[0.8, 0.5], coulomb_velocity=[0.1, 0.1]),
        limits=jaxdyn.JointLimits(position=[(-2.0, 2.0)] * 2, velocity=[3.0, 3.0]),
    )


def problem(start, columns, base, run, options):
    """The estimation problem for one run, with the given model as the initial estimate."""
    loop, samples = run
    return jaxdyn.identification.estimation_problem(
        start, samples, columns, base=base, loops=loop, parallel_cutoff=options.parallel
    )


def name_of(estimator):
    """Name of an estimator in the table: OLS, WLS, ..."""
    function = getattr(estimator, "func", estimator)
    return {"recursive": "RLS"}.get(name := function.__name__.removeprefix("estimate_"), name.upper())


def done_before(options):
    """Estimates from an earlier run with the same settings, as {(noise, start, method): row}."""
    if not os.path.exists(RUNS):
        return {}
    with open(RUNS, newline="") as file:
        rows = list(csv.DictReader(file))
    same = [r for r in rows if all(r[key] == str(getattr(options, key)) for key in KEYS[:4])]
    return {(r["noise"], int(r["start"]), r["method"]): r for r in same}


def keep(options, row):
    """Append one estimate to the file of runs."""
    new = not os.path.exists(RUNS)
    with open(RUNS, "a", newline="") as file:
        writer = csv.DictWriter(file, (*KEYS, *FIGURES, "converged"))
        if new:
            writer.writeheader()
        writer.writerow({key: getattr(options, key) for key in KEYS[:4]} | row)


def tx40_like():
    """A six-joint arm similar to a Staubli TX40, but without the coupling of its wrist.

    The modified Denavit-Hartenberg table and the friction are those published for the TX40 (Gautier, Janot & Vandanjon
    2013). Masses and inertias are physically consistent round numbers of similar magnitude rather than measurements. The
    smooth sign function of Coulomb friction has a width of 0.1 rad/s, for which explicit integration at 1 kHz is stable.
    """
    half = np.pi / 2
    mass = np.array([8.6, 4.85, 4.07, 3.62, 1.02, 0.2])
    centre = np.array(
        [(0, 0, -0.05), (0.081, -0.0015, 0.033), (0.008, 0.006, 0.065), (0.004, -0.002, -0.16), (0, -0.003, -0.001),
         (0, 0, 0.042)]
    )  # fmt: skip
    about_centre = np.array(
        [(0.40, 0.0, 0.40, 0.0, 0.0, 0.35), (0.011, 0.0002, 0.051, -0.0027, 0.0001, 0.051),
         (0.005, 0.0, 0.005, 0.001, -0.0006, 0.0042), (0.016, 0.0, 0.0155, -0.001, 0.0, 0.004),
         (0.001, 0.0, 0.001, 0.0, 0.0, 0.001), (0.0032, 0.0, 0.0032, 0.0, 0.0, 0.00035)]
    )  # fmt: skip
    first = mass[:, None] * centre
    square = (centre**2).sum(1)[:, None, None] * np.eye(3) - centre[:, :, None] * centre[:, None, :]
    shift = mass[:, None] * square[:, (0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)]
    return jaxdyn.from_dh(
        a=[0, 0, 0.225, 0, 0, 0],
        alpha=[0, -half, 0, half, -half, half],
        d=[0.32, 0, 0.035, 0.225, 0, 0],
        theta=[0, -half, half, 0, 0, np.pi],
        inertia=np.hstack([mass[:, None], first, about_centre + shift]),
        armature=[0.36, 0.51, 0.083, 0.034, 0.036, 0.011],
        friction=jaxdyn.Friction([7.9, 5.7, 2.0, 1.1, 1.6, 0.69], [7.0, 7.8, 6.2, 2.4, 3.4, 1.8], 0.1),
        limits=jaxdyn.JointLimits(
            np.radians([(-180, 180), (-125, 125), (-138, 138), (-270, 270), (-120, 133.5), (-270, 270)]),
            np.radians([287, 287, 430, 410, 320, 700]),
        ),
        convention="modified",
    )


def study(arm, level, options):
    """Rows of results: one per linear method, and one per start of each simulation-based method."""
    bounded = [functools.partial(e, tolerance=0.025, iterations=10) for e in SIMULATING]
    wanted = [(k, e) for k in range(options.starts) for e in (*(LINEAR if k == 0 else ()), *bounded)]
    rows = done_before(options)
    missing = [(k, e) for k, e in wanted if (level, k, name_of(e)) not in rows]
    if missing:
        columns = jaxdyn.identification.Columns(("armature", "viscous", "coulomb"))
        base = jaxdyn.identification.base_parameters(arm, columns)
        truth = base.matrix @ jaxdyn.identification.prior_parameters(arm, columns)
        law = jaxdyn.identification.drive_gains(arm)
        runs = []
        for seed in (1, 2):  # one motion for the fit, another for validation
            motion = jaxdyn.identification.random_excitation(arm, options.duration, 5, seed=seed, usage=0.5)
            loop = jaxdyn.identification.ClosedLoop.following(motion, law, options.duration, 1e-3, every=2)
            log = jaxdyn.identification.closed_loop_log(arm, loop, jaxdyn.identification.NOISE_LEVELS[level], seed)
            runs.append(
                (
                    loop,
                    jaxdyn.identification.preprocess(
                        log, jaxdyn.identification.Filters(position_cutoff=options.cutoff, stride=1)
                    ),
                )
            )
        starts = jaxdyn.identification.perturbed_chains(arm, options.starts, seed=3)
        check = problem(arm, columns, base, runs[1], options)
        fit = {}
    for k, estimator in missing:
        if k not in fit:
            fit = {k: problem(starts[k], columns, base, runs[0], options)}
        row = {"noise": level, "start": k, "method": name_of(estimator), "converged": False}
        row |= dict.fromkeys(FIGURES, float("nan"))
        begin = time.perf_counter()
        try:
            estimate = estimator(fit[k])
        except jaxdyn.IdentificationError as error:
            print(f"  start {k}: {error}")
        else:
            seconds = time.perf_counter() - begin
            merit = jaxdyn.identification.figures_of_merit(check, estimate, truth, seconds)
            row |= dict(zip(FIGURES, merit, strict=True)) | {"converged": estimate.converged}
        keep(options, row)
        rows[level, k, row["method"]] = {key: str(value) for key, value in row.items()}
        if options.verbose:
            print(f"  {level}, start {k}: {row['method']:6s}", *(f"{row[f]:.4g}" for f in FIGURES), flush=True)
    return [rows[level, k, name_of(e)] for k, e in wanted]


def table(level, rows):
    """Print and return the means and standard deviations over all starts."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["method"]].append(row)
    noise = jaxdyn.identification.NOISE_LEVELS[level]
    print(f"\nnoise level {level}: {noise.position:.2g} rad, {noise.torque:.2g} N m")
    print(f"{'':8s}{'d_tau %':>16s}{'d_q %':>18s}{'d_beta %':>16s}{'d_t s':>8s}{'N_it':>8s}{'N_sim':>7s}  converged")
    out = {}
    for method, results in groups.items():
        found = np.array([[float(row[f]) for f in FIGURES] for row in results])
        found = found[np.isfinite(found[:, 0])]
        count = f"{sum(row['converged'] == 'True' for row in results)} of {len(results)}"
        if len(found):
            found[~np.isfinite(found)] = np.nan  # the simulated robot diverged
            mean, spread = found.mean(0), found.std(0)
            pair = lambda k, mean=mean, spread=spread: f"{mean[k]:.4f} +- {spread[k]:.4f}"
            seconds = np.median(found[:, 3])  # the median excludes the first call, which compiles
            print(f"{method:8s}{pair(0):>16s}{pair(1):>18s}{mean[2]:9.2f} +- {spread[2]:.2f}{seconds:8.2f}", end="")
            print(f"{mean[4]:8.1f}{mean[5]:7.1f}  {count}")
            out[method] = (*mean[:3], seconds, *mean[4:], *spread[:3])
        else:
            print(f"{method:8s}none converged, {count}")
    return out


def draw(results, path):
    """Plot d_tau, d_q and d_beta by method, with one point per noise level and error bars of one standard deviation."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    methods = list(dict.fromkeys(m for found in results.values() for m in found))
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, max(len(results), 2)))
    shifts = np.linspace(-0.28, 0.28, len(results)) if len(results) > 1 else [0.0]
    titles = ("torque error d_tau [%]", "position error d_q [%]", "parameter error d_beta [%]")
    for axis, k, title in zip(axes, range(3), titles, strict=True):
        for x in range(0, len(methods), 2):
            axis.axvspan(x - 0.5, x + 0.5, color="0.95", lw=0)
        for (level, found), colour, shift, mark in zip(results.items(), colours, shifts, "osD^v", strict=False):
            at = [methods.index(m) + shift for m in found]
            values, spread = ([v[row] for v in found.values()] for row in (k, 6 + k))
            axis.errorbar(at, values, spread, fmt="none", ecolor=colour, capsize=2, lw=1)
            axis.plot(at, values, mark, ms=5, color=colour, label=LABELS[level] if k == 0 else None)
            for x, value in zip(at, values, strict=True):
                if np.isnan(value):
                    axis.annotate("diverges", (x, 0.97), xycoords=("data", "axes fraction"), rotation=90, color=colour,
                                  ha="center", va="top", fontsize="small")  # fmt: skip
        values = [v[k] for found in results.values() for v in found.values() if np.isfinite(v[k])]
        if max(values) > 8 * min(values):
            axis.set_yscale("log")
            ticks = [m * 10.0**e for e in range(-5, 4) for m in (1, 2, 5)]
            axis.set_yticks([y for y in ticks if min(values) / 2.5 <= y <= 2.5 * max(values)], minor=False)
            axis.set_ylim(min(values) / 1.5, 1.5 * max(values))
            axis.minorticks_off()
            axis.yaxis.set_major_formatter("{x:g}")
        else:
            axis.set_ylim(0, 1.1 * max(values))
        axis.set_title(title, fontsize="medium")
        axis.set_xlim(-0.5, len(methods) - 0.5)
        axis.set_xticks(range(len(methods)), methods, rotation=45, ha="right", rotation_mode="anchor")
        axis.grid(axis="y", alpha=0.4)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, title="noise level")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", choices=("planar", "tx40"), default="planar")
    parser.add_argument("--starts", type=int, default=2)
    levels = list(jaxdyn.identification.NOISE_LEVELS)
    parser.add_argument("--noise", nargs="+", choices=levels, default=["standard", "high_both"])
    parser.add_argument("--duration", type=float, default=5.0, help="duration of the motion [s]")
    parser.add_argument("--cutoff", type=float, default=100.0, help="cutoff frequency of the position filter [Hz]")
    parser.add_argument(
        "--parallel", type=float, default=40.0, help="cutoff frequency of the filter on regressor and torques [Hz]"
    )
    parser.add_argument("--protocol", action="store_true", help="TX40-like arm, 25 starts, all noise levels, 10 s")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.protocol:
        options.arm, options.starts, options.noise = "tx40", 25, levels
        options.duration, options.cutoff, options.parallel = 10.0, 50.0, 20.0
    arm = planar_arm() if options.arm == "planar" else tx40_like()
    results = {level: table(level, study(arm, level, options)) for level in options.noise}
    with open("compare_estimators.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["noise", "method", *FIGURES, "sd_tau", "sd_q", "sd_beta"])
        writer.writerows([level, method, *row] for level, found in results.items() for method, row in found.items())
    draw(results, "compare_estimators.png")
    print("\nwritten: compare_estimators.csv, compare_estimators.png")


if __name__ == "__main__":
    main()
