"""Functions for reading robots and logs, shared by the commands."""

import argparse
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arguments import WrongUsage, rows

if TYPE_CHECKING:
    from ..contact import Contacts
    from ..geometry import Shapes
    from ..identification import Filters, TorqueModel
    from ..io import Log
    from ..model import Chain
    from ..report import Provenance


def use_float64() -> None:
    """Enable float64 in the command's process; the library itself never changes the configuration."""
    import jax

    jax.config.update("jax_enable_x64", True)


def load_possible(path: str, **given: Any) -> "Chain":
    """Load a robot, and replace physically inconsistent inertias by the nearest consistent ones, with a warning."""
    from ..errors import JaxdynError, ModelError, warn
    from ..identification.base import with_possible_links
    from ..io.loading import load

    try:
        return load(path, **given)
    except ModelError:
        try:
            chain, names = with_possible_links(load(path, allow_nonphysical=True, **given))
        except JaxdynError:
            names = ()
        if not names:
            raise
    warn(
        f"{path}: inertials of {', '.join(names)} are physically inconsistent and were replaced by the nearest consistent ones"
    )
    return chain


def read_model(
    options: argparse.Namespace, path: str, allow_nonphysical: bool = True, beside: str | None = None
) -> "TorqueModel":
    """Read a model from a URDF, MJCF or model.eqx file, with `add_chain` and `add_gravity`.

    Friction is taken from the file, and so is gravity if the file contains it and --gravity is not given. A model that need
    not be physical is read as it is; otherwise, inconsistent inertias are replaced. Unknown joints in --lock are errors,
    unless they are joints of another URDF, `beside`; then --lock and --tip do not apply to files of other formats, either.
    """
    from ..identification import TorqueModel, load_torque_model
    from ..io.files import read_bytes
    from ..io.loading import URDF, format_of, load

    def text_of_urdf(file: str) -> bytes:
        text = b"" if file.endswith(".eqx") else read_bytes(file)
        return text if format_of(text) is URDF else b""

    lock, tip = dict(options.lock), options.tip
    if beside is not None:
        own, other = text_of_urdf(path), text_of_urdf(beside)
        names = lambda text, joint: any(f"{quote}{joint}{quote}".encode() in text for quote in "\"'")
        lock = {joint: x for joint, x in lock.items() if names(own, joint) or not names(other, joint)}
        tip = tip if own else None
    if path.endswith(".eqx"):
        if lock or tip:
            given = f"--lock {', '.join(lock)}" if lock else "--tip"
            raise WrongUsage(
                f"{given}: --lock and --tip apply only to URDF; the joints and the tip of {path} are fixed"
            )
        model = load_torque_model(path)
        return dataclasses.replace(model, chain=with_gravity(model.chain, options.gravity))
    given = {"gravity": options.gravity, "ignore_inertials": getattr(options, "ignore_inertials", False)}
    given |= {"lock": lock or None, "tip": tip, "floating_base": getattr(options, "floating_base", False)}
    return TorqueModel(
        load(path, allow_nonphysical=True, **given) if allow_nonphysical else load_possible(path, **given)
    )


def load_shapes(
    options: argparse.Namespace, path: str, chain: "Chain", required: bool = True, **choice: Any
) -> "Shapes | None":
    """Read the shapes of a robot and its surroundings, with `add_shapes`; None if its file has none.

    If they are required, that is a warning, and shapes that cannot be read are an error; otherwise, a warning. Further
    arguments choose the pairs (`geometry.read`).
    """
    from .. import geometry
    from ..errors import ModelError, warn
    from ..io.loading import read_geometry
    from ..model.joints import Free

    if options.shapes == "none":
        if options.environment or options.srdf:
            raise WrongUsage("--environment and --srdf need shapes: omit --shapes none")
        return None
    packages = dict(options.package) or None
    visual = options.shapes == "visual"
    if path.endswith(".eqx") or not any(read_geometry(path, collision=not visual, packages=packages)):
        if required:
            other = "" if visual or path.endswith(".eqx") else " (--shapes visual uses the visual ones)"
            warn(f"{path} has no {options.shapes} shapes: no distances are checked{other}")
        return None
    try:
        shapes = geometry.read(path, chain, visual=visual, packages=packages, srdf=options.srdf, **choice)
    except ModelError as error:
        if required or options.srdf or options.environment:
            raise
        warn(f"no distances are checked: {error}")
        return None
    if options.floor and not any(isinstance(joint, Free) for joint in chain.joints):
        shapes = geometry.with_environment(chain, shapes, [geometry.floor()])
    if options.environment:
        shapes = geometry.with_environment(chain, shapes, options.environment, packages=packages)
    return shapes


def contact_of(options: argparse.Namespace, path: str, chain: "Chain", t: Any, q: Any) -> "tuple[Shapes | None, str]":
    """The shapes of a robot, if known, and what touches first during a motion, in words; "" if nothing does."""
    from ..geometry.approaches import closest_approaches, first_contact

    shapes = load_shapes(options, path, chain, required=False)
    return shapes, "" if shapes is None else first_contact(closest_approaches(chain, shapes, t, q))


