"""Base parameters of other people's floating and coupled robots: ranks and combinations are those of Pinocchio's regressor."""

import dataclasses
import warnings

import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain
from jaxdyn.identification import Columns, base_parameters
from jaxdyn.model._layout import with_bodies
from peer_models import configuration_to_pinocchio, to_pinocchio, velocity_to_pinocchio
from sweep.models import fetch, files

pin = pytest.importorskip("pinocchio")


def of_pinocchio(chain, states: int, seed: int = 0) -> np.ndarray:
    """Rows of Pinocchio's regressor of random states, in the chain's coordinates and columns; zero for links without a body."""
    bare = dataclasses.replace(chain, coupling=None, transmission=None)
    model = to_pinocchio(bare)
    data, rng = model.createData(), np.random.default_rng(seed)
    s = np.eye(chain.n) if chain.coupling is None else np.asarray(chain.coupling.matrix)
    held = np.zeros(chain.n) if chain.coupling is None else np.asarray(chain.coupling.offset)
    bodies = np.flatnonzero(with_bodies(chain.topology))
    columns = (10 * bodies[:, None] + np.arange(10)).reshape(-1)
    inner = len(chain.topology.quaternion_joints) and chain.topology.quaternion_joints[0][1]
    rows = []
    for _ in range(states):
        y, v, a = rng.uniform(-1, 1, chain.nv), *rng.normal(size=(2, chain.nv))
        q = s @ y + held
        if inner == 6:
            turn = rng.normal(size=4)
            q = np.concatenate([q[:3], turn / np.linalg.norm(turn), q[6:]])
        state = configuration_to_pinocchio(bare, q), *(velocity_to_pinocchio(bare, s @ x) for x in (v, a))
        found = np.zeros((chain.n, 10 * chain.n))
        found[:, columns] = pin.computeJointTorqueRegressor(model, data, *state)
        rows.append(s.T @ velocity_to_pinocchio(bare, found.T).T)  # its free joint's linear rows come first
    return np.concatenate(rows)


def compared(chain) -> tuple[int, int, float]:
    """Our number of base parameters, Pinocchio's rank, and how far its rows are from being those of our combinations."""
    base = base_parameters(chain, Columns(()))
    bodies = int(with_bodies(chain.topology).sum())
    rows = of_pinocchio(chain, max(40, -(-3 * 10 * bodies // chain.nv)))
    sizes = np.linalg.svd(rows, compute_uv=False)
    off = rows - rows[:, base.kept] @ base.matrix
    return base.size, int((sizes > 1e-9 * sizes[0]).sum()), float(np.abs(off).max() / np.abs(rows).max())


def robots(folder):
    """Floating and coupled robots of a folder of wheels: every URDF that loads, smallest first."""
    found, seen = [], set()
    for model in files(folder):
        if model.kind != "urdf":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                chain = jaxdyn.load(model.source, floating_base=model.floating, ignore_inertials=True)
        except jaxdyn.JaxdynError:
            continue
        axes_meet = not np.abs(
            np.asarray(chain.screw)[:, 3:] * np.any(np.asarray(chain.screw)[:, :3], axis=1)[:, None]
        ).any()
        key = chain.n, chain.nv, np.asarray(chain.translation).round(6).tobytes()
        if (model.floating or chain.coupling is not None) and 6 < chain.n <= 60 and axes_meet and key not in seen:
            seen.add(key)
            found.append((model.name, chain))
    return sorted(found, key=lambda pair: pair[1].n)


@pytest.mark.nightly
def test_ranks_of_other_peoples_robots():
    fetch(ROOT / ".wheels")
    chosen = robots(ROOT / ".wheels" / "example-robot-data")[:40]
    assert len(chosen) >= 30
    for name, chain in chosen:
        ours, theirs, off = compared(chain)
        assert ours == theirs and off < 1e-7, (name, ours, theirs, off)


@pytest.mark.ci
def test_ranks_of_a_biped_and_of_a_gripper():
    matrix = np.eye(3, 2)
    matrix[2, 1] = -1.0
    gripper = jaxdyn.with_coupling(random_chain(3, joints="revolute"), matrix)
    for chain in (jaxdyn.textbook.biped(floating=True), gripper):
        ours, theirs, off = compared(chain)
        assert ours == theirs and off < 1e-8
