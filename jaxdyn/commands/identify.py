"""`jaxdyn identify`: identify a robot from a URDF and logs, and write a report, parameters and model files."""

import argparse
import pathlib
from typing import TYPE_CHECKING, Any, cast

from . import arguments, floating
from .arguments import WrongUsage, add_repeated
from .inputs import (
    check_logs,
    filters_of,
    knowledge_of,
    load_possible,
    provenance_of,
    read_logs,
    use_float64,
    with_coulomb_velocity,
)
from .progress import Progress

if TYPE_CHECKING:
    from ..identification import Finding, Identification
    from ..io import Log
    from ..model import Chain
    from ..report import Provenance

EPILOG = f"""{arguments.LOGS_EPILOG}
Without --model and --log, a built-in 7R arm is simulated, identified and compared with its true parameters.

exit codes: 0 success; 1 invalid input (the message states the problem and a remedy); 2 usage error; 130 interrupted

example: fit one run, validate on another, and write report.html, parameters.csv, identified.urdf and others to results/
  jaxdyn identify --model arm.urdf --log exciting.csv --validate pick.csv --out results"""

# options that the report does not list as settings, because they do not affect the result or are listed as files
_NOT_SETTINGS = ("run", "command", "arguments", "model", "log", "validate", "out", "quiet")


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
    group = lambda title: command.add_argument_group(title).add_argument
    _add_robot(group("robot and logs"))
    arguments.add_log_form(group("how logs are read"), "in the order of the logs, with validation logs last")
    _add_terms(group("what is identified"))
    _add_data(group("filters and hold-out"))
    _add_fit(group("prior knowledge and limits"))
    option = group("output")
    option("--out", metavar="DIR", default="identified", help="folder for the results (default: %(default)s)")
    option("--quiet", action="store_true", help="hide the progress bar and the summary")


def _add_robot(option) -> None:
    """Add the options for the robot and its logs."""
    option(
        "--model", metavar="URDF", help="the robot; its inertials are the prior, but a kinematics-only file suffices"
    )
    add_repeated(option, "--log", "LOG", help="log to fit: csv, npz, parquet, bag or mcap; may be repeated")
    add_repeated(option, "--validate", "LOG", help="log for validation, excluded from the fit; may be repeated")
    arguments.add_chain(option, "fix a joint at a value (for example a gripper finger)")
    arguments.add_gravity(option)
    arguments.add_ignore_inertials(option)
    arguments.add_nonphysical(option)
    about = (
        "identify a robot with a moving base from logs that also contain the pose or IMU data of the base, and contact "
        "wrenches (see docs/mechanisms_identification.md)"
    )
    option("--floating-base", action="store_true", help=about)
    about = (
        "with --floating-base: frame held in place by unmeasured forces (=point: only its origin is held in place); may be "
        "repeated"
    )
    add_repeated(option, "--held", "FRAME[=point]", type=arguments.held, help=about)


def _add_terms(option) -> None:
    """Add the options for terms other than the inertias."""
    arguments.add_terms(option, "drive terms to identify (default: %(default)s)")
    option(
        "--plain",
        action="store_true",
        help="identify only inertias and drive terms, without automatic selection of terms, so that the model is linear in its "
        "parameters",
    )
    option(
        "--choose",
        type=arguments.parts,
        metavar="PARTS",
        default="filter,friction,springs,delays",
        help="parts of the model that are selected by cross-validation over blocks of the logs (default: %(default)s)",
    )
    about = (
        "gas or hydropneumatic counterbalance, for example joint2:pivot=0.8,crank=0.2,angle=1.658 [m, rad]; optional fields: "
        "reserve, exponent"
    )
    add_repeated(option, "--counterbalance", "JOINT:..", type=arguments.counterbalance, help=about)
    about = "file (TOML) with further terms for single joints, such as counterbalances, cables, ripple and friction"
    add_repeated(option, "--further", "FILE", help=about)
    add_repeated(
        option,
        "--coupled",
        "A,B",
        type=arguments.axes,
        help="coupled drives, as in a wrist: the motor of joint B also turns when joint A moves; joints are counted from 1",
    )
    arguments.add_coulomb_velocity(option, "Coulomb friction [rad/s] (default: 0.02)")


