"""`jaxdyn excite`: design the most informative excitation trajectory within a robot's limits."""

import argparse
import math
import os
from typing import TYPE_CHECKING, Any

from . import arguments
from .arguments import WrongUsage, finite, numbers, positive
from .inputs import check_logs, load_possible, load_shapes, read_logs, use_float64
from .progress import Progress
from .settings import READING, add_settings, settings_of

if TYPE_CHECKING:
    from ..identification import FourierSeries, Separation
    from ..identification.excitation import MotionLimits
    from ..model import Chain

EPILOG = """A limit is either one number for all joints or comma-separated numbers, one per joint. If the first number is
negative, use an equals sign: --lower=-2.9,-1.8

A settings file (TOML) may contain --lock, --tip, --gravity, the options for the log of --compare, and further keys:
[keys]

exit codes: 0 success; 1 invalid input (the message states the problem and a remedy); 2 usage error; 130 interrupted (the
best trajectory so far is written)"""

RATES = {"velocity": "rad/s", "acceleration": "rad/s^2", "jerk": "rad/s^3", "torque": "N m"}


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "excite",
        run,
        EPILOG,
        help="design the most informative excitation trajectory within a robot's limits",
        description="Design the most informative excitation trajectory within a robot's limits. The trajectory starts and "
        "ends at rest, and maximises log det of the information matrix of the base parameters.",
    )
    option = command.add_argument
    option("model", metavar="URDF", help="the robot; its inertials are used to check torque limits")
    option(
        "--out",
        metavar="FILE",
        default="excitation.csv",
        help="CSV file to write, with t, q, qd, qdd and tau (default: %(default)s)",
    )
    option("--rate", type=positive, default=1000.0, metavar="HZ", help="sample rate of the file (default: 1000)")
    option("--picture", metavar="FILE", help="plot the trajectory and its limits to a PNG, SVG or PDF file")
    _add_limits(command.add_argument_group("trajectory and limits").add_argument)
    _add_clearance(command.add_argument_group("clearance").add_argument)
    _add_design(command.add_argument_group("design").add_argument)
    arguments.add_layout(command.add_argument_group("how the log of --compare is read").add_argument)
    arguments.add_chain(option)
    arguments.add_gravity(option)
    add_settings(command, option, READING)
    option("--quiet", action="store_true", help="hide the progress bar and the summary")


def _add_limits(option) -> None:
    """Add the options for the kind of trajectory and its limits."""
    option("--duration", type=positive, default=10.0, metavar="S", help="duration of the trajectory [s] (default: 10)")
    option(
        "--frequency",
        type=positive,
        default=1.0,
        metavar="HZ",
        help="highest frequency of the Fourier series (default: 1)",
    )
    for side in ("lower", "upper"):
        about = f"{side} position limits [rad or m] (default: the model's)"
        option(f"--{side}", type=numbers, metavar="Q1,Q2,..", help=about)
    defaults = {"acceleration": "conservative: the velocity limit is reached in 0.5 s", "jerk": "none"}
    for name, unit in RATES.items():
        default = defaults.get(name, "the model's")
        option(f"--{name}", type=bounds, metavar="X1,X2,..", help=f"{name} limits [{unit}] (default: {default})")
    option(
        "--usage", type=positive, default=0.95, metavar="SHARE", help="fraction of each limit to use (default: 0.95)"
    )


def _add_clearance(option) -> None:
    """Add the options for what the robot must not touch."""
    about = "least distance of the robot's collision shapes from each other, from the floor and from obstacles [m], or none "
    about += "(default: 0.03)"
    option("--clearance", type=distance, default=0.03, metavar="M", help=about)
    arguments.add_shapes(option)


def _add_design(option) -> None:
    """Add the options for the objective and the extent of the search."""
    about = f"drive terms to excite (default: {','.join(arguments.DRIVES)})"
    option("--terms", type=arguments.terms, metavar="TERMS", default=arguments.DRIVES, help=about)
    option(
        "--torque-noise",
        type=numbers,
        metavar="S1,S2,..",
        help="standard deviation of each joint's torque noise [N m] (default: the same for all joints)",
    )
    about = "log of another trajectory, such as a published one, to compare with; read as the following options specify"
    option("--compare", metavar="LOG", help=about)
    option("--starts", type=int, default=4, metavar="K", help="number of random initial trajectories (default: 4)")
    option("--rounds", type=int, default=16, metavar="K", help="number of rounds of 20 optimiser steps (default: 16)")
    option(
        "--time-limit", type=positive, metavar="S", help="stop after this time [s] and write the best trajectory so far"
    )
    option("--seed", type=int, default=0, help="seed for the random initial motions (default: 0)")


