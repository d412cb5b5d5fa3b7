"""What commands that read robots and logs have in common."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def check_rows(options: argparse.Namespace, count: int) -> None:
    """Refuse more --rows than logs."""
    if len(options.rows) > count:
        raise WrongUsage(f"--rows is given {len(options.rows)} times for {count} log{'s'[: count != 1]}")


def read_logs(
    options: argparse.Namespace,
    paths: Sequence[str],
    chain: "Chain",
    joints: int | Sequence[str],
    further: Callable[[int], Mapping[str, object]] = lambda position: {},
) -> Iterator["Log"]:
    """The logs, checked, one after the other.

    Args:
        joints: their number or names, as for `read_log`.
        further: arguments of `read_log` for the log at a position.
    """
    from ..io._logs.log import check_log, read_log

    ranges = dict(enumerate(options.rows))
    for k, path in enumerate(paths):
        form: dict = {"gains": options.gains, "rows": ranges.get(k), "on_bad_rows": options.on_bad_rows, **further(k)}
        # a joint may rest in one log and move in another: `identify` refuses one that moves in none
        yield check_log(read_log(path, joints, **form), chain, units_checked=options.units_checked, allow_still=True)


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

    return collect_provenance(files, settings, getattr(options, "arguments", None))