def _add_data(option) -> None:
    """Add the options for filtering and dividing the logs."""
    arguments.add_filters(option)
    about = "fraction of the logs to hold out if there is no --validate (default: 0.3)"
    option("--holdout", type=arguments.share, default=0.3, metavar="SHARE", help=about)
    about = "exclude samples at which a joint is slower than this from the fit of that joint [rad/s] (default: 0)"
    option("--dead-zone", type=arguments.finite, default=0.0, metavar="V", help=about)
    option(
        "--delay",
        type=arguments.delays,
        metavar="D|D1,D2,..",
        help="delay of the logged torques relative to the positions [s], to remove from all logs (default: estimated)",
    )


def _add_fit(option) -> None:
    """Add the options for prior knowledge and for error limits."""
    about = "identify only these links, and keep the model's values for the others"
    option("--links", type=arguments.names, metavar="LINK,..", help=about)
    about = "identify only the drives of these joints, and keep the model's values for the others"
    option("--joints", type=arguments.names, metavar="JOINT,..", help=about)
    about = (
        "relative standard deviation of the parameters that --links and --joints exclude (default: 0, exactly known)"
    )
    option("--known", type=arguments.positive, metavar="S", help=about)
    about = "treat left and right limbs as mirror images in the xz plane of the base, within this relative standard deviation"
    option("--mirrored", type=arguments.positive, metavar="S", help=about)
    option("--mass", type=arguments.positive, metavar="KG", help="total mass of all moving links, if known")
    about = (
        "density bounds of the links [kg/m^3], for solid ellipsoids of the same mass and inertia; any: no bounds on "
        "density and size (default: 100,20000)"
    )
    option("--densities", type=arguments.densities, default=(100.0, 20_000.0), metavar="LEAST,MOST|any", help=about)
    about = "weight of the model's inertias relative to the logs (default: %(default)s)"
    option("--prior-weight", type=arguments.positive, default=1.0, metavar="W", help=about)
    about = "use unconstrained least squares; no URDF is written if links are physically inconsistent"
    option("--no-consistent", action="store_true", help=about)
    about = "acceptable error for the verdict: rms=, rre= or moving=, with one number or one per joint; may be repeated"
    add_repeated(option, "--limit", "rms=X,..", help=about)


def run(options: argparse.Namespace) -> int:
    """Identify the robot, write the results and print a summary; return the exit code."""
    _check(options)
    use_float64()
    from ..io.files import check_output_folder
    from ..report.results import FILES, print_summary, write_all
    from ..report.verdicts import parse_limit

    limits = [parse_limit(text) for text in options.limit]
    check_output_folder(options.out, FILES)
    of_floating = (floating.inputs, floating.identified)
    inputs, identified = cast("tuple[Any, Any]", of_floating if options.floating_base else (_inputs, _identified))
    with Progress(options.quiet) as progress:
        truth, chain, logs, validation = inputs(options)
        for limit in limits:
            limit.of_joints(chain.nv)
        provenance = _provenance(options)
        result, findings = identified(options, chain, logs, validation, progress)
        with progress.stage("writing results"):
            paths = write_all(
                result,
                pathlib.Path(options.out),
                source_urdf=options.model,
                load_options={
                    "lock": dict(options.lock) or None,
                    "tip": options.tip,
                    "floating_base": floating.is_put_on_free_joint(options),
                },
                limits=limits,
                provenance=provenance.with_settings(_chosen(result)),
                findings=findings,
            )
    if not options.quiet:
        print_summary(result, paths, truth, findings=findings)
    return arguments.OK


