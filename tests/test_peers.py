"""The library against Pinocchio, MuJoCo and modern_robotics, which it shares no code with."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, relative
from jaxdyn import robots
from peer_models import anonymous, axis_offset, to_mjcf, to_pinocchio

ROBOTS = {
    "panda": robots.panda,
    "iiwa14": robots.iiwa14,
    "xarm7": robots.xarm7,
    "ur5": robots.ur5,
    "ur5e": robots.ur5e,
    "ur10": robots.ur10,
    "prismatic": functools.partial(random_chain, 7, 1, "prismatic"),
    "helical": functools.partial(random_chain, 7, 2, "helical"),
    "mixed": functools.partial(random_chain, 7, 3, "mixed"),
}

COUNT = 8
REFERENCES = ("body", "space", "mixed")
SWAP = [3, 4, 5, 0, 1, 2]  # Pinocchio's twists and wrenches are (v, w) and (f, n)


@functools.cache
def build(name: str) -> jaxdyn.Chain:
    return anonymous(ROBOTS[name]())


def states(n: int, seed: int = 0):
    """q, qd, qdd, tau (COUNT, n) and a wrench on every link (COUNT, n, 6)."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-np.pi, np.pi, (COUNT, n))
    qd, qdd, tau = (rng.normal(size=(COUNT, n)) * scale for scale in (2, 5, 20))
    return q, qd, qdd, tau, rng.normal(size=(COUNT, n, 6)) * 10


@jax.jit
def ours(chain, q, qd, qdd, tau, wrenches):
    """Every quantity of every state."""

    def one(q, qd, qdd, tau, wrenches):
        out = {
            "tau": jaxdyn.inverse_dynamics(chain, q, qd, qdd),
            "tau under wrenches": jaxdyn.inverse_dynamics(chain, q, qd, qdd, wrenches),
            "mass_matrix": jaxdyn.mass_matrix(chain, q),
            "crba": jaxdyn.crba(chain, q),
            "coriolis_matrix": jaxdyn.coriolis_matrix(chain, q, qd),
            "gravity_force": jaxdyn.gravity_force(chain, q),
            "bias_force": jaxdyn.bias_force(chain, q, qd),
            "forward_dynamics": jaxdyn.forward_dynamics(chain, q, qd, tau, wrenches),
            "aba": jaxdyn.aba(chain, q, qd, tau, wrenches),
            "mass_matrix_solve": jaxdyn.mass_matrix_solve(chain, q, tau),
            "kinetic_energy": jaxdyn.kinetic_energy(chain, q, qd),
            "potential_energy": jaxdyn.potential_energy(chain, q),
            "forward_kinematics": jaxdyn.forward_kinematics(chain, q),
            "frame_pose": jaxdyn.frame_pose(chain, q),
            "regressor": jaxdyn.regressor(chain, q, qd, qdd),
        }
        out["Y pi"] = out["regressor"] @ jaxdyn.inertial_parameters(chain).reshape(-1)
        for reference in REFERENCES:
            out[f"jacobian {reference}"] = jaxdyn.jacobian(chain, q, reference=reference)
            out[f"jacobian_derivative {reference}"] = jaxdyn.jacobian_derivative(chain, q, qd, reference=reference)
        return out

    return jax.lax.map(lambda state: one(*state), (q, qd, qdd, tau, wrenches))


