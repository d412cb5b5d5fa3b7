"""`jaxdyn check`: check a motion before the robot executes it."""

import argparse
from typing import Any

from . import arguments
from .arguments import not_negative, numbers
from .inputs import files_of, load_shapes, read_model, use_float64

EPILOG = """Run it before the robot moves. The motion must stay within the limits of positions, velocities and torques (inverse
dynamics plus friction), start and end at rest, and have columns of velocities and accelerations, if any, that are the
derivatives of the positions. Shapes must not touch each other, nor the floor and obstacles, also between the samples.

exit codes: 0 the motion is within all limits; 1 it is not, or invalid input; 2 usage error; 130 interrupted

example: at least 2 cm from everything in the cell
  jaxdyn check arm.urdf motion.csv --environment cell.urdf --clearance 0.02"""


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "check",
        run,
        EPILOG,
        help="check a motion before the robot executes it: limits, torques, distances",
        description="Check whether a robot may execute a motion. Each violation is one line; a table shows how much of each "
        "limit the joints use, and the nearest shapes.",
    )
    option = command.add_argument
    option("model", metavar="MODEL", help="the robot: URDF, MJCF or model.eqx, which has no shapes")
    option("motion", metavar="MOTION", help="motion with columns t, q1.. and optionally qd1.. and qdd1.., or a bag")
    about = "limits of |qdd| [rad/s^2], one for all joints or one for each (default: not checked)"
    option("--acceleration", type=numbers, metavar="X1,X2,..", help=about)
    option("--quiet", action="store_true", help="print only the violations")
    option = command.add_argument_group("shapes").add_argument
    option(
        "--clearance", type=not_negative, default=0.0, metavar="M", help="smallest permitted distance [m] (default: 0)"
    )
    arguments.add_shapes(option)
    option = command.add_argument_group("robot").add_argument
    arguments.add_chain(option)
    arguments.add_gravity(option)
    option("--floating-base", action="store_true", help="connect the root link to the world by a free joint")
    option = command.add_argument_group("how the motion is read").add_argument
    option("--columns", metavar="MAP", help="column map (TOML) for other motion layouts")
    option("--topic", metavar="TOPIC", help="topic of the joint states or trajectories in a bag (default: detected)")


def run(options: argparse.Namespace) -> int:
    """Check the motion and print violations and a table; return the exit code."""
    use_float64()
    from ..io.logs import read_motion
    from ..trajectory.check import check_motion

    chain = read_model(options, options.model, allow_nonphysical=False).chain
    motion = read_motion(files_of(options.motion), chain, columns=options.columns, topic=options.topic)
    shapes = load_shapes(options, options.model, chain)
    limits = options.acceleration
    limits = limits[0] if limits is not None and len(limits) == 1 else limits
    found = check_motion(chain, motion, shapes, clearance=options.clearance, acceleration=limits)
    for line in found.violations:
        print(line)
    if not options.quiet:
        for note in found.notes:
            print(f"note: {note}")
        extent = f"{len(motion)} samples, {motion.t[-1] - motion.t[0]:.6g} s"
        print(f"{found.table()}\n\n{options.motion}: {extent}: {found.verdict}")
    return arguments.OK if found.passed else arguments.BAD_INPUT
