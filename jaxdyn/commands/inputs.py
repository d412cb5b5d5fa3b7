"""What commands that read robots and logs have in common."""

import argparse
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from .arguments import WrongUsage

if TYPE_CHECKING:
    from ..identification import Filters
    from ..io import Log
    from ..model import Chain
    from ..report import Provenance


def use_float64() -> None:
    """Compute with 64 bits: this process is ours; the library itself never touches the configuration."""
    import jax

    jax.config.update("jax_enable_x64", True)


def check_logs(options: argparse.Namespace, count: int) -> None:
    """Refuse more --rows than logs, and other numbers of --columns than one or one per log."""
    logs = f"{count} log{'s'[: count != 1]}"
    if len(options.rows) > count:
        raise WrongUsage(f"--rows is given {len(options.rows)} times for {logs}")
    if len(options.columns) not in (0, 1, count):
        raise WrongUsage(
            f"--columns is given {len(options.columns)} times for {logs}: give one for all, or one for each"
        )


def files_of(log: str) -> list[str]:
    """The files of one run: PART1+PART2 are two, unless a file is called so."""
    return [log] if os.path.exists(log) or not all(log.split("+")) else log.split("+")


def read_logs(options: argparse.Namespace, logs: Sequence[str], chain: "Chain") -> Iterator["Log"]:
    """The logs as the options of `arguments.add_log_form` say, checked, one after the other."""
    from ..io._logs.bags import is_bag
    from ..io._logs.log import check_log, read_log
    from ..io._logs.motion import coordinate_names

    names = coordinate_names(chain)
    ranges = dict(enumerate(options.rows))
    maps = [None if path == "-" else path for path in options.columns]
    maps = maps * len(logs) if len(maps) == 1 else maps or [None] * len(logs)
    paths = [files_of(log) for log in logs]
    bags = [is_bag(pathlib.Path(files[0])) for files in paths]
    for k, files in enumerate(paths):
        log = read_log(
            files[0] if len(files) == 1 else files,
            names,
            gains=options.gains,
            rows=ranges.get(k),
            on_bad_rows=options.on_bad_rows,
            columns=maps[k],
            topic=options.topic if bags[k] or not any(bags) else None,
        )
        # a joint may rest in one log and move in another: `identify` refuses one that moves in none
        yield check_log(log, chain, units_checked=options.units_checked, allow_still=True)


def filters_of(
    options: argparse.Namespace, delay: float | list[float] | Literal["estimated"] | None = None
) -> "Filters":
    """What the options of `add_filters` ask for."""
    from ..identification import Filters

    return Filters(options.cutoff, options.torque_cutoff or options.cutoff, options.stride, delay)


def with_coulomb_velocity(chain: "Chain", velocity: float | None) -> "Chain":
    """The chain with this width of the smooth sign, where one is given."""
    import jax.numpy as jnp

    from ..model import with_leaves

    if velocity is None:
        return chain
    return with_leaves(chain, {"friction.coulomb_velocity": jnp.full_like(chain.friction.coulomb_velocity, velocity)})


def provenance_of(
    options: argparse.Namespace, files: Sequence[tuple[str, str]], settings: Mapping[str, object]
) -> "Provenance":
    """Input files, settings and the command line, for a page."""
    from ..report import collect_provenance

    each = [(role, part) for role, path in files for part in files_of(path)]
    return collect_provenance(each, settings, getattr(options, "arguments", None))
