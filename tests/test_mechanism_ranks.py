"""Base parameters of other people's floating and coupled robots: ranks and combinations are those of Pinocchio's regressor."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain
from jaxdyn.identification import Columns, base_parameters
from jaxdyn.model.build import unrounded
from jaxdyn.model.chain import layout, with_bodies
from jaxdyn.spatial.inertia import transform_inertial_parameters
from peer_models import axis_offset, configuration_to_pinocchio, to_pinocchio, velocity_to_pinocchio
from sweep.models import fetch, files

pin = pytest.importorskip("pinocchio")


def of_pinocchio(chain, states: int, seed: int = 0) -> np.ndarray:
    """Rows of Pinocchio's regressor at random states, in the chain's coordinates and columns; zero for links without a body."""
    bare = dataclasses.replace(chain, coupling=None, transmission=None)
    model = to_pinocchio(bare)
    data, rng, n = model.createData(), np.random.default_rng(seed), chain.n
    s = np.eye(n) if chain.coupling is None else np.asarray(chain.coupling.matrix)
    held = np.zeros(n) if chain.coupling is None else np.asarray(chain.coupling.offset)
    bodies = np.flatnonzero(with_bodies(chain.topology))
    columns = (10 * bodies[:, None] + np.arange(10)).reshape(-1)
    moved = np.zeros((10 * len(bodies), 10 * len(bodies)))  # about the joints' frames, which lie on their axes
    for k, link in enumerate(bodies):
        moved[10 * k : 10 * k + 10, 10 * k : 10 * k + 10] = about_point(axis_offset(np.asarray(chain.screw[link])))
    where, rows = layout(bare), []
    for _ in range(states):
        y, v, a = rng.uniform(-1, 1, chain.nv), *rng.normal(size=(2, chain.nv))
        q, joints = np.zeros(bare.nq), s @ y + held
        q[where.entries] = joints[where.columns]
        for joint in where.curved:
            turn = rng.normal(size=4)
            q[joint.start : joint.start + joint.size - 3] = joints[joint.column : joint.column + joint.size - 3]
            q[joint.quaternion] = turn / np.linalg.norm(turn)
        state = configuration_to_pinocchio(bare, q), *(velocity_to_pinocchio(bare, s @ x) for x in (v, a))
        found = np.zeros((n, 10 * n))
        found[:, columns] = pin.computeJointTorqueRegressor(model, data, *state) @ moved
        rows.append(s.T @ velocity_to_pinocchio(bare, found.T).T)  # its free joint's linear rows come first
    return np.concatenate(rows)


def about_point(point: np.ndarray) -> np.ndarray:
    """The matrix that takes ten parameters to those about another point, in the same axes."""
    pose = np.eye(4)
    pose[:3, 3] = -point
    return np.asarray(
        jax.vmap(lambda pi: transform_inertial_parameters(jnp.asarray(pose), pi), out_axes=1)(jnp.eye(10))
    )


def compared(chain) -> tuple[int, int, float]:
    """Our number of base parameters, Pinocchio's rank, and how far its rows are from being those of our combinations.

    Pinocchio gets the geometry without the file's rounding (1.57 for pi/2), to which our combinations belong.
    """
    base = base_parameters(chain, Columns(()))
    bodies = int(with_bodies(chain.topology).sum())
    rows = of_pinocchio(unrounded(chain), max(40, -(-3 * 10 * bodies // chain.nv)))
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
        key = chain.n, chain.nv, np.asarray(chain.translation).round(6).tobytes()
        if (model.floating or chain.coupling is not None) and 6 < chain.n <= 65 and key not in seen:
            seen.add(key)
            found.append((model.name, chain))
    return sorted(found, key=lambda pair: pair[1].n)


@pytest.mark.nightly
def test_ranks_of_other_peoples_robots(annotations_unchecked):
    fetch(ROOT / ".wheels")
    chosen = robots(ROOT / ".wheels" / "example-robot-data")
    assert len(chosen) >= 30
    for name, chain in chosen:
        ours, theirs, off = compared(chain)
        rounded = "romeo" in name  # some of its axes are parallel to seven digits only
        assert ours == theirs and off < (1e-6 if rounded else 1e-7), (name, ours, theirs, off)


@pytest.mark.ci
def test_ranks_of_a_biped_and_of_a_gripper():
    matrix = np.eye(3, 2)
    matrix[2, 1] = -1.0
    gripper = jaxdyn.with_coupling(random_chain(3, joints="revolute"), matrix)
    for chain in (jaxdyn.textbook.biped(floating=True), gripper):
        ours, theirs, off = compared(chain)
        assert ours == theirs and off < 1e-8
