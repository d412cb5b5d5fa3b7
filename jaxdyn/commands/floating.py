"""`jaxdyn identify --floating-base`: identify a robot with a moving base from joint data, base motion and contact wrenches."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .arguments import WrongUsage
from .inputs import filters_of, knowledge_of, load_possible
from .progress import Progress

if TYPE_CHECKING:
    from ..identification import Identification, MechanismLog
    from ..model import Chain

# options that apply only to arms with a fixed base, and their default values
_OF_ARMS = {"columns": [], "topic": None, "gains": None, "on_bad_rows": "raise", "units_checked": False, "tip": None}
_OF_ARMS |= {"plain": False, "counterbalance": [], "further": [], "coupled": [], "dead_zone": 0.0, "delay": None}
_OF_ARMS |= {"limit": [], "choose": ("filter", "friction", "springs", "delays")}
_OF_ARMS |= {"terms": ("armature", "viscous", "coulomb", "offset"), "coulomb_velocity": None}


def check(options: argparse.Namespace) -> None:
    """Raise an error if options conflict."""
    if not options.floating_base:
        if options.held:
            raise WrongUsage("--held needs --floating-base")
        return
    if not options.model:
        raise WrongUsage("--floating-base needs a --model and a --log")
    for name, unset in _OF_ARMS.items():
        given = getattr(options, name)
        if (tuple(given) if isinstance(given, list) else given) != (tuple(unset) if isinstance(unset, list) else unset):
            raise WrongUsage(f"--{name.replace('_', '-')} cannot be used with --floating-base")


def is_put_on_free_joint(options: argparse.Namespace) -> bool:
    """True if the model file has no free joint, so that `load` must add one at the root."""
    from ..io.files import read_bytes
    from ..io.loading import URDF, format_of
    from ..io.urdf import parse_robot

    if not options.floating_base or format_of(text := read_bytes(options.model)) is not URDF:
        return False
    robot = parse_robot(text, options.model, inertials=False)
    return all(joint.kind != "floating" for joint in robot.joints.values())


def inputs(options: argparse.Namespace) -> tuple[None, "Chain", list["MechanismLog"], list["MechanismLog"]]:
    """No true robot, the robot with a free joint at its root, the logs for the fit, and the logs for validation."""
    from ..identification import read_mechanism_log

    chain = load_possible(
        options.model,
        allow_nonphysical=options.allow_nonphysical,
        lock=dict(options.lock),
        floating_base=is_put_on_free_joint(options),
        gravity=options.gravity,
        ignore_inertials=options.ignore_inertials,
    )
    ranges = dict(enumerate(options.rows))
    paths = [*options.log, *options.validate]
    read = [read_mechanism_log(path, chain, dict(options.held), rows=ranges.get(k)) for k, path in enumerate(paths)]
    return None, chain, read[: len(options.log)], read[len(options.log) :]


def identified(
    options: argparse.Namespace,
    chain: "Chain",
    logs: Sequence["MechanismLog"],
    validation: Sequence["MechanismLog"],
    progress: Progress,
) -> tuple["Identification", tuple[()]]:
    """Identify the robot; faults are not looked for."""
    from ..identification import Consistency, identify_mechanism

    given = Consistency(options.mass, densities=options.densities, prior_weight=options.prior_weight)
    result = identify_mechanism(
        chain,
        list(logs),
        list(validation) or options.holdout,
        filters=filters_of(options),
        consistent=None if options.no_consistent else given,
        knowledge=knowledge_of(options, chain),
        progress=progress,
    )
    return result, ()