def distance(text: str) -> float | None:
    return None if text.strip() == "none" else positive(text)


def bounds(text: str) -> list[float]:
    return [math.inf if x.strip() == "inf" else finite(x) for x in text.split(",")]


def run(options: argparse.Namespace) -> int:
    """Design the trajectory, write it and print a summary; return the exit code."""
    options = settings_of(options)
    if options.usage > 1:
        raise WrongUsage(f"--usage is {options.usage:g}; it must not exceed 1")
    compared_logs = [options.compare] if options.compare else []
    if not compared_logs and (options.rows or options.columns or options.topic or options.gains):
        raise WrongUsage(
            "--rows, --columns, --topic and --gains say how the log of --compare is read, but none is given"
        )
    if (options.environment or options.srdf) and options.clearance is None:
        raise WrongUsage("--environment and --srdf need a clearance, but --clearance is none")
    check_logs(options, 1)
    use_float64()
    from ..identification.columns import Columns
    from ..identification.excitation import draw_trajectory, sample_trajectory, write_trajectory
    from ..identification.excitation_design import ExcitationSearch, compare_with_log, optimal_excitation, summary
    from ..io.files import check_output_folder
    from ..io.logs import check_log

    written = list(filter(None, (options.out, options.picture)))
    for folder, name in (os.path.split(os.path.abspath(path)) for path in written):
        check_output_folder(folder, (name,))  # before the long computation
        os.makedirs(folder, exist_ok=True)
    chain, limits, family = _problem(options)
    clearance = _clearance(options, chain)
    log = next(read_logs(options, compared_logs, chain, options.model), None)
    log = None if log is None else check_log(log, chain, allow_still=True)
    columns = Columns(options.terms)
    noise = options.torque_noise
    if noise is not None and len(noise) == 1:
        noise = noise * chain.n
    search = ExcitationSearch(options.starts, options.rounds, options.time_limit, options.seed)
    with Progress(options.quiet) as progress:
        design = optimal_excitation(
            chain,
            family,
            limits=limits,
            usage=options.usage,
            clearance=clearance,
            columns=columns,
            torque_noise=noise,
            search=search,
            progress=progress,
        )
    samples = sample_trajectory(chain, design.trajectory, options.rate)
    write_trajectory(options.out, samples)
    if options.picture:
        draw_trajectory(options.picture, chain, samples, limits)
    if not options.quiet:
        compared = None if log is None else compare_with_log(chain, design, log, columns, noise)
        print(summary(design, chain.joint_names, compared))
        if clearance is not None:
            for note in clearance.shapes.notes:
                if note.startswith("omitted"):
                    print(note)
            if options.floor:
                print("z = 0 of the base frame is a floor, which the robot does not touch; --no-floor leaves it out")
        if options.acceleration is None:
            print(
                "accelerations are limited conservatively; pass the manufacturer's limits with --acceleration if you know them"
            )
        print("written:", ", ".join(written))
    stopped = any(note.startswith("interrupted") for note in design.notes)
    return arguments.INTERRUPTED if stopped else arguments.OK


def _problem(options: argparse.Namespace) -> tuple["Chain", "MotionLimits", "FourierSeries"]:
    """The robot, its limits, and the kind of trajectory."""
    from ..identification.excitation import FourierSeries, motion_limits

    parts = {"lock": options.lock or None, "tip": options.tip, "gravity": options.gravity}
    chain = load_possible(options.model, **parts)
    given = {name: getattr(options, name) for name in ("lower", "upper", *RATES)}
    family = FourierSeries(options.duration, max(3, round(options.frequency * options.duration)))
    return chain, motion_limits(chain, **given), family


def _clearance(options: argparse.Namespace, chain: "Chain") -> "Separation | None":
    """What the robot keeps apart from itself, the floor and obstacles; None, with a warning, if its shapes are not known."""
    from ..errors import ModelError, warn
    from ..identification import Separation

    if options.clearance is None:
        return None
    # the design itself leaves out pairs that always touch
    shapes = load_shapes(options, options.model, chain, required=False, samples=0)
    if shapes is not None:
        return Separation(shapes, options.clearance)
    if options.environment:
        raise ModelError("the robot has no shapes to keep clear of --environment", place=options.model)
    if options.shapes != "none":
        warn("the shapes are not known: nothing keeps the robot from touching itself or the floor")
    return None