def load_contacts(options: argparse.Namespace, path: str, chain: "Chain") -> "Contacts":
    """The contacts, joint limits and dry friction of a robot: those of its MJCF file, or of shapes with `add_shapes`.

    Pairs of shapes whose contacts are not supported are left out, with a warning.
    """
    from .. import contact
    from ..contact.reading import with_supported_pairs
    from ..io.files import read_bytes
    from ..io.loading import MJCF, format_of

    if path.endswith(".eqx"):
        raise WrongUsage(f"--contacts: {path} has no shapes; pass the URDF or MJCF file of the robot")
    if format_of(read_bytes(path)) is MJCF:
        if options.environment or options.srdf:
            raise WrongUsage("--contacts of an MJCF file are those in the file: omit --environment and --srdf")
        return contact.read(path, chain, leave_out=True)
    shapes = load_shapes(options, path, chain)
    if shapes is None:
        raise WrongUsage(f"--contacts needs shapes, but {path} has none, or --shapes none is given")
    return contact.make_contacts(chain, with_supported_pairs(shapes, path))


def check_logs(options: argparse.Namespace, count: int) -> None:
    """Check that --rows is given at most once per log, and --columns not at all, once, or once per log."""
    logs = f"{count} log{'s'[: count != 1]}"
    if len(options.rows) > count:
        raise WrongUsage(f"--rows is given {len(options.rows)} times for {logs}: pass it at most once per log")
    if len(options.columns) not in (0, 1, count):
        raise WrongUsage(
            f"--columns is given {len(options.columns)} times for {logs}: pass it once for all logs, or once per log"
        )


def files_of(log: str) -> list[str]:
    """The files of one run: the parts of PART1+PART2, or the log itself if a file of that name exists."""
    return [log] if os.path.exists(log) or not all(log.split("+")) else log.split("+")


def read_logs(options: argparse.Namespace, logs: Sequence[str], chain: "Chain", model: str) -> Iterator["Log"]:
    """Read logs one by one, with the settings `settings.READING`.

    Numbered columns may also contain the joints that --lock fixes in the file `model`; these are left out.
    """
    from ..io.bags import is_bag
    from ..io.logs import read_log
    from ..model.chain import coordinate_names

    names = coordinate_names(chain)
    numbered = coordinate_names(_unlocked(options, model)) if options.lock and chain.coupling is None else None
    ranges = dict(enumerate(map(rows, options.rows)))
    maps = [None if path == "-" else path for path in options.columns]
    maps = maps * len(logs) if len(maps) == 1 else maps or [None] * len(logs)
    paths = [files_of(log) for log in logs]
    bags = [is_bag(pathlib.Path(files[0])) for files in paths]
    for k, files in enumerate(paths):
        yield read_log(
            files[0] if len(files) == 1 else files,
            names,
            gains=options.gains,
            rows=ranges.get(k),
            on_bad_rows=options.on_bad_rows,
            columns=maps[k],
            topic=options.topic if bags[k] or not any(bags) else None,
            units_checked=options.units_checked,
            numbered=numbered,
        )


def _unlocked(options: argparse.Namespace, model: str) -> "Chain":
    """The robot with all joints of the file."""
    import warnings

    from ..io.loading import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about faults that were reported when the robot was loaded
        return load(model, tip=options.tip, allow_nonphysical=True, ignore_inertials=True)


def filters_of(options: argparse.Namespace, delay: float | list[float] | None = None) -> "Filters":
    """The filters that the settings `settings.FILTERING` specify."""
    from ..identification import Filters

    return Filters(options.cutoff, options.torque_cutoff or options.cutoff, options.stride, delay)


def with_gravity(chain: "Chain", gravity: Sequence[float] | None) -> "Chain":
    """The chain with another gravitational acceleration [m/s^2]; unchanged for None."""
    import jax.numpy as jnp

    return chain if gravity is None else dataclasses.replace(chain, gravity=jnp.asarray(gravity, chain.dtype))


def with_coulomb_velocity(chain: "Chain", velocity: float | None) -> "Chain":
    """The chain with `velocity` as width of the smooth sign function in Coulomb friction [rad/s or m/s]; unchanged for None."""
    import jax.numpy as jnp

    from ..model import with_leaves

    if velocity is None:
        return chain
    return with_leaves(chain, {"friction.coulomb_velocity": jnp.full_like(chain.friction.coulomb_velocity, velocity)})


def provenance_of(
    options: argparse.Namespace, files: Sequence[tuple[str, str]], settings: Mapping[str, object]
) -> "Provenance":
    """The provenance for a page: input files, settings and the command line."""
    from ..report import collect_provenance

    each = [(role, part) for role, path in files for part in files_of(path)]
    return collect_provenance(each, settings, getattr(options, "arguments", None))
