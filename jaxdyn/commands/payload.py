"""`jaxdyn payload`: identify a payload from runs with and without it, or calibrate drive gains with a known payload."""

import argparse
from typing import TYPE_CHECKING, Any

from . import arguments
from .arguments import WrongUsage
from .inputs import check_logs, filters_of, provenance_of, read_logs, read_model, use_float64
from .progress import Progress
from .settings import FILTERING, READING, add_settings, settings_of

if TYPE_CHECKING:
    from ..identification import TorqueModel
    from ..identification.payload import DriveGains
    from ..io import Log

EPILOG = f"""{arguments.LOGS_EPILOG}

If both --unloaded and --loaded runs are given, the payload is identified in a single fit to all runs. If only --loaded runs are
given, it is identified relative to the model, best the model.eqx that `jaxdyn identify` wrote, with all of its friction. --mass
calibrates the drive gains with a payload of known mass. To identify another payload with these gains, pass the file written by
--out to --calibrated.

A settings file (TOML) may contain the options from --rows to --gravity and --delay, and further keys:
[keys]"""


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "payload",
        run,
        EPILOG,
        help="identify a payload from runs with and without it, or calibrate drive gains with a known payload",
        description="Identify the mass, centre of mass and inertia of a payload, or calibrate drive gains with a payload of "
        "known mass.",
    )
    option = command.add_argument_group("arm and logs").add_argument
    about = "the arm: URDF, MJCF or model.eqx; a kinematics-only file suffices with --unloaded"
    option("--model", metavar="MODEL", required=True, help=about)
    arguments.add_repeated(option, "--unloaded", "LOG", help="log without the payload; may be repeated")
    arguments.add_repeated(option, "--loaded", "LOG", help="log with the payload; may be repeated")
    arguments.add_layout(option, "in the order of the logs, with unloaded logs first")
    arguments.add_chain(option)
    arguments.add_gravity(option)
    option = command.add_argument_group("payload").add_argument
    option("--frame", metavar="NAME", help="link or frame that carries the payload (default: the tip)")
    option(
        "--mass",
        type=arguments.positive,
        metavar="KG",
        help="known mass of the payload, used to calibrate the drive gains",
    )
    about = "with --mass: known centre of mass of the payload, in the frame that carries it [m]"
    option("--com", type=arguments.numbers, metavar="X,Y,Z", help=about)
    option("--calibrated", metavar="FILE", help="file with calibrated gains, as written with --mass")
    option = command.add_argument_group("data").add_argument
    about = "delays of the logged torques [s], to remove from all logs"
    option("--delay", type=arguments.delays, metavar="D|D1,D2,..", help=about)
    option(
        "--own-friction",
        action="store_true",
        help="fit the coefficients of friction separately for each run, for example if the temperature changed",
    )
    add_settings(command, option, (*READING, "ignore_inertials", "delay", *FILTERING))
    option = command.add_argument_group("output").add_argument
    option("--out", metavar="FILE", help="write the payload, or with --mass the gains, to this JSON file")
    option("--report", metavar="FILE", help="write the payload as an HTML page to this file")
    option("--quiet", action="store_true", help="hide the progress bar and the summary")


def run(options: argparse.Namespace) -> int:
    """Identify the payload or calibrate the gains, write the file and print a summary; return the exit code."""
    options = settings_of(options)
    _check(options)
    use_float64()
    from ..errors import OutputError
    from ..io.files import check_output_file, write_whole
    from ..report.payloads import read_gains

    outputs = [path for path in (options.out, options.report) if path]
    for path in outputs:
        check_output_file(path)
    known = read_gains(options.calibrated) if options.calibrated else None
    arm = read_model(options, options.model, allow_nonphysical=False)
    with Progress(options.quiet) as progress:
        with progress.stage("reading logs"):
            logs = list(read_logs(options, [*options.unloaded, *options.loaded], arm.chain, options.model))
        unloaded, loaded = logs[: len(options.unloaded)], logs[len(options.unloaded) :]
        with progress.stage("fitting"):
            text, lines = _fitted(options, arm, unloaded, loaded, known)
        if options.out:
            write_whole(options.out, text, OutputError)
    if not options.quiet:
        print("\n".join(lines))
        for path in outputs:
            print(f"written: {path}")
    return arguments.OK


def _check(options: argparse.Namespace) -> None:
    """Raise an error if options conflict."""
    if not options.loaded:
        raise WrongUsage("--loaded is missing; pass at least one log with the payload")
    if options.ignore_inertials and not options.unloaded:
        raise WrongUsage(
            "without an --unloaded log, the payload is identified relative to the model's inertials: omit ignore_inertials"
        )
    if options.ignore_inertials and options.model.endswith(".eqx"):
        raise WrongUsage("ignore_inertials applies only to URDF and MJCF: a model.eqx has identified inertias")
    if options.mass is not None and not options.unloaded:
        raise WrongUsage("--mass calibrates gains, which also requires an --unloaded log")
    if options.com is not None and options.mass is None:
        raise WrongUsage("--com needs --mass")
    if options.mass is not None and options.report:
        raise WrongUsage("--report is the page of a payload, and --mass calibrates gains: pass only one of the two")
    if options.mass is not None and options.calibrated:
        raise WrongUsage("--mass calibrates gains and --calibrated uses them; pass only one of the two")
    check_logs(options, len(options.unloaded) + len(options.loaded))


def _fitted(
    options: argparse.Namespace,
    arm: "TorqueModel",
    unloaded: list["Log"],
    loaded: list["Log"],
    known: "DriveGains | None",
) -> tuple[str, list[str]]:
    """The gains for a known mass, or the payload, as JSON text and as lines for the terminal."""
    from ..identification.payload import calibrate_gains, identify_payload
    from ..report.payloads import gains_json, gains_lines, payload_json, payload_lines, write_payload_report

    filters = filters_of(options, options.delay)
    setting = {"frame": options.frame, "own_friction": options.own_friction, "filters": filters}
    if options.mass is not None:
        setting |= {"com": options.com, "gains": options.gains}
        gains = calibrate_gains(arm, unloaded, loaded, options.mass, **setting)
        return gains_json(gains), gains_lines(gains, arm.chain)
    payload = identify_payload(arm, loaded, unloaded=unloaded, gains=known, **setting)
    if options.report:
        used = {name: getattr(options, name) for name in (*options.keys, "frame", "own_friction", "calibrated")}
        files = [("model", options.model), *(("log", path) for path in (*options.unloaded, *options.loaded))]
        write_payload_report(payload, arm.chain, options.report, provenance=provenance_of(options, files, used))
    return payload_json(payload), payload_lines(payload, arm.chain)
