"""Objects print as a few lines, regardless of their size."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import random_chain, random_mechanism
from jaxdyn.trajectory.ik import InverseKinematics


def printed(x) -> str:
    text = repr(x)
    assert len(text) < 1500 and "Array(" not in text
    assert x._repr_html_() == f"<pre>{text}</pre>"
    return text


def test_a_chain_says_what_it_is():
    arm, tree = random_chain(3), random_mechanism(0)
    text = printed(arm)
    assert text.startswith("Chain: serial arm of 3 joints, nq 3, nv 3, float64") and ", ".join(arm.joint_names) in text
    assert f"mass of the moving links {float(arm.inertia[:, 0].sum()):.4g} kg" in text
    assert "tree of" in printed(tree) and "floating" in printed(tree)
    assert "floating" not in text and "fixed" in text
    bare = jaxdyn.with_inertial_parameters(arm, jnp.zeros((3, 10)))
    assert "no link has mass" in printed(bare)


def test_a_chain_of_anything_else_can_be_printed():
    arm, seen = random_chain(3), []
    printed(jax.tree.map(lambda x: 0, arm))
    printed(jax.tree.map(lambda x: None, arm))
    assert "batch of shape (4,)" in printed(jax.tree.map(lambda x: jnp.stack([x] * 4), arm))
    printed(jax.eval_shape(lambda c: c, arm))
    jax.jit(lambda c: seen.append(printed(c)) or c.gravity)(arm)
    assert "mass" not in seen[0]


def solution(steps=3, status=0):
    trajectory = jaxdyn.trajectory.Trajectory(
        jnp.linspace(0, 0.6, steps + 1), jnp.ones((steps + 1, 2)), jnp.ones((steps + 1, 2)), -7.5 * jnp.ones((steps, 2))
    )
    residuals = jaxdyn.trajectory.problem.Residuals(*(jnp.asarray(x) for x in (1e-9, 2e-10, 0.0, 0.0)))
    counts = jnp.asarray(status), residuals, jnp.asarray(12)
    return jaxdyn.trajectory.Solution(
        trajectory, jnp.asarray(1.25), {"dynamics": jnp.zeros((steps + 1, 4))}, *counts, {}
    )


def test_a_solution_says_how_it_ended():
    text = printed(solution())
    assert "converged" in text and "cost 1.25 after 12 iterations" in text and "stationarity 1e-09" in text
    assert "3 steps in 0.6 s, 2 velocities, largest torque 7.5 N m" in text
    assert "maximum number of iterations" in printed(solution(status=1))
    several = jax.tree.map(lambda *x: jnp.stack(x), solution(), solution(status=1))
    assert "1 of 2: converged" in printed(several) and "(2,) of 3 steps" in printed(several)
    seen = []
    jax.jit(lambda s: seen.append(printed(s)) or s.cost)(solution())
    assert "traced" in seen[0]


def test_inverse_kinematics_says_how_far_off_it_is():
    shapes = jnp.asarray([0.1, 0.2]), jnp.asarray([0, 0, 3e-3, 0, 4e-3, 0])
    found = InverseKinematics(*shapes, *(jnp.asarray(x) for x in (6, 100, 0, -0.02)))
    assert "off by 0.003 rad and 0.004 m, clearance -0.02 m" in printed(found) and "[0.1 0.2]" in printed(found)
    assert "no start converged" in printed(found)
    several = jax.tree.map(lambda x: jnp.stack([x] * 5), found)
    assert "5 of 5: no start converged" in printed(several) and "(5, 2)" in printed(several)


def test_a_payload_says_its_mass():
    ten = np.array([2.0, 0.2, 0.0, 0.4, *np.eye(3)[np.tril_indices(3)]])
    noise = {"payload_torque": np.ones(3), "noise": np.ones(3), "held_out": None, "notes": ("said",)}
    found = jaxdyn.identification.payload.Payload(
        "flange", ten, np.diag(np.full(10, 0.01)), np.ones(10, bool), ten, True, **noise
    )
    known = dataclasses.replace(found, calibrated=True)
    assert all(part in printed(known) for part in ("2 +- 0.1 kg in the frame flange", "(0.1 +-", "said"))
    assert (
        "2 +- 0.1 kg if the gains are exact (they were not calibrated: an error of 1 % shifts the mass by 0.02 kg)"
        in printed(found)
    )
