"""Identification from commands, on MuJoCo's logs with known servos: `python -m tests.benchmarks.commands`.

Each log has other servos, drives, delays (1 to 20 ms) and resolutions of the encoders, which depend on its seed alone. For
each robot and resolution, the table shows the share of values within two standard deviations of the truth, for each kind of
parameter, the share of values that the logs determine, and the errors of the delays: median, largest, and share within 0.2 ms.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jaxdyn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servo_logs import ROBOTS, command_log, servos

JUDGED = ("kp", "delay", "bias", "armature", "viscous", "coulomb")


class Found(NamedTuple):
    """Errors / standard deviations (6, n), NaN if undetermined; errors of delays [s]; noise relative to the resolution's."""

    scaled: np.ndarray
    delays: np.ndarray
    noise: np.ndarray


def found_in_log(robot: str, seed: int, bits: int, options: argparse.Namespace) -> Found:
    """Identify one log."""
    chain, true = servos(robot, seed)
    quantum = 2 * np.pi / 2**bits
    log = command_log(
        true,
        options.seconds,
        options.rate,
        quantum,
        seed,
        harmonics=round(2.5 * options.seconds),
        every=1 + seed // 3 % 3,
        smooth=options.smooth,
    )
    found = jaxdyn.identification.identify_from_commands(chain, log, 0.0, step=options.step)
    off = np.stack([found[name] - true.truth(name) for name in JUDGED])
    deviations = np.stack([found.deviations(name) for name in JUDGED])
    scaled = np.where(np.isfinite(deviations), off / deviations, np.nan)
    return Found(scaled, off[JUDGED.index("delay")], found.noise / quantum * np.sqrt(12))


def row(name: str, logs: list[Found]) -> str:
    """One row of the table."""
    scaled = np.concatenate([x.scaled for x in logs], axis=1)
    delays = 1e3 * np.abs(np.concatenate([x.delays for x in logs]))
    known, within = np.isfinite(scaled), np.abs(scaled) <= 2
    shares = [f"{100 * np.mean(w[k]):.1f}" if k.any() else "-" for w, k in zip(within, known, strict=True)]
    whole = f"{100 * np.mean(within[known]):.1f} ({np.count_nonzero(known)} of {known.size})"
    errors = f"{np.median(delays):.3f} | {delays.max():.3f} | {100 * np.mean(delays < 0.2):.1f}"
    return (
        f"| {name} | {len(logs)} | {whole} | {' | '.join(shares)} | {errors} | {max(x.noise.max() for x in logs):.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--count", type=int, default=12, help="logs per robot")
    parser.add_argument("--first", type=int, default=201, help="seed of the first log")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=250.0, help="of the logs [Hz]")
    parser.add_argument("--bits", type=int, nargs="+", default=[12, 14, 16], help="of the encoders, by turns")
    parser.add_argument("--step", type=float, default=5e-4, help="of the integration [s]")
    parser.add_argument(
        "--smooth", action="store_true", help="MuJoCo's default friction, without a short time constant"
    )
    parser.add_argument("--each", action="store_true", help="print each log")
    options = parser.parse_args()
    kinds = " | ".join(JUDGED)
    print(f"| robot, encoder | logs | % within 2 sd | {kinds} | delay error [ms]: median | max | % < 0.2 | noise |")
    print("|" + "---|" * (7 + len(JUDGED)))
    everything, start = [], time.perf_counter()
    for robot in options.robots:
        logs = []
        for seed in range(options.first, options.first + options.count):
            bits = options.bits[seed % len(options.bits)]
            logs.append((bits, found_in_log(robot, seed, bits, options)))
            if options.each:
                print(row(f"{robot} {seed}, {bits} bit", [logs[-1][1]]), file=sys.stderr, flush=True)
        for bits in sorted({b for b, _ in logs}):
            print(row(f"{robot}, {bits} bit", [x for b, x in logs if b == bits]), flush=True)
        everything += [x for _, x in logs]
    print(row("all", everything))
    print(f"{(time.perf_counter() - start) / len(everything):.0f} s per log")


if __name__ == "__main__":
    main()
