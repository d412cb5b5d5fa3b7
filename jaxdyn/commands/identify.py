"""`jaxdyn identify`: from a URDF and logs to a report, parameters and a model file."""

import argparse
import dataclasses
import pathlib

from .arguments import (
    OK,
    add_checks,
    add_filters,
    axes,
    delays,
    finite,
    misused,
    numbers,
    pair,
    positive,
    rows,
    share,
    terms,
)
from .progress import Progress

EPILOG = """exit codes: 0 done; 1 bad input (the message says what, where and what to do); 2 wrong usage; 130 interrupted.
With no --model and no --log a built-in 7R arm is simulated, identified and compared with the truth."""

# what is no setting of a result, or is shown with its files
_NOT_SETTINGS = ("run", "command", "arguments", "model", "log", "validate", "out", "quiet")


def add(commands) -> None:
    """Add the subcommand's parser."""
    command = commands.add_parser(
        "identify",
        help="identify a robot's inertial parameters and friction from logged motion",
        description="Identify a robot's inertial parameters, friction and armature from logged motion.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    option = command.add_argument
    option("--model", metavar="URDF", help="the robot; inertials in it are the prior, a kinematics-only file will do")
    option(
        "--log",
        metavar="FILE",
        action="append",
        default=[],
        help="log to fit: csv, npz, parquet, bag or mcap; may be repeated",
    )
    option(
        "--validate",
        metavar="FILE",
        action="append",
        default=[],
        help="log to validate on, not fitted; may be repeated",
    )
    option("--out", metavar="DIR", default="identified", help="folder for the results (default: %(default)s)")
    option(
        "--rows",
        type=rows,
        metavar="FIRST:LAST",
        action="append",
        default=[],
        help="rows of a log to read, in the order of the logs",
    )
    option(
        "--columns",
        metavar="MAP",
        action="append",
        default=[],
        help="column map (TOML) for logs in another form: one for all, or one a log in their order (- for none)",
    )
    option("--topic", metavar="TOPIC", help="topic with the joint states, of bags (default: found)")
    option(
        "--gains",
        type=numbers,
        metavar="K1,K2,..",
        help="torque = gain * current, for logs with columns i1.. [N m/A]",
    )
    option(
        "--lock",
        type=pair,
        metavar="JOINT=VALUE",
        action="append",
        default=[],
        help="hold a joint at a value (a gripper's finger)",
    )
    option("--tip", metavar="LINK", help="take the serial chain from the base to this link")
    option(
        "--terms",
        type=terms,
        metavar="TERMS",
        default="armature,viscous,coulomb,offset",
        help="drive terms to identify (default: %(default)s)",
    )
    option(
        "--friction",
        choices=("terms", "chosen"),
        default="terms",
        help="chosen: the best of a dozen models for each joint, with memory and load, by cross-validation, instead of "
        "viscous, Coulomb and constant terms (minutes)",
    )
    option("--coupled", type=axes, metavar="A,B", action="append", default=[], help="coupled axes A and B (a wrist)")
    option(
        "--coulomb-velocity",
        type=positive,
        metavar="V",
        help="width of the smooth sign in Coulomb friction [rad/s] (0.02)",
    )
    add_filters(option)
    option(
        "--holdout", type=share, default=0.3, metavar="SHARE", help="share held out without --validate (default: 0.3)"
    )
    option(
        "--dead-zone",
        type=finite,
        default=0.0,
        metavar="V",
        help="leave slower samples out of a joint's fit [rad/s] (0)",
    )
    option(
        "--delay",
        type=delays,
        metavar="D|D1,D2,..|estimated",
        help="how much later than positions the torques were logged [s], taken out of all logs; estimated: found from the "
        "fitted ones",
    )
    option("--springs", action="store_true", help="a spring at each joint, for cables and balancers")
    option(
        "--settings",
        choices=("given", "chosen"),
        default="given",
        help="chosen: the filter, and dry friction, springs and delays a joint, by cross-validation on what is fitted",
    )
    option("--mass", type=positive, metavar="KG", help="what all moving links weigh together, where it is known")
    option(
        "--prior-weight",
        type=positive,
        default=1.0,
        metavar="W",
        help="of the model's own inertias against the log (default: %(default)s)",
    )
    option(
        "--no-consistent",
        action="store_true",
        help="plain least squares, also where no body can have the inertias; then no URDF is written",
    )
    option(
        "--limit",
        action="append",
        default=[],
        metavar="rms=X,..",
        help="errors good enough for the verdict: rms=, rre= or moving= with one number, or one a joint; may be repeated",
    )
    add_checks(option)
    option("--allow-nonphysical", action="store_true", help="accept a model with inertias that no body can have")
    option("--quiet", action="store_true", help="no progress bar and no summary")


def run(options: argparse.Namespace) -> int:
    """Identify, write the results, print a summary; returns the exit code."""
    import jax

    # this process is ours; the library itself never touches the configuration
    jax.config.update("jax_enable_x64", True)

    from ..identification._identify import identify
    from ..identification._regression.columns import coupled_drive, joint_springs
    from ..identification._regression.robot import check_identifiable
    from ..identification._validation.diagnostics import diagnose_identification
    from ..io._files import check_output_folder
    from ..io._load import load
    from ..io._logs.bags import is_bag
    from ..io._logs.log import check_log, read_log
    from ..report._output import FILES, write_all
    from ..report._provenance import collect_provenance
    from ..report._summary import print_summary
    from ..report._verdict import parse_limit

    if bool(options.model) != bool(options.log):
        missing = "--log" if options.model else "--model"
        return misused(f"{missing} is missing; give both, or neither for the built-in example")
    of_logs = (options.validate, options.rows, options.columns, options.topic, options.gains, options.lock, options.tip)
    if not options.model and any(of_logs):
        return misused("--validate, --rows, --columns, --topic, --gains, --lock and --tip need a --model and a --log")
    count = len(options.log) + len(options.validate)
    maps = [None if path == "-" else path for path in options.columns]
    if len(maps) not in (0, 1, count):
        return misused(
            f"--columns is given {len(maps)} times for {count} log{'s'[: count != 1]}: give one for all, or one for each"
        )
    maps = maps * count if len(maps) == 1 else maps or [None] * count
    if len(options.rows) > count:
        return misused(f"--rows is given {len(options.rows)} times for {count} log{'s'[: count != 1]}")
    if options.settings == "chosen" and (options.delay is not None or options.springs):
        return misused("--settings chosen chooses delays and springs itself: leave --delay and --springs out")
    limits = [parse_limit(text) for text in options.limit]
    out = pathlib.Path(options.out)
    check_output_folder(out, FILES)
    lock = dict(options.lock)
    truth = None
    if options.model:
        chain = load(options.model, lock=lock, tip=options.tip, allow_nonphysical=options.allow_nonphysical)
        check_identifiable(chain)
        chain = _with_coulomb_velocity(chain, options.coulomb_velocity)
        ranges = dict(enumerate(options.rows))
        files = [*options.log, *options.validate]
        bags = any(is_bag(pathlib.Path(path)) for path in files)

        def read(position: int, path: str):
            log = read_log(
                path,
                chain.joint_names,
                gains=options.gains,
                rows=ranges.get(position),
                on_bad_rows=options.on_bad_rows,
                columns=maps[position],
                topic=options.topic if is_bag(pathlib.Path(path)) or not bags else None,
            )
            # a joint may rest in one log and move in another: `identify` refuses one that moves in none
            return check_log(log, chain, units_checked=options.units_checked, allow_still=True)

        checked = [read(i, p) for i, p in enumerate(files)]
        logs, validation = checked[: len(options.log)], checked[len(options.log) :]
    else:
        from ..identification._simulation.synthetic import example

        truth, chain, logs, validation = example()
        chain = _with_coulomb_velocity(chain, options.coulomb_velocity)
    for limit in limits:
        limit.of_joints(chain.n)  # before the work
    with Progress(options.quiet) as progress:
        result = identify(
            chain,
            logs,
            validation,
            drive_terms=options.terms,
            extra=[coupled_drive(a, b) for a, b in options.coupled] + [joint_springs(chain)] * options.springs,
            holdout=options.holdout,
            dead_zone=options.dead_zone,
            position_cutoff=options.cutoff,
            torque_cutoff=options.torque_cutoff or options.cutoff,
            stride=options.stride,
            delay=options.delay,
            settings="chosen" if options.settings == "chosen" else None,
            consistent=not options.no_consistent,
            mass=options.mass,
            prior_weight=options.prior_weight,
            friction="chosen" if options.friction == "chosen" else None,
            progress=progress,
        )
        progress("looking for faults", 0, 1)
        findings = diagnose_identification(result)
        result = dataclasses.replace(result, notes=(*(f.text for f in findings), *result.notes))
        progress("looking for faults", 1, 1)
        progress("writing results", 0, 1)
        files = [("model", options.model)] if options.model else []
        files += [("log", path) for path in options.log] + [("validation", path) for path in options.validate]
        settings = {k.replace("_", " "): v for k, v in vars(options).items() if k not in _NOT_SETTINGS}
        if result.delay is not None:
            settings |= {} if result.settings is None else {"settings chosen": result.settings.sentence}
            settings["delays taken out [ms]"] = ", ".join(f"{1e3 * d:.3g}" for d in result.delay)
        paths = write_all(
            result,
            out,
            source_urdf=options.model,
            load_options={"lock": lock or None, "tip": options.tip},
            limits=limits,
            provenance=collect_provenance(files, settings, getattr(options, "arguments", None)),
        )
        progress("writing results", 1, 1)
    if not options.quiet:
        print_summary(result, paths, truth, limits=limits, findings=findings)
    return OK


def _with_coulomb_velocity(chain, velocity: float | None):
    import equinox as eqx
    import jax.numpy as jnp

    if velocity is None:
        return chain
    return eqx.tree_at(lambda c: c.coulomb_velocity, chain, jnp.full_like(chain.coulomb_velocity, velocity))