def pinocchio_terms(chain, q, qd, qdd, tau, wrenches):
    """The same quantities of one state, by Pinocchio."""
    import pinocchio as pin

    model = to_pinocchio(chain)
    data = model.createData()
    pin.forwardKinematics(model, data, q, qd)
    pin.updateFramePlacements(model, data)
    links = [model.getFrameId(f"link{i}") for i in range(chain.n)]
    tool = model.getFrameId("tool")
    forces = pin.StdVec_Force()
    forces.append(pin.Force.Zero())
    for i, frame in enumerate(links):
        wrench = pin.Force(wrenches[i][3:], wrenches[i][:3])
        forces.append(model.frames[frame].placement.act(wrench))
    out = {
        "forward_kinematics": np.array([data.oMf[f].homogeneous for f in links]),
        "frame_pose": data.oMf[tool].homogeneous,
    }
    pin.computeJointJacobians(model, data, q)
    pin.computeJointJacobiansTimeVariation(model, data, q, qd)
    frames = (pin.ReferenceFrame.LOCAL, pin.ReferenceFrame.WORLD, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
    for reference, frame in zip(REFERENCES, frames, strict=True):
        out[f"jacobian {reference}"] = pin.getFrameJacobian(model, data, tool, frame)[SWAP]
        out[f"jacobian_derivative {reference}"] = pin.getFrameJacobianTimeVariation(model, data, tool, frame)[SWAP]
    mass = pin.crba(model, data, q).copy()
    mass = np.triu(mass) + np.triu(mass, 1).T
    out |= {
        "tau": pin.rnea(model, data, q, qd, qdd).copy(),
        "tau under wrenches": pin.rnea(model, data, q, qd, qdd, forces).copy(),
        "mass_matrix": mass,
        "crba": mass,
        "coriolis_matrix": pin.computeCoriolisMatrix(model, data, q, qd).copy(),
        "gravity_force": pin.computeGeneralizedGravity(model, data, q).copy(),
        "bias_force": pin.nonLinearEffects(model, data, q, qd).copy(),
        "forward_dynamics": pin.aba(model, data, q, qd, tau, forces).copy(),
        "potential_energy": pin.computePotentialEnergy(model, data, q),
    }
    out["aba"] = out["forward_dynamics"]
    regressor = pin.computeJointTorqueRegressor(model, data, q, qd, qdd)
    parameters = np.concatenate([model.inertias[i + 1].toDynamicParameters() for i in range(chain.n)])
    out["Y pi"] = regressor @ parameters
    if all(
        np.abs(axis_offset(np.array(screw))).max() < 1e-12 for screw in chain.screw
    ):  # then the link frames are Pinocchio's own
        out["regressor"] = regressor
    pin.computeMinverse(model, data, q)
    inverse = np.triu(data.Minv) + np.triu(data.Minv, 1).T
    out["mass_matrix_solve"] = inverse @ tau
    armature = model.armature.copy()
    model.armature = np.zeros(chain.n)  # Pinocchio 4.1 counts it for some joint types only
    out["kinetic_energy"] = pin.computeKineticEnergy(model, data, q, qd) + 0.5 * armature @ qd**2
    return out


@functools.cache
def comparison(name: str):
    """Largest relative error a quantity over the states, and the largest condition number of M."""
    pytest.importorskip("pinocchio")
    chain = build(name)
    given = states(chain.n)
    got = {k: np.asarray(v) for k, v in ours(chain, *map(jnp.asarray, given)).items()}
    worst: dict[str, float] = {}
    condition = 1.0
    for k in range(COUNT):
        exact = pinocchio_terms(chain, *(x[k] for x in given))
        condition = max(condition, np.linalg.cond(exact["mass_matrix"]))
        for quantity, value in exact.items():
            # what vanishes on a prismatic chain is measured against what it adds to
            against = {"coriolis_matrix": "bias_force", "gravity_force": "bias_force"}.get(quantity, quantity)
            against = against.replace("jacobian_derivative", "jacobian")
            scale = max(np.abs(value).max(), np.abs(exact[against]).max())
            worst[quantity] = max(worst.get(quantity, 0.0), np.abs(got[quantity][k] - value).max() / scale)
    return worst, condition


SOLVES = {"forward_dynamics", "aba", "mass_matrix_solve"}


CASES = [pytest.param(x, marks=pytest.mark.nightly if x in {"ur5", "ur5e", "ur10", "xarm7"} else ()) for x in ROBOTS]


@pytest.mark.parametrize("name", CASES)
def test_all_quantities_equal_those_of_pinocchio(name):
    worst, _ = comparison(name)
    assert len(worst) == 22 - (name == "mixed")
    assert {k: v for k, v in worst.items() if k not in SOLVES and not v <= 1e-12} == {}


@pytest.mark.parametrize("name", CASES)
def test_accelerations_equal_those_of_pinocchio(name):
    worst, condition = comparison(name)
    # a solve with M cannot be better than rounding times its condition number: Cholesky against Pinocchio's own inverse
    bounds = {"forward_dynamics": 1e-12, "aba": 1e-12, "mass_matrix_solve": max(1e-12, 2.2e-16 * condition)}
    assert {k: worst[k] for k in SOLVES if not worst[k] <= bounds[k]} == {}


@pytest.mark.parametrize("kind", ["revolute", "offset", "prismatic", "mixed without a helix"])
def test_dynamics_equal_those_of_mujoco(kind):
    mujoco = pytest.importorskip("mujoco")
    if kind == "mixed without a helix":
        chain = anonymous(random_chain(7, 5, "mixed"))
        helical = jnp.asarray([2, 6])
        chain = dataclasses.replace(
            chain, screw=chain.screw.at[helical].set(random_chain(7, 5, "revolute").screw[helical])
        )
    else:
        chain = anonymous(random_chain(7, 4, kind))
    model = mujoco.MjModel.from_xml_string(to_mjcf(chain))
    data = mujoco.MjData(model)
    given = states(7, 1)
    got = ours(chain, *map(jnp.asarray, given))
    for k in range(COUNT):
        data.qpos, data.qvel, data.qacc = (x[k] for x in given[:3])
        mujoco.mj_inverse(model, data)
        assert relative(got["tau"][k], data.qfrc_inverse) < 1e-10
        assert relative(got["bias_force"][k], data.qfrc_bias) < 1e-10
        mass = np.zeros((7, 7))
        for row, unit in zip(mass, np.eye(7), strict=True):
            mujoco.mj_mulM(model, data, row, unit)
        assert relative(got["mass_matrix"][k], mass) < 1e-10
        assert relative(got["forward_kinematics"][k, :, :3, 3], data.xpos[1:]) < 1e-10
        data.qfrc_applied = given[3][k]
        data.xfrc_applied[1:] = 0
        mujoco.mj_forward(model, data)
        free = np.linalg.solve(mass, given[3][k] - data.qfrc_bias)
        assert relative(data.qacc, free) < 1e-10  # nothing else acts in the document


def homogeneous(rows) -> np.ndarray:
    return np.array([*rows, [0, 0, 0, 1]], float)


@pytest.mark.ci
def test_dynamics_equal_the_numbers_printed_by_modern_robotics():
    """The three-link arm of the documentation of modern_robotics, and the numbers printed there.

    Its first screw has |w| = sqrt 2: normalised, the joint turns sqrt 2 times as far and its torque is sqrt 2 times smaller.
    """
    between = [
        homogeneous([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.089159]]),
        homogeneous([[0, 0, 1, 0.28], [0, 1, 0, 0.13585], [-1, 0, 0, 0]]),
        homogeneous([[1, 0, 0, 0], [0, 1, 0, -0.1197], [0, 0, 1, 0.395]]),
        homogeneous([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.14225]]),
    ]
    inertias = [
        np.diag([0.010267, 0.010267, 0.00666, 3.7, 3.7, 3.7]),
        np.diag([0.22689, 0.22689, 0.0151074, 8.393, 8.393, 8.393]),
        np.diag([0.0494433, 0.0494433, 0.004095, 2.275, 2.275, 2.275]),
    ]
    screws = np.array([[1, 0, 1, 0, 1, 0], [0, 1, 0, -0.089, 0, 0], [0, 1, 0, -0.089, 0, 0.425]])
    length = np.linalg.norm(screws[:, :3], axis=1)
    home = list(itertools.accumulate(between, np.matmul))
    chain = jaxdyn.from_screws(screws / length[:, None], home[:3], inertias, tip_pose=home[3], gravity=(0, 0, -9.8))
    q, qd, qdd, tau = (
        jnp.asarray(np.array(x) * s)
        for x, s in (
            ([0.1, 0.1, 0.1], length),
            ([0.1, 0.2, 0.3], length),
            ([2, 1.5, 1], length),
            ([0.5, 0.6, 0.7], 1 / length),
        )
    )
    wrench = jnp.ones(6)
    results = jax.jit(
        lambda: {
            "InverseDynamics": jaxdyn.inverse_dynamics(chain, q, qd, qdd, wrench_by_tip=wrench),
            "MassMatrix": jaxdyn.crba(chain, q),
            "VelQuadraticForces": jaxdyn.coriolis_force(chain, q, qd),
            "GravityForces": jaxdyn.gravity_force(chain, q),
            "EndEffectorForces": jaxdyn.jacobian(chain, q).T @ wrench,
            "ForwardDynamics": jaxdyn.forward_dynamics(chain, q, qd, tau, wrench_by_tip=wrench) / length**2,
        }
    )()
    printed = {
        "InverseDynamics": [74.69616155, -33.06766016, -3.23057314],
        "MassMatrix": [
            [2.25433380e01, -3.07146754e-01, -7.18426391e-03],
            [-3.07146754e-01, 1.96850717e00, 4.32157368e-01],
            [-7.18426391e-03, 4.32157368e-01, 1.91630858e-01],
        ],
        "VelQuadraticForces": [0.26453118, -0.05505157, -0.00689132],
        "GravityForces": [28.40331262, -37.64094817, -5.4415892],
        "EndEffectorForces": [1.40954608, 1.85771497, 1.392409],
        "ForwardDynamics": [-0.97392907, 25.58466784, -32.91499212],
    }
    for name, exact in printed.items():
        scaled = np.asarray(results[name]) * (np.outer(length, length) if name == "MassMatrix" else length)
        np.testing.assert_allclose(scaled, exact, rtol=5e-9, atol=5.1e-9, err_msg=name)  # printed to eight decimals