def _check(options: argparse.Namespace) -> None:
    """Raise an error if options conflict."""
    floating.check(options)
    if bool(options.model) != bool(options.log):
        missing = "--log" if options.model else "--model"
        raise WrongUsage(f"{missing} is missing; pass both --model and --log, or neither to run the built-in example")
    of_logs = (options.validate, options.rows, options.columns, options.topic, options.gains, options.lock, options.tip)
    if not options.model and any((*of_logs, options.gravity)):
        raise WrongUsage(
            "--validate, --rows, --columns, --topic, --gains, --lock, --tip and --gravity need a --model and a --log"
        )
    check_logs(options, len(options.log) + len(options.validate))
    if options.known is not None and options.links is None and options.joints is None:
        raise WrongUsage(
            "--known applies to the links and drives that --links and --joints exclude: pass --links, --joints or both"
        )
    if options.no_consistent and options.mass is not None:
        raise WrongUsage("--mass applies only to a consistent estimate: omit --no-consistent or --mass")


def _inputs(options: argparse.Namespace) -> tuple["Chain | None", "Chain", list["Log"], list["Log"]]:
    """Return the true robot (None if unknown), the robot, the logs for the fit and the logs for validation.

    Without --model, these are the robots and logs of the built-in example.
    """
    from ..identification.base import with_stand_ins, with_thickness
    from ..identification.factors import check_identifiable
    from ..identification.simulated_logs import example

    if not options.model:
        truth, chain, logs, validation = example()
        return truth, with_coulomb_velocity(chain, options.coulomb_velocity), logs, validation
    chain = load_possible(
        options.model,
        allow_nonphysical=options.allow_nonphysical,
        lock=dict(options.lock),
        tip=options.tip,
        gravity=options.gravity,
        ignore_inertials=options.ignore_inertials,
    )
    check_identifiable(chain)
    if not options.no_consistent:
        with_thickness(with_stand_ins(chain)[0])  # raises an error early if the prior is physically inconsistent
    chain = with_coulomb_velocity(chain, options.coulomb_velocity)
    read = list(read_logs(options, [*options.log, *options.validate], chain, options.model))
    return None, chain, read[: len(options.log)], read[len(options.log) :]


def _identified(
    options: argparse.Namespace, chain: "Chain", logs: list["Log"], validation: list["Log"], progress: Progress
) -> tuple["Identification", tuple["Finding", ...]]:
    """Identify the robot, and look for faults in the logs and the model."""
    from ..identification.columns import coupled_drive
    from ..identification.consistency import Consistency
    from ..identification.diagnostics import diagnose_identification
    from ..identification.pipeline import identify
    from ..identification.selection_search import Terms, read_terms, term_of

    further = [term_of(f"--counterbalance {joint}", said, chain.joint_names) for joint, said in options.counterbalance]
    further += [term for path in options.further for term in read_terms(path, chain.joint_names)]
    coupled = tuple(coupled_drive(a, b) for a, b in options.coupled)
    result = identify(
        chain,
        logs,
        validation or options.holdout,
        terms=Terms(
            options.terms,
            tuple(further),
            extra=coupled or None,
            choose=() if options.plain else options.choose,
            dead_zone=options.dead_zone,
        ),
        filters=filters_of(options, options.delay),
        consistent=None
        if options.no_consistent
        else Consistency(options.mass, densities=options.densities, prior_weight=options.prior_weight),
        knowledge=knowledge_of(options, chain),
        progress=progress,
    )
    with progress.stage("looking for faults"):
        findings = diagnose_identification(result)
    return result, findings


def _provenance(options: argparse.Namespace) -> "Provenance":
    """The provenance, collected between reading and fitting, so that a file that cannot be hashed does not cost a fit."""
    files = [("model", options.model)] if options.model else []
    files += [("log", path) for path in options.log] + [("validation", path) for path in options.validate]
    settings = {k.replace("_", " "): v for k, v in vars(options).items() if k not in _NOT_SETTINGS}
    return provenance_of(options, files, settings)


def _chosen(result: "Identification") -> dict[str, object]:
    """The settings that were chosen from the data."""
    return {
        "terms chosen": None if result.choice is None else result.choice.sentence,
        "delays removed [ms]": None if result.delay is None else [f"{1e3 * d:.3g}" for d in result.delay],
    }
