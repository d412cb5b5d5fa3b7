"""Every URDF of the `example-robot-data` package against Pinocchio, with a fixed and with a floating base.

The package is large (130 MB to fetch), so it is no part of the test extra: the tests skip where it is absent. A few robots are
tested by default, all of them with JAXDYN_ALL_ROBOTS=1.
"""

import importlib.metadata
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, relative
from jaxdyn.dynamics import jacobian as jacobian_module

pin = pytest.importorskip("pinocchio")

TOLERANCE = 1e-11
FEW = ("g1_29dof_rev_1_0", "solo12", "panda", "human")
ROOT_TWIST = [3, 4, 5, 0, 1, 2]  # Pinocchio's twists are (v, w)
# Bodies that nothing real can be, so that `load` refuses them; Pinocchio takes them as they are
NONPHYSICAL: set[str] = set()


def robot_files() -> list[Path]:
    try:
        package = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return []
    return sorted(Path(str(package.locate_file("cmeel.prefix/share/example-robot-data/robots"))).rglob("*.urdf"))


FILES = {path.stem: path for path in robot_files()}
CHOSEN = [path for path in robot_files() if os.environ.get("JAXDYN_ALL_ROBOTS") or path.stem in FEW]


@once
def ours(chain, q, v, a, tau):
    return {
        "tau": jaxdyn.inverse_dynamics(chain, q, v, a),
        "M": jaxdyn.crba(chain, q),
        "C v": jaxdyn.coriolis_force(chain, q, v),
        "g": jaxdyn.gravity_force(chain, q),
        "qdd": jaxdyn.forward_dynamics(chain, q, v, tau),
        "poses": jaxdyn.forward_kinematics(chain, q),
    }


def jacobians(chain, q, poses, frames, monkeypatch):
    """Of every frame, op by op: compiled, every one of them would be a program of its own."""
    monkeypatch.setattr(jacobian_module, "forward_kinematics", lambda *_: poses)
    return {name: jaxdyn.jacobian(chain, q, name) for name in frames}


def layouts(chain, model):
    """Where each of our velocities stands in Pinocchio's, and q and v of a random state in both layouts."""
    rng = np.random.default_rng(1)
    q = pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv))
    columns, ours_q = np.zeros(chain.nv, int), np.zeros(chain.nq)
    free = 0
    if model.joints[1].nv == 6:
        columns[:6] = ROOT_TWIST
        ours_q[:7] = q[[0, 1, 2, 6, 3, 4, 5]]
        free = 1
    for name, joint in list(zip(model.names, model.joints, strict=True))[1 + free :]:
        k = chain.joint_names.index(name)
        assert joint.nv == 1
        columns[k] = joint.idx_v
        ours_q[k + free] = q[joint.idx_q] if joint.nq == 1 else np.arctan2(q[joint.idx_q + 1], q[joint.idx_q])
    return columns, q, ours_q


def errors(path, floating, monkeypatch, allow_nonphysical=False):
    """The largest relative error of every quantity."""
    model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    if model.nv == 0:
        pytest.skip("no joint moves: Pinocchio's model is empty")
    chain = jaxdyn.load(path, floating_base=floating, ignore_mimic=True, allow_nonphysical=allow_nonphysical)
    assert chain.nv == model.nv and chain.n == model.nv
    data = model.createData()
    columns, q, ours_q = layouts(chain, model)
    v, a = np.random.default_rng(2).normal(size=(2, model.nv))
    found, theirs = {}, {}
    tau = pin.rnea(model, data, q, v, a)
    state = [jnp.asarray(x) for x in (ours_q, v[columns], a[columns], tau[columns])]
    upper = np.triu(pin.crba(model, data, q))
    theirs["tau"] = tau[columns]
    theirs["M"] = (upper + np.triu(upper, 1).T)[np.ix_(columns, columns)]
    theirs["g"] = pin.computeGeneralizedGravity(model, data, q)[columns]
    theirs["qdd"] = pin.aba(model, data, q, v, tau)[columns]
    weightless = model.copy()
    weightless.gravity = pin.Motion.Zero()
    theirs["C v"] = pin.nonLinearEffects(weightless, weightless.createData(), q, v)[columns]
    pin.computeJointJacobians(model, data, q)
    pin.updateFramePlacements(model, data)
    found = dict(jax.tree.map(np.asarray, ours(chain, *state)))
    frames = {f.name: k for k, f in enumerate(model.frames) if f.type == pin.BODY and f.name != "universe"}
    known = (*chain.link_names, *chain.frame_names)
    assert set(frames) <= {*known, chain.topology.base_name}
    poses = found.pop("poses")
    theirs["FK"] = np.array([data.oMf[frames[name]].homogeneous for name in chain.link_names if name in frames])
    found["FK"] = np.array([poses[i] for i, name in enumerate(chain.link_names) if name in frames])
    named = [name for name in frames if name in known]
    local = {name: pin.getFrameJacobian(model, data, frames[name], pin.LOCAL) for name in named}
    theirs["J"] = np.array([local[name][ROOT_TWIST][:, columns] for name in named])
    found["J"] = np.array(list(jacobians(chain, state[0], jnp.asarray(poses), named, monkeypatch).values()))
    return {name: relative(found[name], theirs[name]) for name in theirs}


@pytest.mark.skipif(not FILES, reason="the package example-robot-data is not installed")
@pytest.mark.parametrize("floating", [False, True], ids=["fixed", "floating"])
@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_pinocchio_agrees(path, floating, monkeypatch, record_property):
    worst = errors(path, floating, monkeypatch)
    record_property("errors", worst)
    assert max(worst.values()) <= TOLERANCE, worst
