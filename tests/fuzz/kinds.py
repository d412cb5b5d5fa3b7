"""The kinds of input: which files are damaged in which way, and what reads them; each input is a folder with a `call.json`."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from . import archives, markup, seeds, tables, text, trees

Call = dict[str, Any]


class Kind(NamedTuple):
    """A kind of input.

    Attributes:
        weight: its share of the inputs, in proportion to the others'.
        make: writes the files of an input to a folder, from the folder of valid ones, and gives the call that reads them.
    """

    weight: float
    make: Callable[[random.Random, Path, Path], Call]


def make_input(kind: str, key: str, valid: Path, folder: Path) -> Call:
    """The input of this key, always the same: its files, and the call."""
    folder.mkdir(parents=True, exist_ok=True)
    call = KINDS[kind].make(random.Random(key), valid, folder)
    (folder / "call.json").write_text(json.dumps(call))
    return call


def _urdf(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("arm.urdf", "tree.urdf", "tree.urdf"))
    (folder / name).write_bytes(markup.damaged_markup(rng, (valid / name).read_bytes()))
    options = rng.choice(
        (
            *({},) * 6,
            *({"allow_nonphysical": True}, {"floating_base": True}, {"ignore_mimic": True}, {"floating_base": "root"}),
            *({"tip": "lower"}, {"tip": "c"}, {"lock": {"jb": 0.1}}, {"lock": {"lift": 0.1}}, {"gravity": [0, 0, 0]}),
        )
    )
    reader = rng.choice(("load", "load", "load", "load", "loads", "geometry", "written"))
    return {"reader": reader, "file": name, "options": options if reader not in ("geometry", "written") else {}}


def _mjcf(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("leg.xml", "trunk.xml"))
    (folder / name).write_bytes(markup.damaged_markup(rng, (valid / name).read_bytes()))
    options = rng.choice(({}, {}, {}, {"allow_nonphysical": True}, {"ignore": ["actuators", "equality", "tendon"]}))
    reader = rng.choice(("load", "load", "load", "loads", "geometry"))
    return {"reader": reader, "file": name, "options": options if reader != "geometry" else {}}


def _csv(rng: random.Random, valid: Path, folder: Path) -> Call:
    k = rng.randrange(len(tables.SEPARATORS))
    data = tables.damaged_csv(rng, (valid / f"log{k}.csv").read_bytes(), tables.SEPARATORS[k])
    (folder / "log.csv").write_bytes(data)
    return _log_call(rng, "log.csv")


def _npz(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("log.npz", "blocks.npz"))
    (folder / "log.npz").write_bytes(tables.damaged_npz(rng, (valid / name).read_bytes()))
    return _log_call(rng, "log.npz")


def _parquet(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("log.parquet", "blocks.parquet"))
    (folder / "log.parquet").write_bytes(tables.damaged_parquet(rng, (valid / name).read_bytes()))
    return _log_call(rng, "log.parquet")


def _log_call(rng: random.Random, name: str) -> Call:
    reader = rng.choice(("log", "log", "log", "log", "chunks", "motion"))
    options: dict[str, Any] = {}
    if reader == "chunks":
        options = {"rows": rng.choice((100, 1000))}
    if reader == "log":
        options = rng.choice(
            ({}, {}, {"joints": 2}, {"on_bad_rows": "drop"}, {"on_bad_rows": "drop"}, {"rows": [5, 50]})
        )
        if rng.random() < 0.1:
            options = {**options, "gains": [1.0, 1.0]}
    return {"reader": reader, "file": name, "options": options}


def _bag(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("run.bag", "run", "run.mcap"))
    if name == "run":
        shutil.copytree(valid / name, folder / name)
        inside = rng.choice(sorted((folder / name).iterdir()))
    else:
        inside = folder / name
        shutil.copy(valid / name, inside)
    data = inside.read_bytes()
    if inside.suffix == ".yaml" and rng.random() < 0.7:
        data = text.damaged_text(rng, data.decode()).encode()
    elif inside.suffix == ".yaml" and rng.random() < 0.5:
        data = text.encoded(rng, data.decode())
    else:
        data = text.damaged_bytes(rng, data)
    inside.write_bytes(data)
    joints = rng.choice((None, list(seeds.NAMES), ["lift"], 2))
    return {"reader": "log", "file": name, "options": {"joints": joints}}


def _column_map(rng: random.Random, valid: Path, folder: Path) -> Call:
    name, tree, log = rng.choice(
        (
            *(("setup", seeds.SETUP, "log0.csv"), ("currents", seeds.OF_CURRENTS, "log1.csv")),
            *(("setup", seeds.SETUP, "log.npz"), ("bag", seeds.OF_BAG, "run.bag")),
        )
    )
    path = folder / "columns.toml"
    match rng.randrange(10):
        case 0:
            path.write_bytes(text.damaged_bytes(rng, (valid / f"{name}.toml").read_bytes()))
        case 1:
            path.write_bytes(text.encoded(rng, (valid / f"{name}.toml").read_text()))
        case 2 | 3:
            path.write_text(text.damaged_text(rng, (valid / f"{name}.toml").read_text()), "utf-8")
        case 4 if rng.random() < 0.2:
            path.write_text("x = " + "[" * 50_000 + "]" * 50_000)
        case 4 | 5:
            damaged = trees.as_json(rng, trees.damaged_tree(rng, tree))
            if damaged.count("[") < 1000:
                try:
                    return _mapped(folder, valid, log, json.loads(damaged))
                except ValueError:
                    pass
            path.write_text(damaged, "utf-8", "surrogatepass")
        case _:
            path.write_text(trees.as_toml(trees.damaged_tree(rng, tree)), "utf-8")
    return _mapped(folder, valid, log, path.name)


def _mapped(folder: Path, valid: Path, log: str, columns: Any) -> Call:
    """The call that reads an undamaged log with a map, a file's or in memory."""
    shutil.copy(valid / log, folder / log)
    return {"reader": "mapped", "file": log, "options": {"columns": columns}}


