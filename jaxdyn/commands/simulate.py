"""`jaxdyn simulate`: a planned motion carried out by a simulated robot, as a log."""

import argparse

from . import arguments
from .arguments import positive
from .inputs import files_of, use_float64, with_coulomb_velocity
from .progress import Progress

EPILOG = """The robot follows the motion under a proportional-derivative controller at 1 kHz, with the model's torques fed
forward; it has the model's inertias and its viscous, Coulomb and constant friction and rotor inertia.

exit codes: 0 done; 1 bad input (the message says what, where and what to do); 2 wrong usage; 130 interrupted

example: a trajectory from excite, carried out with a payload of 2 kg, 5 cm above the tip
  jaxdyn simulate arm.urdf excitation.csv --payload 2,0,0,0.05 --out run.csv"""


def add(commands) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "simulate",
        run,
        EPILOG,
        help="carry a trajectory out with a simulated robot, and write a log with friction and noise",
        description="Simulate a robot that follows a trajectory, with friction and the noise of its sensors, and write the log "
        "that it would leave.",
    )
    option = command.add_argument
    option("model", metavar="MODEL", help="the robot, with inertials: URDF, MJCF or a model.eqx")
    option("motion", metavar="MOTION", help="trajectory with columns t, q1.., as `jaxdyn excite` writes it, or a bag")
    option("--out", metavar="FILE", default="simulated.csv", help="log t, q, tau to write (default: %(default)s)")
    option("--rate", type=positive, default=1000.0, metavar="HZ", help="samples of the log a second (1000)")
    option("--quiet", action="store_true", help="no progress bar and no summary")
    option = command.add_argument_group("the robot").add_argument
    about = "a point mass in the model's tip, or at X,Y,Z in its frame [kg, m]"
    option("--payload", type=payload, metavar="KG[,X,Y,Z]", help=about)
    option("--bandwidth", type=positive, default=120.0, metavar="W", help="of its controller [rad/s] (120)")
    arguments.add_coulomb_velocity(option, "Coulomb friction [rad/s] (the model's)")
    arguments.add_chain(option)
    option = command.add_argument_group("its sensors").add_argument
    about = "standard deviation of the encoders' noise [rad or m] (1e-5)"
    option("--position-noise", type=deviation, default=1e-5, metavar="S", help=about)
    about = "standard deviation of the torques' noise [N m or N] (0.05)"
    option("--torque-noise", type=deviation, default=0.05, metavar="S", help=about)
    option("--seed", type=int, default=0, help="of the noise (0)")
    option = command.add_argument_group("how the motion is read").add_argument
    option("--columns", metavar="MAP", help="column map (TOML) for a motion in another form")
    option("--topic", metavar="TOPIC", help="topic with the joint states or trajectories, of a bag (default: found)")


def run(options: argparse.Namespace) -> int:
    """Simulate, write the log; returns the exit code."""
    use_float64()
    from ..identification._simulation.monte_carlo import NoiseLevel
    from ..identification._simulation.tracking import tracking_log, with_payload
    from ..io._files import check_output_file
    from ..io._load import load
    from ..io._logs.motion import read_motion
    from ..io._logs.write import write_log
    from ..io._model_file import load_model

    check_output_file(options.out)
    if options.model.endswith(".eqx"):
        chain = load_model(options.model)
    else:
        chain = load(options.model, lock=dict(options.lock) or None, tip=options.tip)
    motion = read_motion(files_of(options.motion), chain, columns=options.columns, topic=options.topic)
    chain = with_coulomb_velocity(chain, options.coulomb_velocity)
    if options.payload is not None:
        mass, *com = options.payload
        chain = with_payload(chain, mass, tuple(com or (0.0, 0.0, 0.0)))
    noise = NoiseLevel(options.position_noise, options.torque_noise)
    with Progress(options.quiet) as progress, progress.stage("simulating"):
        log = tracking_log(chain, motion, options.rate, noise, options.bandwidth, options.seed)
        write_log(options.out, log)
    if not options.quiet:
        print(f"{options.out}: {len(log)} samples, {log.t[-1] - log.t[0]:.6g} s of {chain.nv} joints")
    return arguments.OK


def payload(text: str) -> list[float]:
    values = arguments.numbers(text)
    if len(values) not in (1, 4) or values[0] <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a mass, or a mass and a place, as in --payload 2,0,0,0.05")
    return values


def deviation(text: str) -> float:
    value = arguments.finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value
