"""`jaxdyn view`: show a robot and its motion in the browser."""

import argparse
from typing import Any

from . import arguments
from .arguments import WrongUsage, positive
from .inputs import contact_of, files_of

EPILOG = (
    """Requires pip install "jaxdyn[view]". Stop with Ctrl-C. exit codes: 0 success; 1 invalid input; 2 usage error"""
)


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    option = arguments.add_command(
        commands,
        "view",
        run,
        EPILOG,
        help="show a robot and its motion in the browser",
        description="Show a robot on a web page, with a slider for each joint. The robot is drawn with its meshes and "
        "shapes, or as inertia ellipsoids if it has none. A motion, if given, is played back, with a line between the nearest "
        "shapes; its torques, if any, are plotted with their limits.",
    ).add_argument
    option("model", metavar="MODEL", help="the robot: URDF, MJCF or model.eqx")
    about = (
        "motion to play: a bag, a table with columns t, q1.. (or joint names) and optionally tau1.., or PART1+PART2, "
        "joined by time stamp"
    )
    option("motion", metavar="MOTION", nargs="?", help=about)
    option(
        "--ghost", metavar="MOTION", help="a second motion, for example a simulated one, shown as a transparent robot"
    )
    option("--columns", metavar="MAP", help="column map (TOML) for other motion layouts")
    option("--topic", metavar="TOPIC", help="topic of the joint states or trajectories in a bag (default: detected)")
    option("--collision", action="store_true", help="show collision shapes instead of visual shapes")
    arguments.add_shapes(option)
    arguments.add_chain(option)
    option("--floating-base", action="store_true", help="connect the root link to the world by a free joint")
    option(
        "--port", type=int, default=8080, help="port of the page (default: 8080); if it is in use, the next free port"
    )
    about = "address of the server (default: 127.0.0.1); with 0.0.0.0, other machines can open the page"
    option("--host", default="127.0.0.1", help=about)
    option("--seconds", type=positive, metavar="S", help="stop after this time [s]")
    option("--film", metavar="FILE", help="write the motion to a .gif or .mp4 file instead of opening a page")
    option("--quiet", action="store_true", help="print only the address")


def run(options: argparse.Namespace) -> int:
    """Show the robot until interrupted; return the exit code."""
    import sys

    from ..io.logs import read_motion
    from ..view.film import animate
    from ..view.scene import build_scene
    from ..view.server import open_viewer

    if not 0 < options.port < 65536:
        raise WrongUsage(f"--port is {options.port}; it must be between 1 and 65535")
    if not options.motion and (options.columns or options.topic):
        raise WrongUsage("--columns and --topic need a motion, but none is given")
    for name in ("film", "ghost"):
        if getattr(options, name) and not options.motion:
            raise WrongUsage(f"--{name} needs a motion")
    if options.film and options.ghost:
        raise WrongUsage("--film shows only one motion; omit --ghost")
    if options.model.endswith(".eqx"):
        given = ("collision", "package", "lock", "tip", "floating_base")
        if meant := [name for name in given if getattr(options, name)]:
            raise WrongUsage(
                f"--{meant[0].replace('_', '-')} applies only to URDF files; {options.model} contains only links and joints"
            )
    chain, shapes, notes = read_robot(options)
    motion, ghost = (
        read_motion(files_of(name), chain, columns=options.columns, topic=options.topic) if name else None
        for name in (options.motion, options.ghost)
    )
    convex, contact = None, ""
    if motion is not None:
        convex, contact = contact_of(options, options.model, chain, motion.t, motion.q)
    if options.film and motion is not None:
        drawn = [shape for shape in shapes if shape.kind != "mesh"] if convex is None else []
        count = animate(build_scene(chain, drawn, (), convex), motion.t, motion.q, options.film)
        if not options.quiet:
            print(f"{options.film}: {count} pictures", *filter(None, [contact]), sep="\n")
        return arguments.OK
    scene = build_scene(chain, shapes, [*notes, *filter(None, [contact])], convex)
    viewer = open_viewer(scene, motion, ghost=ghost, host=options.host, port=options.port)
    try:
        print(viewer.url, flush=True)
        if not options.quiet:
            for note in scene.notes:
                print(f"note: {note}", file=sys.stderr)
        viewer.wait(options.seconds)
    except KeyboardInterrupt:
        pass
    finally:
        viewer.stop()
    return arguments.OK


def read_robot(options: argparse.Namespace) -> tuple[Any, ...]:
    """The chain, its shapes, and notes on parts of the model that are not shown."""
    import warnings

    from ..io.files import read_bytes
    from ..io.loading import MJCF, format_of, load, read_geometry
    from ..io.mjcf import FEATURES
    from ..io.model_file import read_model

    path = options.model
    if path.endswith(".eqx"):
        return read_model(path, "float32")[0], (), ()
    of_urdf = {"lock": dict(options.lock) or None, "tip": options.tip, "floating_base": options.floating_base}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*: omitted: ", UserWarning)  # about forces, which are not shown
        ignore = FEATURES if format_of(read_bytes(path)) is MJCF else ()
        chain = load(path, **of_urdf, ignore=ignore, allow_nonphysical=True)
    packages = dict(options.package) or None
    shapes, notes = read_geometry(path, collision=options.collision, packages=packages)
    return chain, *((shapes, notes) if shapes or notes else read_geometry(path, collision=True, packages=packages))