def _model(rng: random.Random, valid: Path, folder: Path) -> Call:
    name = rng.choice(("arm.eqx", "tree.eqx"))
    shutil.copy(valid / name, folder / "original.eqx")
    (folder / name).write_bytes(archives.damaged_headed(rng, (valid / name).read_bytes()))
    return {"reader": "model", "file": name, "options": rng.choice(({}, {}, {"dtype": "float32"}))}


def _exported(rng: random.Random, valid: Path, folder: Path) -> Call:
    shutil.copy(valid / "function.jaxdyn", folder / "original.jaxdyn")
    (folder / "function.jaxdyn").write_bytes(archives.damaged_archive(rng, (valid / "function.jaxdyn").read_bytes()))
    return {"reader": "exported", "file": "function.jaxdyn", "options": {}}


def _policy(rng: random.Random, valid: Path, folder: Path) -> Call:
    shutil.copy(valid / "policy.bin", folder / "original.bin")
    (folder / "policy.bin").write_bytes(archives.damaged_headed(rng, (valid / "policy.bin").read_bytes()))
    return {"reader": "policy", "file": "policy.bin", "options": {}}


def _factors(rng: random.Random, valid: Path, folder: Path) -> Call:
    (folder / "factors.npz").write_bytes(tables.damaged_npz(rng, (valid / "factors.npz").read_bytes()))
    return {"reader": "factors", "file": "factors.npz", "options": {}}


def _gains(rng: random.Random, valid: Path, folder: Path) -> Call:
    data = (valid / "gains.json").read_bytes()
    match rng.randrange(6):
        case 0:
            data = text.damaged_bytes(rng, data)
        case 1:
            data = text.encoded(rng, data.decode())
        case _:
            data = trees.as_json(rng, trees.damaged_tree(rng, json.loads(data))).encode("utf-8", "surrogatepass")
    (folder / "gains.json").write_bytes(data)
    return {"reader": "gains", "file": "gains.json", "options": {}}


_PATHS = (
    "missing",
    "",
    ".",
    "folder",
    "a\x00b",
    "n" * 300,
    "x" * 5000,
    "关节",
    "a\nb",
    "\udcff",
    "/dev/null",
    "~",
    "{0}",
)


def _path(rng: random.Random, valid: Path, folder: Path) -> Call:
    """Paths that are no file's, or an empty file's, or another kind of file's."""
    del valid
    for suffix in ("", ".urdf", ".csv", ".npz", ".parquet", ".bag", ".mcap", ".eqx", ".toml"):
        (folder / f"folder{suffix}").mkdir()
        (folder / f"empty{suffix}").touch()
    name = rng.choice((*_PATHS, "empty", "call.json")) + rng.choice(
        ("", ".urdf", ".xml", ".csv", ".npz", ".parquet", ".bag", ".eqx")
    )
    readers = (
        "load",
        "log",
        "chunks",
        "motion",
        "model",
        "exported",
        "policy",
        "factors",
        "gains",
        "geometry",
        "map",
    )
    return {"reader": rng.choice(readers), "file": name, "options": {}}


def _command(rng: random.Random, valid: Path, folder: Path) -> Call:
    from .command_line import make_command

    for file in valid.iterdir():
        if file.is_file() and file.name != "made":
            shutil.copy(file, folder / file.name)
    return make_command(rng, folder)


KINDS: dict[str, Kind] = {
    "urdf": Kind(22, _urdf),
    "mjcf": Kind(13, _mjcf),
    "csv": Kind(19, _csv),
    "npz": Kind(11, _npz),
    "parquet": Kind(6, _parquet),
    "bag": Kind(5, _bag),
    "column_map": Kind(8, _column_map),
    "model": Kind(5, _model),
    "exported": Kind(2.5, _exported),
    "policy": Kind(2.5, _policy),
    "factors": Kind(2, _factors),
    "gains": Kind(2, _gains),
    "path": Kind(1.5, _path),
    "command": Kind(1, _command),
}
NEEDS = {"mjcf": "mujoco", "parquet": "pyarrow", "bag": "rosbags", "exported": "flatbuffers"}
