"""`jaxdyn payload`: an added body from runs without and with it; drive gains where its mass is known."""

import argparse

from .arguments import OK, add_checks, add_filters, misused, numbers, pair, positive, rows
from .progress import Progress

EPILOG = """with --unloaded and --loaded runs, the payload is what the loaded ones have more; with --loaded alone, what they
have more than the model's inertials. --mass calibrates the gains of the drives with a payload of known mass and
writes them; --calibrated uses them for the next one."""


def add(commands) -> None:
    """Add the subcommand's parser."""
    command = commands.add_parser(
        "payload",
        help="identify a payload from runs without and with it, or drive gains from a known one",
        description="Identify the mass, centre of mass and inertia of a payload, or the drives' gains from a known mass.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    option = command.add_argument
    many = {"metavar": "FILE", "action": "append", "default": []}
    option("--model", metavar="URDF", required=True, help="the arm; a kinematics-only file will do with --unloaded")
    option("--unloaded", **many, help="log without the payload; may be repeated")
    option("--loaded", **many, help="log with it; may be repeated")
    option(
        "--rows",
        type=rows,
        metavar="FIRST:LAST",
        action="append",
        default=[],
        help="rows of a log to read, in the order of the logs, unloaded ones first (: for all)",
    )
    option(
        "--gains", type=numbers, metavar="K1,K2,..", help="torque = gain * current, for logs with columns i1.. [N m/A]"
    )
    option("--frame", metavar="NAME", help="link or frame that carries the payload (default: the tip)")
    option("--mass", type=positive, metavar="KG", help="its mass is known: calibrate the gains")
    option("--com", type=numbers, metavar="X,Y,Z", help="with --mass: its centre of mass is known, in the frame [m]")
    option("--calibrated", metavar="FILE", help="gains that --mass has written")
    option("--delay", type=numbers, metavar="D1,D2,..", help="delays of the torques to take out first [s]")
    option(
        "--own-friction",
        metavar="TERMS",
        default="",
        help="of viscous,coulomb,load,offset: those that each run has its own of, as after a change of temperature",
    )
    option("--lock", type=pair, metavar="JOINT=VALUE", action="append", default=[], help="hold a joint at a value")
    option("--tip", metavar="LINK", help="take the serial chain from the base to this link")
    add_filters(option)
    add_checks(option)
    option("--out", metavar="FILE", help="write the payload, or with --mass the gains, to this JSON file")
    option("--quiet", action="store_true", help="no progress bar and no summary")


def run(options: argparse.Namespace) -> int:
    """Identify the payload or calibrate the gains, write the file, print a summary; returns the exit code."""
    if not options.loaded:
        return misused("--loaded is missing; give at least one log with the payload on")
    if options.mass is not None and not options.unloaded:
        return misused("--mass calibrates gains, which takes an --unloaded log, too")
    if options.com is not None and options.mass is None:
        return misused("--com goes with --mass")
    if options.mass is not None and options.calibrated:
        return misused("--mass finds gains and --calibrated uses them; give one of the two")
    count = len(options.unloaded) + len(options.loaded)
    if len(options.rows) > count:
        return misused(f"--rows is given {len(options.rows)} times for {count} logs")

    import jax

    # this process is ours; the library itself never touches the configuration
    jax.config.update("jax_enable_x64", True)

    from ..errors import OutputError
    from ..identification._delay import without_delay
    from ..identification._payload.gains import calibrate_gains
    from ..identification._payload.payload import identify_payload, identify_payload_on
    from ..io._files import check_output_file, write_whole
    from ..io._load import load
    from ..io._logs.log import check_log, read_log
    from ..report import _payload_files as files

    if options.out:
        check_output_file(options.out)
    known_gains = files.read_gains(options.calibrated) if options.calibrated else None
    chain = load(options.model, lock=dict(options.lock), tip=options.tip)
    ranges = dict(enumerate(options.rows))
    own = tuple(x.strip() for x in options.own_friction.split(",") if x.strip())

    def read(position: int, path: str):
        log = read_log(path, chain.n, gains=options.gains, rows=ranges.get(position), on_bad_rows=options.on_bad_rows)
        log = check_log(log, chain, units_checked=options.units_checked, allow_still=True)
        return without_delay(log, options.delay) if options.delay else log

    with Progress(options.quiet) as progress:
        logs = []
        for position, path in enumerate([*options.unloaded, *options.loaded]):
            progress("reading logs", position, count)
            logs.append(read(position, path))
        progress("reading logs", count, count)
        unloaded, loaded = logs[: len(options.unloaded)], logs[len(options.unloaded) :]
        setting = {
            "frame": options.frame,
            "own_friction": own,
            "position_cutoff": options.cutoff,
            "torque_cutoff": options.torque_cutoff or options.cutoff,
            "stride": options.stride,
        }
        progress("fitting", 0, 1)
        if options.mass is not None:
            found = calibrate_gains(
                chain, unloaded, loaded, options.mass, com=options.com, gains=options.gains, **setting
            )
            text, lines = files.gains_json(found), files.gains_lines(found, chain.joint_names)
        else:
            fit = (
                (lambda: identify_payload(chain, unloaded, loaded, gains=known_gains, **setting))
                if unloaded
                else (lambda: identify_payload_on(chain, loaded, gains=known_gains, **setting))
            )
            found = fit()
            text, lines = files.payload_json(found), files.payload_lines(found)
        progress("fitting", 1, 1)
        if options.out:
            write_whole(options.out, text, OutputError)
    if not options.quiet:
        print("\n".join([*lines, *(f"note: {note}" for note in found.notes)]))
        if options.out:
            print(f"written: {options.out}")
    return OK
