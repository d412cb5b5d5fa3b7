"""Cost: programs whose size does not depend on the number of links, long chains, and one compilation a topology."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from helpers import random_chain, random_state, relative
from jaxdyn import textbook

FUNCTIONS = {
    "inverse_dynamics": jaxdyn.inverse_dynamics,
    "forward_dynamics": jaxdyn.forward_dynamics,
    "aba": jaxdyn.aba,
    "mass_matrix": lambda c, q, qd, x: jaxdyn.mass_matrix(c, q),
    "crba": lambda c, q, qd, x: jaxdyn.crba(c, q),
    "coriolis_matrix": lambda c, q, qd, x: jaxdyn.coriolis_matrix(c, q, qd),
    "regressor": jaxdyn.regressor,
    "forward_kinematics": lambda c, q, qd, x: jaxdyn.forward_kinematics(c, q),
    "jacobian": lambda c, q, qd, x: jaxdyn.jacobian(c, q),
    "total_energy": lambda c, q, qd, x: jaxdyn.total_energy(c, q, qd),
    "gradient": jax.grad(lambda c, q, qd, x: jaxdyn.inverse_dynamics(c, q, qd, x).sum()),
    "batch": jax.vmap(jaxdyn.inverse_dynamics),
}


def equations(jaxpr) -> int:
    """Number of equations of a jaxpr and of everything it calls."""
    count = 0
    for equation in jaxpr.eqns:
        count += 1
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                count += equations(inner)
    return count


def size(name: str, n: int) -> int:
    arguments = (random_chain(n), *random_state(n))
    if name == "batch":
        arguments = jax.tree.map(lambda x: jnp.stack([x, x]), arguments)
    return equations(jax.make_jaxpr(FUNCTIONS[name])(*arguments).jaxpr)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_of_7_and_of_many_links_have_the_same_size(name):
    short = size(name, 7)
    assert short > 200
    # a regressor of 100 links is too large for a kernel of the CPU, and leaves its wrapping out
    assert size(name, 40 if name == "regressor" else 100) == short


def newton_euler(chain, q, qd, qdd) -> np.ndarray:
    """Torques of a chain of revolute joints, axes through the frames' origins: every body on its own, in base axes."""
    q, qd, qdd, pi = (np.asarray(x) for x in (q, qd, qdd, chain.inertia))
    n = chain.n
    r, p, w, dw, a = np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3), -np.asarray(chain.gravity)
    origins, axes, forces, moments = (np.zeros((n, 3)) for _ in range(4))
    for i in range(n):
        arm = r @ np.asarray(chain.translation[i])
        a = a + np.cross(dw, arm) + np.cross(w, np.cross(w, arm))
        p = p + arm
        local = np.asarray(chain.screw[i, :3])
        r = r @ np.asarray(chain.rotation[i]) @ Rotation.from_rotvec(local * q[i]).as_matrix()
        axis = r @ local
        dw = dw + axis * qdd[i] + np.cross(w, axis * qd[i])
        w = w + axis * qd[i]
        h = r @ pi[i, 1:4]
        xx, xy, yy, xz, yz, zz = pi[i, 4:]
        inertia = r @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ r.T
        forces[i] = pi[i, 0] * a + np.cross(dw, h) + np.cross(w, np.cross(w, h))
        moments[i] = inertia @ dw + np.cross(w, inertia @ w) + np.cross(h, a) + np.cross(p, forces[i])
        origins[i], axes[i] = p, axis
    force, moment = (np.cumsum(x[::-1], axis=0)[::-1] for x in (forces, moments))  # of all bodies beyond a joint
    return np.sum(axes * (moment - np.cross(origins, force)), axis=1) + np.asarray(chain.armature) * qdd


@pytest.mark.ci
def test_a_chain_of_a_thousand_links_compiles_and_runs():
    """Compiled in seconds (the bounds leave room for a busy machine), and right."""
    n = 1000
    chain = random_chain(n, 2, "revolute")
    state = random_state(n, 2)
    exact = newton_euler(chain, *state)
    programs = {}
    for name in ("inverse_dynamics", "aba"):
        start = time.perf_counter()
        programs[name] = jax.jit(FUNCTIONS[name]).lower(chain, *state).compile()
        assert time.perf_counter() - start < 30
    tau = programs["inverse_dynamics"](chain, *state)
    assert relative(tau, exact) < 1e-12
    assert (
        relative(programs["aba"](chain, *state[:2], tau), state[2]) < 1e-6
    )  # 2e-8 measured: the mass matrix is ill-conditioned


def test_another_robot_of_the_same_topology_is_not_traced_again():
    traced = []

    @jax.jit
    def f(chain, q):
        traced.append(chain.n)
        return jaxdyn.gravity_force(chain, q)

    q = jnp.asarray([0.1, 0.2, 0.3])
    first = f(textbook.pendulum(3), q)
    second = f(textbook.pendulum(3, mass=2.0, length=0.5), q)
    third = f(jaxdyn.with_inertial_parameters(textbook.pendulum(3), 3 * textbook.pendulum(3).inertia), q)
    f(dataclasses.replace(textbook.pendulum(3), gravity=jnp.zeros(3)), q)
    assert traced == [3]
    np.testing.assert_allclose(second, first, rtol=1e-13)  # twice the mass at half the length
    np.testing.assert_allclose(third, 3 * first, rtol=1e-13)
    f(textbook.pendulum(4), jnp.zeros(4))
    assert traced == [3, 4]


def test_topologies_are_equal_by_their_names():
    a, b = textbook.pendulum(3).topology, textbook.pendulum(3).topology
    assert a is not b and a == b and hash(a) == hash(b)
    other = dataclasses.replace(a, joint_names=("a", "b", "c"))
    assert a != other
    assert a != "pendulum"
