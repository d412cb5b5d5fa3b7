"""The public readers, called on one input, and what is expected of what they give."""

import contextlib
import dataclasses
import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.errors import JaxdynError

from . import seeds
from .checks import (
    Wrong,
    check_against,
    check_chain,
    check_like_pinocchio,
    check_log,
    check_same_chain,
    leaves_of,
    plain_table,
)
from .command_line import run_command


def read(call: dict[str, Any], folder: Path) -> int:
    """Read the input in this folder, which is also the current one; 0, or a command's exit code.

    Raises:
        Wrong: what was read is not what the file says.
    """
    path = folder / call["file"] if call["file"] else folder
    if call["reader"] != "command" and ("\x00" in call["file"] or call["file"].startswith(("/", "~"))):
        path = call["file"]
    return _READERS[call["reader"]](path, call["options"]) or 0


def _load(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    with _only_ours() as warned:
        chain = jaxdyn.load(path, **options)
    check_chain(chain, options.get("allow_nonphysical", False))
    if str(path).endswith(".urdf") and not options and not warned:
        check_like_pinocchio(chain, path)


@contextlib.contextmanager
def _only_ours() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of what is read meanwhile.

    Raises:
        Wrong: one of them is none of the library's. Files left open do not count: when these are noticed is up to Python.
    """
    from jaxdyn import ModelWarning

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)
        yield said
    for w in said:
        if not issubclass(w.category, ModelWarning):
            raise Wrong(f"a warning that names no file: {w.category.__name__}: {w.message}")


def _loads(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    data = path.read_bytes()
    with _only_ours():
        chain = jaxdyn.io.loads(data, **options)
        jaxdyn.io.loads(data.decode("utf-8", "surrogateescape"), **options)
    check_chain(chain, options.get("allow_nonphysical", False))


def _geometry(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    for collision in (False, True):
        shapes, _ = jaxdyn.io.read_geometry(path, collision=collision)
        for shape in shapes:
            for value in vars(shape).values():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
                    raise Wrong(f"a shape of {shape.link} holds what is not finite")


def _written(path: Path, options: dict[str, Any]) -> None:
    """The loaded robot survives writing and reading as URDF and as a model."""
    import jaxdyn

    chain = jaxdyn.load(path)
    jaxdyn.save_model(chain, path.with_suffix(".eqx"))
    check_same_chain(jaxdyn.load_model(path.with_suffix(".eqx")), chain)
    if chain.coupling is not None:
        return
    again = jaxdyn.io.loads(jaxdyn.io.to_urdf(chain))
    a, b = leaves_of(chain), leaves_of(again)
    for name in ("rotation", "translation", "inertia"):
        if a[name].shape != b[name].shape or not np.allclose(a[name], b[name], rtol=1e-6, atol=1e-9):
            raise Wrong(f"{name} differs once it was written as URDF")


def _log(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    options = {k: tuple(v) if k == "rows" else v for k, v in options.items()}
    with _only_ours():
        log = jaxdyn.read_log(path, **options)
    check_log(log)
    if "rows" not in options and "gains" not in options:
        check_against(log, plain_table(Path(path)))
    jaxdyn.io.check_log(log, jaxdyn.io.loads(seeds.ARM), units_checked=True, allow_still=True)


def _mapped(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    columns = options["columns"]
    columns = path.parent / columns if isinstance(columns, str) and columns == "columns.toml" else columns
    with _only_ours():
        log = jaxdyn.read_log(path, columns=columns)
    check_log(log)
    if log.n > 2 or len(log.t) != seeds.ROWS:
        raise Wrong(f"{len(log.t)} samples of {log.n} joints in a log of {seeds.ROWS} and 2")


def _chunks(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    with _only_ours():
        parts = list(jaxdyn.io.read_log_chunks(path, options.get("rows", 100)))
    for log in parts:
        check_log(log)
    if parts:
        check_against(joined(parts), plain_table(path))


def joined(parts: list[Any]) -> Any:
    """The log whose parts these are."""
    blocks = {name: [getattr(log, name) for log in parts] for name in ("t", "q", "qd", "tau")}
    whole = {name: None if x[0] is None else np.concatenate(x) for name, x in blocks.items()}
    return dataclasses.replace(parts[0], notes=tuple(note for log in parts for note in log.notes), **whole)


def _motion(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    arm = jaxdyn.io.loads(seeds.ARM)
    with _only_ours():
        motion = jaxdyn.io.read_motion(path, arm)
    if motion.q.shape != (len(motion.t), 2) or not (np.isfinite(motion.q).all() and (np.diff(motion.t) > 0).all()):
        raise Wrong(f"a motion of shape {motion.q.shape}")
    if motion.tau is not None and motion.tau.shape != motion.q.shape:
        raise Wrong(f"torques of shape {motion.tau.shape}")


def _model(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    chain = jaxdyn.load_model(path, **options)
    about = jaxdyn.io.model_about(path)
    original = path.parent / "original.eqx"
    if original.exists():
        check_same_chain(chain, jaxdyn.load_model(original, **options))
        if about != jaxdyn.io.model_about(original):
            raise Wrong("what is said about the model differs from what was written")


def _exported(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    function = jaxdyn.deployment.load_exported(path)
    if not path.with_name("original.jaxdyn").exists():
        return
    written = jaxdyn.deployment.load_exported(path.with_name("original.jaxdyn"))
    for name in (
        "name",
        "joint_names",
        "nq",
        "nv",
        "arguments",
        "results",
        "platforms",
        "batch",
        "vjp_order",
        "versions",
    ):
        if getattr(function, name) != getattr(written, name):
            raise Wrong(f"{name} is {getattr(function, name)!r}; {getattr(written, name)!r} was written")
    q = np.array([0.5, -2.0])
    if not np.array_equal(function(q), written(q)):
        raise Wrong("the function gives other numbers")


def _policy(path: Path, options: dict[str, Any]) -> None:
    import jax.numpy as jnp

    from jaxdyn.trajectory.policy import read_progress

    like = {"gain": jnp.zeros((2, 3)), "count": jnp.asarray(0)}
    carry, history, lost = read_progress(path, like)
    original = Path(path).parent / "original.bin"
    if original.exists():
        before = read_progress(original, like)
        same = all(np.array_equal(carry[key], before[0][key]) for key in like)
        if not same or (history, lost) != before[1:]:
            raise Wrong("progress differs from what was written")


def _factors(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    factors = jaxdyn.identification.load_factors(path)
    r, counts = factors.r, factors.counts
    if (
        r.dtype.kind != "f"
        or not np.isfinite(r).all()
        or r.ndim != 4
        or counts.dtype.kind not in "iu"
        or (counts < 0).any()
    ):
        raise Wrong(f"factors of {r.dtype} {r.shape} and counts {counts.dtype} {counts}")


def _gains(path: Path, options: dict[str, Any]) -> None:
    from jaxdyn.report.payloads import read_gains

    gains = read_gains(path)
    n = len(gains.factors)
    if not all(np.shape(x) == (n,) for x in (gains.gains, gains.determined, gains.noise, gains.payload_torque)):
        raise Wrong("gains of several lengths")
    numbers = (gains.factors, gains.gains, gains.common, gains.common_deviation)
    if not all(np.isfinite(x).all() for x in numbers) or (gains.factors <= 0).any():
        raise Wrong("gains that are not positive numbers")
    if not all(isinstance(note, str) for note in gains.notes):
        raise Wrong("notes that are no text")


def _map(path: Path, options: dict[str, Any]) -> None:
    import jaxdyn

    jaxdyn.read_log(Path(os.getcwd()) / "missing.csv", columns=path)


def _command(path: Path, options: dict[str, Any]) -> int:
    return run_command(options["arguments"])


_READERS = {
    "load": _load,
    "loads": _loads,
    "geometry": _geometry,
    "written": _written,
    "log": _log,
    "mapped": _mapped,
    "chunks": _chunks,
    "motion": _motion,
    "model": _model,
    "exported": _exported,
    "policy": _policy,
    "factors": _factors,
    "gains": _gains,
    "map": _map,
    "command": _command,
}


def planted(path: Path, options: dict[str, Any]) -> None:
    """Defects that a fuzzer must notice, for its own tests."""
    match options["fault"]:
        case "foreign":
            raise KeyError("planted")
        case "abort":
            os.abort()
        case "hang":
            while True:
                random.random()
        case "memory":
            np.ones(2**50)
        case "wrong":
            raise Wrong("planted")
        case "long":
            error = JaxdynError(f"{path}")
            error.args = ("planted " * 1000,)
            raise error
        case "nameless":
            raise JaxdynError("planted")


_READERS["planted"] = planted
