"""`jaxdyn excite`: from a robot description and its limits to a motion that tells its parameters best."""

import argparse

from .arguments import INTERRUPTED, OK, finite, misused, numbers, pair, positive, terms
from .progress import Progress

EPILOG = """exit codes: 0 done; 1 bad input (the message says what, where and what to do); 2 wrong usage; 130 interrupted: what
was found until then is written. Limits are one number for all joints, or one a joint with commas; where the first is
negative, with an equals sign: --lower=-2.9,-1.8"""

RATES = ("velocity", "acceleration", "jerk", "torque", "torque-rate")


def add(commands) -> None:
    """Add the subcommand's parser."""
    command = commands.add_parser(
        "excite",
        help="design the motion from which a robot is identified best, within its limits",
        description="Design the motion from which a robot's parameters are identified best, within all its limits: it starts "
        "and ends at rest and maximises log det of the information on the base parameters.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    option = command.add_argument
    option("model", metavar="URDF", help="the robot; torque limits are checked with the inertials in it")
    option("--out", metavar="FILE", default="excitation.csv", help="table t, q, qd, qdd, tau (default: %(default)s)")
    option("--rate", type=positive, default=1000.0, metavar="HZ", help="samples a second in the table (1000)")
    option("--picture", metavar="FILE", help="draw the motion against its limits, to a png, svg or pdf file")
    option("--duration", type=positive, default=10.0, metavar="S", help="of the motion [s] (10)")
    option("--frequency", type=positive, default=1.0, metavar="HZ", help="highest in the Fourier series (1)")
    option("--splines", type=int, metavar="K", help="B-splines with K intervals in place of a Fourier series")
    option("--lower", type=numbers, metavar="Q1,Q2,..", help="lower position limits [rad or m] (default: the model's)")
    option("--upper", type=numbers, metavar="Q1,Q2,..", help="upper position limits [rad or m] (default: the model's)")
    units = ("rad/s", "rad/s^2", "rad/s^3", "N m", "N m/s")
    for name, unit in zip(RATES, units, strict=True):
        default = "the model's" if name in ("velocity", "torque") else "none"
        option(f"--{name}", type=numbers, metavar="X1,X2,..", help=f"{name} limits [{unit}] (default: {default})")
    option("--usage", type=positive, default=0.95, metavar="SHARE", help="share of every limit to use (0.95)")
    option(
        "--terms", type=terms, metavar="TERMS", default="armature,viscous,coulomb,offset", help="drive terms to excite"
    )
    option("--torque-noise", type=numbers, metavar="S1,S2,..", help="torque noise of each joint [N m] (all alike)")
    option("--condition-weight", type=finite, default=0.5, metavar="W", help="of the condition number (0.5)")
    option("--compare", metavar="FILE", help="log of another motion, such as a published one, to rate beside this one")
    option("--starts", type=int, default=4, metavar="K", help="random motions to start from (4)")
    option("--rounds", type=int, default=16, metavar="K", help="of twenty steps (16)")
    option("--time-limit", type=positive, metavar="S", help="stop after this time with the best motion so far")
    option("--seed", type=int, default=0, help="of the random starts (0)")
    option("--lock", type=pair, metavar="JOINT=VALUE", action="append", default=[], help="hold a joint at a value")
    option("--tip", metavar="LINK", help="take the serial chain from the base to this link")
    option("--allow-nonphysical", action="store_true", help="accept a model with inertias that no body can have")
    option("--quiet", action="store_true", help="no progress bar and no summary")


def run(options: argparse.Namespace) -> int:
    """Design, write, print a summary; returns the exit code."""
    import os

    import jax

    # this process is ours; the library itself never touches the configuration
    jax.config.update("jax_enable_x64", True)

    from ..identification._excitation.basis import BSplines, FourierSeries
    from ..identification._excitation.compare import compare_with_log, summary
    from ..identification._excitation.design import optimal_excitation
    from ..identification._excitation.limits import motion_limits
    from ..identification._excitation.output import draw_trajectory, sample_trajectory, write_trajectory
    from ..identification._regression.columns import Columns
    from ..io._files import check_output_folder
    from ..io._load import load
    from ..io._logs.log import read_log

    if options.usage > 1:
        return misused(f"--usage is {options.usage:g}; it is 1 at most")
    for path in filter(None, (options.out, options.picture)):
        folder, name = os.path.split(os.path.abspath(path))
        check_output_folder(folder, (name,))
        os.makedirs(folder, exist_ok=True)
    lock = dict(options.lock) or None
    chain = load(options.model, lock=lock, tip=options.tip, allow_nonphysical=options.allow_nonphysical)
    given = {name: getattr(options, name) for name in ("lower", "upper", *(r.replace("-", "_") for r in RATES))}
    limits = motion_limits(chain, **given)
    log = read_log(options.compare, chain.n) if options.compare else None
    family = (
        BSplines(options.duration, options.splines)
        if options.splines
        else FourierSeries(options.duration, max(3, round(options.frequency * options.duration)))
    )
    columns = Columns(options.terms)
    noise = options.torque_noise
    if noise is not None and len(noise) == 1:
        noise = noise * chain.n
    with Progress(options.quiet) as progress:
        design = optimal_excitation(
            chain,
            family,
            limits=limits,
            usage=options.usage,
            columns=columns,
            torque_noise=noise,
            condition_weight=options.condition_weight,
            starts=options.starts,
            rounds=options.rounds,
            time_limit=options.time_limit,
            seed=options.seed,
            progress=progress,
        )
    samples = sample_trajectory(chain, design.trajectory, options.rate)
    write_trajectory(options.out, samples)
    if options.picture:
        draw_trajectory(options.picture, chain, samples, limits)
    if not options.quiet:
        compared = None if log is None else compare_with_log(chain, design, log, columns, noise)
        print(summary(design, chain.joint_names, compared))
        print("written:", ", ".join(filter(None, (options.out, options.picture))))
    return INTERRUPTED if any(note.startswith("interrupted") for note in design.notes) else OK
