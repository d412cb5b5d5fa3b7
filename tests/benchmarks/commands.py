"""Identification from commands, on MuJoCo's logs with known servos: `python -m tests.benchmarks.commands`.

For each robot, the table shows the share of parameters within two standard deviations of the truth, the root mean square of
errors / standard deviations, the largest and the median error of the delays, and the largest residual in steps of the encoder.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import jaxdyn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from servo_logs import ROBOTS, command_log, servos

JUDGED = ("kp", "delay", "bias", "armature", "viscous", "coulomb")


def scaled_errors(
    robot: str, seed: int, seconds: float, rate: float, bits: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Errors / standard deviations of all determined parameters, errors of the delays [s], and the largest residual."""
    chain, true = servos(robot, seed)
    quantum = 2 * np.pi / 2**bits
    log = command_log(true, seconds, rate, quantum, seed, harmonics=round(2.5 * seconds), every=1 + seed % 3)
    found = jaxdyn.identification.identify_from_commands(chain, log, 0.0)
    off = np.stack([found[name] - true.truth(name) for name in JUDGED])
    deviations = np.stack([found.deviations(name) for name in JUDGED])
    return (off / deviations)[np.isfinite(deviations)], off[1], float(found.noise.max() / quantum * np.sqrt(12))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--count", type=int, default=12, help="logs per robot")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=250.0, help="of the logs [Hz]")
    parser.add_argument("--bits", type=int, default=14, help="of the encoders, for one turn")
    options = parser.parse_args()
    print(
        f"{'robot':8} {'logs':>5} {'values':>7} {'within 2 sd':>12} {'rms':>6} "
        f"{'delay [ms]':>18} {'residual':>9} {'seconds':>8}"
    )
    together = []
    for robot in options.robots:
        start = time.perf_counter()
        errors, delays, residuals = zip(
            *(
                scaled_errors(robot, seed, options.seconds, options.rate, options.bits)
                for seed in range(1, options.count + 1)
            ),
            strict=True,
        )
        together.append((np.concatenate(errors), 1e3 * np.abs(np.concatenate(delays)), max(residuals)))
        _print(robot, options.count, *together[-1], (time.perf_counter() - start) / options.count)
    _print("all", options.count * len(together), *map(np.concatenate, [[x[k] for x in together] for k in (0, 1)]), 0, 0)


def _print(name, logs, errors, delays, residual, seconds) -> None:
    share, rms = np.mean(np.abs(errors) <= 2), np.sqrt(np.mean(errors**2))
    within = f"{np.median(delays):.3f}, {delays.max():.3f}, {100 * np.mean(delays < 0.2):.0f} %"
    print(
        f"{name:8} {logs:5} {len(errors):7} {share:12.1%} {rms:6.2f} {within:>18} {residual:9.2f} {seconds:8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
