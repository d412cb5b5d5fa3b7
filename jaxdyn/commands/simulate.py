"""`jaxdyn simulate`: simulate a robot that executes a planned trajectory, and write its log."""

import argparse
import dataclasses
from typing import Any

from . import arguments
from .arguments import WrongUsage, not_negative, positive
from .inputs import contact_of, files_of, load_contacts, read_model, use_float64
from .progress import Progress

EPILOG = """The robot follows the trajectory under computed-torque control at 1 kHz or faster, with the model's torques as
feed-forward. The command fails if the tracking error of a joint exceeds a tenth of its range of motion. All terms of the
model are simulated; for a model.eqx, these include friction with memory or load dependence, and springs. If shapes are
known, the first ones that touch are named; with --contacts, they push each other apart, and tracking errors are not limited.

exit codes: 0 success; 1 invalid input (the message states the problem and a remedy); 2 usage error; 130 interrupted

example: a trajectory from `jaxdyn excite`, executed with a payload of 2 kg, 5 cm along z from the tip
  jaxdyn simulate arm.urdf excitation.csv --payload 2,0,0,0.05 --out run.csv"""


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "simulate",
        run,
        EPILOG,
        help="execute a trajectory on a simulated robot, and write a log with friction and noise",
        description="Simulate a robot that tracks a trajectory, with friction and sensor noise, and write its log.",
    )
    option = command.add_argument
    option("model", metavar="MODEL", help="the robot, with inertials: URDF, MJCF or model.eqx")
    option(
        "motion", metavar="MOTION", help="trajectory with columns t, q1.., for example from `jaxdyn excite`, or a bag"
    )
    option(
        "--out", metavar="FILE", default="simulated.csv", help="log to write, with t, q and tau (default: %(default)s)"
    )
    option("--rate", type=positive, default=1000.0, metavar="HZ", help="sample rate of the log (default: 1000)")
    option("--quiet", action="store_true", help="hide the progress bar and the summary")
    option = command.add_argument_group("robot").add_argument
    about = "attach a point mass [kg] at X,Y,Z [m] in the frame of the tip or of --frame (default position: 0,0,0)"
    option("--payload", type=payload, metavar="KG[,X,Y,Z]", help=about)
    option("--frame", metavar="NAME", help="link or frame that carries the payload (default: the tip)")
    option(
        "--bandwidth",
        type=positive,
        default=120.0,
        metavar="W",
        help="bandwidth of the controller [rad/s] (default: 120)",
    )
    arguments.add_chain(option)
    arguments.add_gravity(option)
    option = command.add_argument_group("shapes").add_argument
    about = "simulate contacts, joint limits and dry friction of an MJCF file, or of the shapes, with MuJoCo's default material"
    option("--contacts", action="store_true", help=about)
    arguments.add_shapes(option)
    option = command.add_argument_group("sensors").add_argument
    about = "standard deviation of the encoder noise [rad or m] (default: 1e-5)"
    option("--position-noise", type=not_negative, default=1e-5, metavar="S", help=about)
    about = "standard deviation of the torque noise [N m or N] (default: 0.05)"
    option("--torque-noise", type=not_negative, default=0.05, metavar="S", help=about)
    option("--seed", type=int, default=0, help="seed for the random noise (default: 0)")
    option = command.add_argument_group("how the motion is read").add_argument
    option("--columns", metavar="MAP", help="column map (TOML) for other motion layouts")
    option("--topic", metavar="TOPIC", help="topic of the joint states or trajectories in a bag (default: detected)")


def run(options: argparse.Namespace) -> int:
    """Simulate the robot and write the log; return the exit code."""
    use_float64()
    from ..identification.simulated_logs import NoiseLevel
    from ..identification.validation import tracking_log, with_payload
    from ..io.files import check_output_file
    from ..io.logs import read_motion, write_log

    check_output_file(options.out)
    model = read_model(options, options.model, allow_nonphysical=False)
    chain = model.chain
    motion = read_motion(files_of(options.motion), chain, columns=options.columns, topic=options.topic)
    if options.frame is not None and options.payload is None:
        raise WrongUsage("--frame names the frame that carries the payload: it needs --payload")
    if options.payload is not None:
        mass, x, y, z = options.payload
        model = dataclasses.replace(model, chain=with_payload(chain, mass, (x, y, z), options.frame))
    contacts = load_contacts(options, options.model, model.chain) if options.contacts else None
    noise = NoiseLevel(options.position_noise, options.torque_noise)
    with Progress(options.quiet) as progress, progress.stage("simulating"):
        log, errors = tracking_log(model, motion, options.rate, noise, options.bandwidth, options.seed, contacts)
        write_log(options.out, log)
    _, contact = contact_of(options, options.model, chain, log.t, log.q)
    if not options.quiet:
        print(f"{options.out}: {len(log)} samples, {log.t[-1] - log.t[0]:.6g} s, {chain.nv} joints")
        if options.payload is not None:
            mass, *where = options.payload
            place = ", ".join(f"{x:g}" for x in where)
            print(f"payload: {mass:g} kg at {place} m in {options.frame or chain.topology.tip_name}")
        if contact:
            print(contact)
        print(f"largest tracking error of each joint [rad or m]: {', '.join(f'{x:.2g}' for x in errors)}")
    return arguments.OK


def payload(text: str) -> list[float]:
    values = arguments.numbers(text)
    if len(values) not in (1, 4) or values[0] <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} must have the form KG or KG,X,Y,Z, with a positive mass, as in --payload 2,0,0,0.05"
        )
    return values if len(values) == 4 else [*values, 0.0, 0.0, 0.0]
