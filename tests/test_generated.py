"""Generated programs of M, C, g and tau: the biped in both forms and a mechanism with everything, in NumPy, JAX and C."""

import ctypes
import dataclasses
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import jaxdyn
from helpers import mechanism_state, once, random_chain, random_mechanism, random_state, relative
from jaxdyn import symbolic, textbook

NAMES = "tau", "M", "C", "g"


@once
def numerical(chain, q, qd, qdd):
    return (
        jaxdyn.inverse_dynamics(chain, q, qd, qdd),
        jaxdyn.mass_matrix(chain, q),
        jaxdyn.coriolis_matrix(chain, q, qd),
        jaxdyn.gravity_force(chain, q),
    )


def check(f, chain, state, accuracy=1e-12):
    q, qd, qdd = map(np.asarray, state)
    got = f.tau(q, qd, qdd), f.M(q), f.C(q, qd), f.g(q)
    for name, x, y in zip(NAMES, got, numerical(chain, *state), strict=True):
        assert relative(x, y) < accuracy, name


@pytest.mark.parametrize(
    "floating", [pytest.param(False, marks=pytest.mark.ci), pytest.param(True, marks=pytest.mark.nightly)]
)
def test_the_biped_is_generated_with_few_operations(floating):
    """Ten joints, and sixteen coordinates of the floating one: thousands of operations, where sums had 1.55 million."""
    chain = textbook.biped(floating=floating)
    made = symbolic.generate(chain)
    check(made.lambdify("numpy"), chain, mechanism_state(chain, 2))
    counts = made.operations
    assert counts["tau"] < 1000 and counts["C"] < 8000 and counts["M"] < 3000


@pytest.mark.nightly
def test_quaternions_couplings_and_rotors_are_generated():
    """A free and a spherical joint, a coupling, rotors that move several joints, a tilted base."""
    chain = random_mechanism(3)
    base = jaxdyn.spatial.se3.pose_exp(jnp.asarray([0.3, -0.5, 0.2, 0.1, 0.4, -0.2]))
    chain = dataclasses.replace(chain, base_pose=base)
    state = mechanism_state(chain, 5)
    check(symbolic.generate(chain).lambdify("numpy"), chain, state, 1e-11)


def test_generated_functions_work_for_all_joints_in_batches_and_in_jax():
    chain, state = random_chain(4, 3), random_state(4, 3)
    made = symbolic.generate(chain)
    f = made.lambdify("numpy")
    check(f, chain, state)
    batch = [np.stack([x, 2 * x, -x]) for x in map(np.asarray, state)]
    assert relative(f.C(*batch[:2])[1], f.C(batch[0][1], batch[1][1])) < 1e-15 and f.tau(*batch).shape == (3, 4)
    j = made.lambdify("jax")
    together = once(jax.vmap(j.g))(jnp.asarray(batch[0]))
    assert relative(together, f.g(batch[0])) < 1e-13
    assert j.g(state[0].astype(jnp.float32)).dtype == jnp.float32


@pytest.mark.nightly
def test_letters_in_the_leaves_become_parameters():
    """The parameters of a textbook's system as arguments; the same numbers as from the formulas."""
    chain, leaves = textbook.planar_elbow(), symbolic.textbook_leaves("planar_elbow")
    values = {"m1": 1.2, "m2": 0.8, "l1": 0.7, "lc1": 0.3, "lc2": 0.2, "i1": 0.05, "i2": 0.03, "g": 9.6}
    made, derived = symbolic.generate(chain, leaves), symbolic.derive(chain, leaves)
    assert made.parameters == tuple(sorted(values))
    f, formulas = made.lambdify("numpy"), derived.lambdify("numpy")
    q, qd, qdd = map(np.asarray, random_state(2, 1))
    assert relative(f.tau(q, qd, qdd, **values), formulas.tau(q, qd, qdd, **values)) < 1e-13
    assert relative(f.C(q, qd, **values), formulas.C(q, qd, **values)) < 1e-13
    angle = sympy.Symbol("angle")
    turned = symbolic.generate(chain, {"gravity": [sympy.sin(angle), -(sympy.cos(angle) ** 2), sympy.sqrt(2)]})
    assert turned.parameters == ("angle",)
    exact = jaxdyn.gravity_force(
        dataclasses.replace(chain, gravity=jnp.asarray([np.sin(0.4), -(np.cos(0.4) ** 2), np.sqrt(2)])), jnp.asarray(q)
    )
    assert relative(turned.lambdify("numpy").g(q, angle=0.4), exact) < 1e-13


def test_wrong_leaves_and_parameters_are_refused():
    chain = textbook.planar_elbow()
    with pytest.raises(jaxdyn.ModelError, match="unknown leaf 'mass'; the leaves that expressions can"):
        symbolic.generate(chain, {"mass": [1]})
    with pytest.raises(jaxdyn.ModelError, match=r"chain has no leaf 'coupling\.matrix'"):
        symbolic.generate(chain, {"coupling.matrix": [[1]]})
    with pytest.raises(jaxdyn.ModelError, match="have shape"):
        symbolic.generate(chain, {"gravity": [1]})
    f = symbolic.generate(chain).lambdify("numpy")
    with pytest.raises(jaxdyn.ModelError, match="the parameters are none"):
        f.g(np.zeros(2), g=9.81)
    with pytest.raises(jaxdyn.ModelError, match=r"requires 1 state arrays of \[2\] numbers"):
        f.g(np.zeros(3))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_generated_c_program_gives_the_same_numbers(tmp_path):
    """The C program of the floating biped, compiled and called."""
    chain = textbook.biped(floating=True)
    made = symbolic.generate(chain)
    (tmp_path / "biped.c").write_text(made.c_source("biped"))
    command = ["cc", "-O1", "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "biped.so", "biped.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    library = ctypes.CDLL(str(tmp_path / "biped.so"))
    f = made.lambdify("numpy")
    q, qd, qdd = (np.array(x) for x in mechanism_state(chain, 3))
    pointer = lambda x: x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    for name, arguments in (("tau", (q, qd, qdd)), ("M", (q,)), ("C", (q, qd)), ("g", (q,))):
        expected = getattr(f, name)(*arguments)
        out = np.full(expected.shape, np.nan)
        getattr(library, f"biped_{name}")(*map(pointer, arguments), pointer(out))
        assert relative(out, expected) < 1e-13, name


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_generated_c_program_takes_parameters(tmp_path):
    chain, leaves = textbook.pendulum(1), symbolic.textbook_leaves("pendulum", 1)
    made = symbolic.generate(chain, leaves)
    (tmp_path / "arm.c").write_text(made.c_source("arm"))
    subprocess.run(
        ["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "arm.so", "arm.c", "-lm"], cwd=tmp_path, check=True
    )
    library, values = ctypes.CDLL(str(tmp_path / "arm.so")), {"g": 9.7, "i1": 0.02, "lc1": 0.4, "m1": 1.1}
    assert made.parameters == tuple(values)
    pointer = lambda x: np.asarray(x, float).ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    out = np.zeros(1)
    library.arm_g(pointer([0.7]), pointer(list(values.values())), pointer(out))
    np.testing.assert_allclose(out, [1.1 * 9.7 * 0.4 * np.sin(0.7)], atol=1e-14)
