"""Contact dynamics of robots of others against MuJoCo, over random states with penetrations."""

import warnings
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest

from data_paths import ROOT
from jaxdyn import contact
from jaxdyn.contact.places import kind_of
from jaxdyn.errors import ModelWarning
from jaxdyn.geometry.shapes import KINDS as OURS
from jaxdyn.model import layouts
from test_contact_dynamics import States

WHEELS = Path(ROOT) / ".wheels"
SUITE = "dm_control/dm_control/suite"
ASSETS = "gymnasium-robotics/gymnasium_robotics/envs/mujoco/assets"
ROBOTS = {
    "hopper": f"{ASSETS}/hopper.xml",
    "walker2d": f"{ASSETS}/walker2d.xml",
    "half_cheetah": f"{ASSETS}/half_cheetah.xml",
    "ant": f"{ASSETS}/ant.xml",
    "humanoid of Gymnasium": f"{ASSETS}/humanoid.xml",
    "humanoid": f"{SUITE}/humanoid.xml",
    "quadruped": f"{SUITE}/quadruped.xml",
    "walker": f"{SUITE}/walker.xml",
    "humanoid_CMU": f"{SUITE}/humanoid_CMU.xml",
}
KINDS = {
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")): kind
    for kind in OURS
    if kind not in ("hull", "height_field")
}


def relative_errors(states):
    """The largest difference of the accelerations in each state, relative to 1 + the largest acceleration."""
    solve = lambda q, v, t: contact.contact_dynamics(states.chain, states.contacts, q, v, t).qdd
    to_mujoco = lambda q, v, a: layouts.to_mujoco_acceleration(states.chain, q, v, a)
    qacc = jax.jit(jax.vmap(lambda q, v, t: to_mujoco(q, v, solve(q, v, t))))(states.q, states.qd, states.tau)
    return np.abs(np.asarray(qacc) - states.qacc).max(axis=1) / (1 + np.abs(states.qacc).max(axis=1))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROBOTS)
def test_accelerations_are_those_of_mujoco(name):
    file = WHEELS / ROBOTS[name]
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    model = mujoco.MjModel.from_xml_path(str(file))
    others = ~np.isin(model.geom_type, list(KINDS))
    model.geom_contype[others] = model.geom_conaffinity[others] = 0
    supported = lambda a, b: kind_of(KINDS[int(model.geom_type[a])], KINDS[int(model.geom_type[b])]) is not None
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    model.opt.solver, model.opt.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.tolerance, model.opt.iterations, model.opt.ls_tolerance, model.opt.ls_iterations = 0, 200, 1e-14, 200
    for cone, ratio in ((0, 1), (1, 10), (1, 100)):
        model.opt.cone, model.opt.impratio = cone, ratio
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            states = States(model, 1000, leave_out=True, ignore=("actuators",))
        error = relative_errors(states)
        known = np.array([all(supported(*pair) for pair in touching) for touching in states.touching])
        assert known.sum() > 100
        print(f"{name}, cone {cone}, impratio {ratio}: {error[known].max():.1e}, {known.sum()} states")
        assert error[known].max() < 1e-8
