"""`jaxdyn identify`: identify a robot from a URDF and logs, and write a report, parameters and model files."""

import argparse
import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from . import arguments
from .arguments import WrongUsage, add_repeated
from .inputs import check_logs, filters_of, load_possible, provenance_of, read_logs, use_float64, with_coulomb_velocity
from .progress import Progress
from .settings import (
    KEYS,
    NAME,
    NOT_FLOATING,
    OF_COMMANDS,
    add_settings,
    check_applicable,
    check_settings,
    settings_of,
    write_settings,
)

if TYPE_CHECKING:
    from ..identification import Identification, Knowledge
    from ..identification.diagnostics import Finding
    from ..model import Chain
    from ..report import Provenance

EPILOG = f"""{arguments.LOGS_EPILOG}
Without --model and --log, a built-in 7R arm is simulated, identified and compared with its true parameters.

A settings file (TOML) may contain the options from --model to --limit, and further keys, listed below. Options on the command
line take precedence. The results contain a file {NAME} with all settings that were used, which repeats the run.
[keys]

exit codes: 0 success; 1 invalid input (the message states the problem and a remedy); 2 usage error; 130 interrupted

example: fit one run, validate on another, and write report.html, parameters.csv, identified.urdf and others to results/
  jaxdyn identify --model arm.urdf --log exciting.csv --validate pick.csv --out results"""


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "identify",
        run,
        EPILOG,
        help="identify a robot's inertial parameters and friction from logged motion",
        description="Identify a robot's inertial parameters, friction and armature from logged motion.",
    )
    option = command.add_argument_group("robot and logs").add_argument
    about = "the robot; its inertials are the prior, but a kinematics-only file suffices"
    option("--model", metavar="URDF", help=about)
    add_repeated(option, "--log", "LOG", help="log to fit: csv, npz, parquet, bag or mcap; may be repeated")
    add_repeated(option, "--validate", "LOG", help="log for validation, excluded from the fit; may be repeated")
    arguments.add_chain(option, "fix a joint at a value (for example a gripper finger)")
    arguments.add_gravity(option)
    option = command.add_argument_group("how logs are read").add_argument
    arguments.add_layout(option, "in the order of the logs, with validation logs last")
    option = command.add_argument_group("what is known").add_argument
    option("--mass", type=arguments.positive, metavar="KG", help="total mass of all moving links")
    about = "delay of the logged torques relative to the positions [s], to remove from all logs (default: estimated)"
    option("--delay", type=arguments.delays, metavar="D|D1,D2,..", help=about)
    about = "acceptable error for the verdict: rms=, rre= or moving=, with one number or one per joint; may be repeated"
    add_repeated(option, "--limit", "rms=X,..", help=about)
    add_settings(command, option, KEYS)
    option = command.add_argument_group("output").add_argument
    option("--out", metavar="DIR", default="identified", help="folder for the results (default: %(default)s)")
    option("--quiet", action="store_true", help="hide the progress bar and the summary")


class Inputs(NamedTuple):
    """The true robot (None if unknown), the robot, the logs to fit, those for validation, and their kind."""

    truth: "Chain | None"
    chain: "Chain"
    logs: list[Any]  # `Log`, or `MechanismLog` if the base moves
    validation: list[Any]
    floating: bool
    on_free_joint: bool  # which is not in the model's file
    commands: bool  # without torques


def run(options: argparse.Namespace) -> int:
    """Identify the robot, write the results and print a summary; return the exit code."""
    settings = settings_of(options)
    check_settings(settings)
    check_logs(settings, len(settings.log) + len(settings.validate))
    use_float64()
    from ..identification.from_commands import identify_from_commands
    from ..io.files import check_output_folder
    from ..report import parse_limit, print_summary, write_all
    from ..report.results import FILES
    from ..report.servos import write_servos

    limits = [parse_limit(text) for text in settings.limit]
    check_output_folder(options.out, FILES)
    with Progress(options.quiet) as progress:
        given = _read(settings)
        for limit in limits:
            limit.of_joints(given.chain.nv)
        provenance = _provenance(options, settings)
        written = {
            "source_urdf": settings.model,
            "load_options": {"lock": settings.lock or None, "tip": settings.tip, "floating_base": given.on_free_joint},
            "settings": write_settings(settings, given.floating),
        }
        if given.commands:
            with progress.stage("fitting the servos"):
                servos = identify_from_commands(given.chain, given.logs, given.validation or settings.holdout)
            with progress.stage("writing results"):
                logs = given.validation or given.logs
                paths = write_servos(servos, logs, options.out, **written, provenance=provenance)
        else:
            result, findings = _identified(settings, given, progress)
            with progress.stage("writing results"):
                chosen = provenance.with_settings(_chosen(result))
                paths = write_all(result, options.out, **written, limits=limits, provenance=chosen, findings=findings)
    if not options.quiet and given.commands:
        print(f"{servos}\nWritten to {os.path.abspath(options.out)}: {', '.join(paths)}")
    elif not options.quiet:
        print_summary(result, paths, given.truth, findings=findings)
    return arguments.OK


