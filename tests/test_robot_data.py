"""Every URDF of the `example-robot-data` package against Pinocchio, with a fixed and with a floating base.

The package is large (130 MB to fetch, 400 MB installed), so it is no part of the test extra: the tests skip where it is
absent. `.ci/nightly` installs it.
"""

import functools
import importlib.metadata
import warnings
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
ROOT_TWIST = [3, 4, 5, 0, 1, 2]  # Pinocchio's twists are (v, w)

# Bodies that nothing real can be: Pinocchio takes them as they are, `load` refuses them unless told otherwise
WEIGHTLESS = ["romeo_description/romeo"]
IMPOSSIBLE = ["romeo_description/romeo_laas_small", "romeo_description/romeo_small"]
MIMICS_NOTHING = ["alex_description/alex_psyonic_hands"]
EMPTY = ["ur_description/ur3"]  # no robot in it: Pinocchio refuses it too
# Its mass matrix has condition number 1.6e8: a LU solve with Pinocchio's own matrix misses the accelerations by 3e-10 too
ILL_CONDITIONED = ["icub_description/icub"]
STILL = ["hector_description/quadrotor_base", "iris_description/iris_simple"]  # nothing moves unless the base floats


def robot_files() -> dict[str, Path]:
    """URDFs of the package by folder and name."""
    try:
        package = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        return {}
    folder = Path(str(package.locate_file("cmeel.prefix/share/example-robot-data/robots")))
    return {f"{path.relative_to(folder).parts[0]}/{path.stem}": path for path in sorted(folder.rglob("*.urdf"))}


FILES = robot_files()
pytestmark = pytest.mark.nightly
needs_package = pytest.mark.skipif(not FILES, reason="example-robot-data is absent; pip install it (130 MB)")
CASES = [
    (name, floating)
    for name in FILES
    for floating in (False, True)
    if name not in EMPTY and (floating or name not in STILL)
]


@functools.partial(once, static_argnames="floating")
def ours(chain, q, v, a, tau, floating):
    found = {
        "tau": jaxdyn.inverse_dynamics(chain, q, v, a),
        "M": jaxdyn.crba(chain, q),
        "C v": jaxdyn.coriolis_force(chain, q, v),
        "g": jaxdyn.gravity_force(chain, q),
        "poses": jaxdyn.forward_kinematics(chain, q),
    }
    if floating:  # what takes long to compile, once a robot
        found["qdd"] = jaxdyn.forward_dynamics(chain, q, v, tau)
        found["centroidal momentum matrix"] = jaxdyn.centroidal_momentum_matrix(chain, q)
    return found


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


def errors(name, floating, monkeypatch):
    """The largest relative error of every quantity."""
    path = FILES[name]
    model = pin.buildModelFromUrdf(str(path), *([pin.JointModelFreeFlyer()] if floating else []))
    allow_nonphysical = name in WEIGHTLESS or name in IMPOSSIBLE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxdyn.ModelWarning)
        chain = jaxdyn.load(path, floating_base=floating, ignore_mimic=True, allow_nonphysical=allow_nonphysical)
    assert chain.nv == model.nv and chain.n == model.nv
    data = model.createData()
    columns, q, ours_q = layouts(chain, model)
    v, a = np.random.default_rng(2).normal(size=(2, model.nv))
    theirs = {}
    tau = pin.rnea(model, data, q, v, a)
    state = [jnp.asarray(x) for x in (ours_q, v[columns], a[columns], tau[columns])]
    upper = np.triu(pin.crba(model, data, q))
    theirs["tau"] = tau[columns]
    theirs["M"] = (upper + np.triu(upper, 1).T)[np.ix_(columns, columns)]
    theirs["g"] = pin.computeGeneralizedGravity(model, data, q)[columns]
    if floating:
        theirs["centroidal momentum matrix"] = pin.ccrba(model, data, q, v)[np.ix_(ROOT_TWIST, columns)]
        theirs["qdd"] = pin.aba(model, data, q, v, tau)[columns]
        theirs["M qdd"] = (tau - pin.nonLinearEffects(model, data, q, v))[columns]
    weightless = model.copy()
    weightless.gravity = pin.Motion.Zero()
    theirs["C v"] = pin.nonLinearEffects(weightless, weightless.createData(), q, v)[columns]
    pin.computeJointJacobians(model, data, q)
    pin.updateFramePlacements(model, data)
    found = dict(jax.tree.map(np.asarray, ours(chain, *state, floating)))
    if floating:
        found["M qdd"] = theirs["M"] @ found["qdd"]
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


@needs_package
@pytest.mark.parametrize(("name", "floating"), CASES, ids=[f"{n}-{'floating' if f else 'fixed'}" for n, f in CASES])
def test_pinocchio_agrees(name, floating, monkeypatch):
    worst = errors(name, floating, monkeypatch)
    accelerations = worst.pop("qdd", 0.0)
    assert accelerations <= (1e-9 if name in ILL_CONDITIONED else TOLERANCE)
    assert max(worst.values()) <= TOLERANCE, worst


@needs_package
def test_files_that_are_refused_and_why():
    found = {}
    for name, path in FILES.items():
        for options in ({"ignore_mimic": True}, {"ignore_mimic": True, "floating_base": True}, {}):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", jaxdyn.ModelWarning)
                    jaxdyn.load(path, **options)
            except jaxdyn.ModelError as error:
                found.setdefault(name, set()).add(str(error))
    reasons = {
        "mass 0 kg is not positive": WEIGHTLESS,
        "violate the triangle inequality": IMPOSSIBLE,
        "has no <link>": EMPTY,
        "no joint moves": STILL,
        "which is no joint that moves": MIMICS_NOTHING,
    }
    for reason, names in reasons.items():
        assert sorted(name for name, texts in found.items() if any(reason in text for text in texts)) == sorted(names)
    assert set(found) == {name for names in reasons.values() for name in names}