@pytest.mark.ci
def test_kinematics_equal_those_of_modern_robotics():
    screws = np.array([[0, 0, 1, 0, 0.2, 0.2], [1, 0, 0, 2, 0, 3], [0, 1, 0, 0, 2, 1], [1, 0, 0, 0.2, 0.3, 0.4]])
    body = random_chain(1).inertia[0]
    chain = jaxdyn.from_screws(screws, np.tile(np.eye(4), (4, 1, 1)), np.tile(body, (4, 1)), tip_pose=np.eye(4))
    q = jnp.asarray([0.2, 1.1, 0.1, 1.2])
    in_space = [
        [0, 0.98006658, -0.09011564, 0.95749426],
        [0, 0.19866933, 0.4445544, 0.28487557],
        [1, 0, 0.89120736, -0.04528405],
        [0, 1.95218638, -2.21635216, -0.51161537],
        [0.2, 0.43654132, -2.43712573, 2.77535713],
        [0.2, 2.96026613, 3.23573065, 2.22512443],
    ]
    in_body = [
        [-0.04528405, 0.99500417, 0, 1],
        [0.74359313, 0.09304865, 0.36235775, 0],
        [-0.66709716, 0.03617541, -0.93203909, 0],
        [2.32586047, 1.66809, 0.56410831, 0.2],
        [-1.44321167, 2.94561275, 1.43306521, 0.3],
        [-2.06639565, 1.82881722, -1.58868628, 0.4],
    ]
    np.testing.assert_allclose(jaxdyn.jacobian(chain, q, reference="space"), in_space, atol=5.1e-9)
    np.testing.assert_allclose(jaxdyn.jacobian(chain, q, reference="body"), in_body, atol=5.1e-9)

    home = homogeneous([[-1, 0, 0, 0], [0, 1, 0, 6], [0, 0, -1, 2]])
    screws = [[0, 0, 1, 4, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, -1, -6, 0, -0.1]]
    chain = jaxdyn.from_screws(screws, np.tile(np.eye(4), (3, 1, 1)), np.tile(body, (3, 1)), tip_pose=home)
    pose = jaxdyn.frame_pose(chain, jnp.asarray([np.pi / 2, 3, np.pi]))
    np.testing.assert_allclose(pose, homogeneous([[0, 1, 0, -5], [1, 0, 0, 4], [0, 0, -1, 1.68584073]]), atol=5.1e-9)