def _read(settings: argparse.Namespace) -> Inputs:
    """Read the robot and its logs, or without a model, make those of the built-in example."""
    from ..identification.factors import check_identifiable
    from ..identification.mechanisms import has_base_motion, read_mechanism_log
    from ..identification.simulated_logs import example
    from ..io import Log
    from ..model.chain import layout
    from ..model.joints import Free

    if not settings.model:
        truth, chain, logs, validation = example()
        return Inputs(
            truth, with_coulomb_velocity(chain, settings.coulomb_velocity), logs, validation, False, False, False
        )
    names = ("lock", "tip", "gravity", "ignore_inertials")
    load_it = lambda **more: load_possible(settings.model, **{name: getattr(settings, name) for name in names}, **more)
    is_floating = lambda chain: any(isinstance(joint, Free) for joint in layout(chain).curved)
    chain, put = load_it(), False
    if not is_floating(chain) and settings.floating_base is not False:
        put = bool(settings.floating_base) or (not settings.columns and has_base_motion(settings.log[0]))
    if put:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about faults that were reported when the robot was loaded
            chain = load_it(floating_base=True)
    floating = is_floating(chain)
    paths = [*settings.log, *settings.validate]
    if settings.held and not floating:
        raise WrongUsage("held needs a floating base, which neither the model nor the columns of the first log show")
    if floating:
        check_applicable(settings, NOT_FLOATING, "a robot with a floating base")
        ranges = dict(enumerate(map(arguments.rows, settings.rows)))
        read = [read_mechanism_log(path, chain, settings.held, rows=ranges.get(k)) for k, path in enumerate(paths)]
    else:
        check_identifiable(chain)
        chain = with_coulomb_velocity(chain, settings.coulomb_velocity)
        read = list(read_logs(settings, paths, chain, settings.model))
    logs, validation = read[: len(settings.log)], read[len(settings.log) :]
    commands = all(isinstance(log, Log) and log.command is not None and not log.has_torques for log in logs)
    if commands:
        check_applicable(settings, KEYS.keys() - OF_COMMANDS, "logs of commands without torques")
    return Inputs(None, chain, logs, validation, floating, put, commands)


def _identified(
    settings: argparse.Namespace, given: Inputs, progress: Progress
) -> tuple["Identification", tuple["Finding", ...]]:
    """Identify the robot, and look for faults in the logs and the model."""
    from ..identification import Consistency, identify_mechanism
    from ..identification.columns import coupled_drive
    from ..identification.diagnostics import diagnose_identification
    from ..identification.pipeline import identify
    from ..identification.terms import Terms, term_of

    densities = tuple(settings.densities) or None
    consistent = Consistency(settings.mass, densities=densities, prior_weight=settings.prior_weight)
    common = {
        "consistent": consistent if settings.consistent else None,
        "filters": filters_of(settings, settings.delay),
        "knowledge": _knowledge(settings, given.chain),
        "progress": progress,
    }
    validate = given.validation or settings.holdout
    if given.floating:
        return identify_mechanism(given.chain, given.logs, validate, **common), ()
    joints = given.chain.joint_names
    terms = Terms(
        tuple(settings.terms),
        tuple(term_of(f"{settings.settings}: term {k + 1}", term, joints) for k, term in enumerate(settings.term)),
        extra=tuple(coupled_drive(a, b) for a, b in settings.coupled) or None,
        choose=tuple(settings.choose),
        dead_zone=settings.dead_zone,
    )
    result = identify(given.chain, given.logs, validate, terms=terms, **common)
    with progress.stage("looking for faults"):
        return result, diagnose_identification(result)


def _knowledge(settings: argparse.Namespace, chain: "Chain") -> "Knowledge | None":
    """Prior knowledge of links, joints and mirrored limbs; None if there is none."""
    from ..identification import Knowledge, mirrored_links

    if settings.links is None and settings.joints is None and settings.mirrored is None:
        return None
    pairs = () if settings.mirrored is None else mirrored_links(chain)
    if settings.mirrored is not None and not pairs:
        raise WrongUsage("mirrored: no two links of this robot are mirror images in the xz plane of its base")
    names = lambda some: None if some is None else tuple(some)
    return Knowledge(names(settings.links), names(settings.joints), settings.known, pairs, settings.mirrored or 0.05)


def _provenance(options: argparse.Namespace, settings: argparse.Namespace) -> "Provenance":
    """The provenance, collected before the fit, so that a file that cannot be hashed does not cost a fit."""
    files = {
        "model": [settings.model],
        "settings": [options.settings],
        "log": settings.log,
        "validation": settings.validate,
    }
    shown = {
        name.replace("_", " "): getattr(settings, name) for name in KEYS if name not in ("model", "log", "validate")
    }
    return provenance_of(options, [(role, path) for role, some in files.items() for path in some if path], shown)


def _chosen(result: "Identification") -> dict[str, object]:
    """The settings that were chosen from the data."""
    return {
        "terms chosen": None if result.choice is None else result.choice.sentence,
        "delays removed [ms]": None if result.delay is None else [f"{1e3 * d:.3g}" for d in result.delay],
    }
