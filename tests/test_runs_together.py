"""Several runs in one identification: other formats, column orders, rates and names, each with its own notes."""

import dataclasses
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from bag_files import write_bag
from jaxdyn import Log, identify, read_log
from jaxdyn.identification import Filters, Terms, random_excitation, synthetic_log
from jaxdyn.io import check_log
from jaxdyn.io.logs import named_apart
from regression import known_arm


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three runs of one arm: a CSV at 500 Hz, one in another folder at 250 Hz in degrees and another order, a bag at 400 Hz."""
    pytest.importorskip("rosbags")
    folder, chain = tmp_path_factory.mktemp("runs"), known_arm()
    whole = synthetic_log(chain, random_excitation(chain, 10.0, 5, seed=1), None, 2000.0, 0.0, 0.0)
    for name in ("a", "b"):
        (folder / name).mkdir()
    first, second, third = (
        dataclasses.replace(whole, t=whole.t[part] - whole.t[part.start], q=whole.q[part], tau=whole.tau[part])
        for part in (slice(0, 8000, 4), slice(4000, 16000, 8), slice(12000, 20000, 5))
    )
    header = "t,q1,q2,q3,tau1,tau2,tau3"
    np.savetxt(folder / "a" / "run.csv", np.c_[first.t, first.q, first.tau], "%.12g", ",", header=header, comments="")
    columns = np.c_[second.tau[:, ::-1], 1e3 * second.t, np.degrees(second.q[:, [1, 0, 2]])]
    header = "T3;T2;T1;ms;B;A;C"
    np.savetxt(folder / "b" / "run.csv", columns, "%.12g", ";", header=header, comments="")
    (folder / "map.toml").write_text(
        '[t]\ncolumn = "ms"\nunit = "ms"\n[q]\ncolumns = ["A", "B", "C"]\nunit = "deg"\n[tau]\ncolumns = "T*"\n'
    )
    order = [2, 0, 1]
    names = [chain.joint_names[j] for j in order]
    rows = zip((1e9 * third.t).round().astype(int).tolist(), third.q[:, order], third.tau[:, order], strict=True)
    write_bag(folder / "run.mcap", [("/joint_states", t + 10**18, names, q, (), tau) for t, q, tau in rows], "mcap")
    return folder


@pytest.mark.ci
def test_runs_of_all_kinds_together(files):
    chain = known_arm()
    logs = [
        read_log(files / "a" / "run.csv", chain.joint_names),
        read_log(files / "b" / "run.csv", chain.joint_names, columns=files / "map.toml"),
        read_log(files / "run.mcap", chain.joint_names),
    ]
    logs = [check_log(log, chain) for log in logs]
    assert logs[0].path == files / "a" / "run.csv"
    assert [round(1 / np.diff(log.t).mean()) for log in logs] == [500, 250, 400]
    prior = dataclasses.replace(chain, inertia=chain.inertia * 1.1, armature=jnp.zeros(3))
    together = identify(prior, logs[:2], logs[2], filters=Filters(60.0, 60.0), terms=Terms(choose=()))
    assert together.validation[0].fit.total_relative < 0.1  # percent: Coulomb friction's edges behind the filter
    assert [e.title for e in together.fitted] == ["fitted: a/run.csv", "fitted: b/run.csv"]
    assert together.validation[0].title == "validation: run.mcap"
    notes = {name: [n for n in together.notes if n.startswith(f"{name}:")] for name in ("b/run.csv", "run.mcap")}
    assert any("map.toml" in note for note in notes["b/run.csv"]) and not any(
        "map.toml" in n for n in notes["run.mcap"]
    )
    assert any("/joint_states" in note for note in notes["run.mcap"])


def test_names_apart():
    def log(path=None, source="run.csv"):
        return Log(np.arange(3.0), np.ones((3, 1)), None, np.ones((3, 1)), source, (), path and pathlib.Path(path))

    def named(*logs):
        return [log.source for log in named_apart(logs)]

    assert named(log("/x/a/run.csv"), log("/x/b/run.csv")) == ["a/run.csv", "b/run.csv"]
    assert named(log("/x/a/run.csv"), log("/y/a/run.csv")) == ["x/a/run.csv", "y/a/run.csv"]
    assert named(log("/a/run.csv"), log("/a/run.csv"), log("/b/o.csv", "o.csv")) == [
        "run.csv (1)",
        "run.csv (2)",
        "o.csv",
    ]
    assert named(log("/run.csv"), log("/b/run.csv")) == ["//run.csv", "b/run.csv"]
    assert named(log(), log()) == ["run.csv", "run.csv"] and named() == []
