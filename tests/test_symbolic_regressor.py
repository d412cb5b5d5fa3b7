"""Regressors, velocity terms and springs of the textbooks' systems in closed form: against numbers and against the books."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import jaxdyn
from helpers import once, random_state, relative
from jaxdyn import symbolic, textbook
from jaxdyn.mechanisms import linkages

# number of parameters with gravity known, of those of each system that move something
SIZES = {
    "planar_elbow": 5,
    "planar_2r_point_masses": 5,
    "cartesian_two_link": 2,
    "single_link": 2,
    "geared_link": 2,
    "elastic_link": 4,
    "remotely_driven_elbow": 5,
    "spherical_rrp": 3,
    "pendulum": 5,
    "five_bar": 5,
    "four_bar": 5,
    "pendulum_3dof": 5,
    "coupled_wrist": 7,
}
LONG = {
    "pendulum_3dof",
    "coupled_wrist",
    "five_bar",
    "four_bar",
    "spherical_rrp",
    "remotely_driven_elbow",
    "planar_elbow",
}
WORDS = {
    "m": "mass",
    "lc": "com_distance",
    "Jl": "link_inertia",
    "Jm": "motor_inertia",
    "r": "gear_ratio",
    "k": "stiffness",
}
VALUES = {"m": 0.9, "lc": 0.4, "Jl": 0.3, "Jm": 2e-3, "r": 12.0, "k": 30.0, "g": 9.7, "r1": 20.0, "r2": 30.0}
VALUES |= {"J1": 2e-3, "J2": 3e-3, "r4": -48.0, "r5": 45.0, "r6": 32.0, "J4": 1e-3, "J5": 2e-3, "J6": 3e-3}
VALUES |= {
    f"{x}{k}": v + 0.07 * k
    for x, v in {"m": 0.9, "l": 0.5, "lc": 0.2, "i": 0.03, "d": 0.05}.items()
    for k in range(1, 5)
}


def build(system):
    """The chain of these values."""
    if system == "pendulum":
        group = lambda x: np.array([VALUES[f"{x}1"], VALUES[f"{x}2"]])
        return textbook.pendulum(
            2, mass=group("m"), length=group("l"), com_distance=group("lc"), inertia=group("i"), gravity=9.7
        )
    if system in ("five_bar", "four_bar"):
        of = lambda x: tuple(VALUES[f"{x}{k}"] for k in range(1, 5))
        lengths = {
            "l1": VALUES["l1"],
            ("l2" if system == "five_bar" else "l3"): VALUES["l2" if system == "five_bar" else "l3"],
        }
        make = getattr(linkages, f"{system}_chain")
        return make(masses=of("m"), com_distances=of("lc"), inertias=of("i"), gravity=9.7, **lengths)
    if system == "coupled_wrist":
        of = lambda x, numbers: tuple(VALUES[f"{x}{k}"] for k in numbers)
        return textbook.coupled_wrist(
            gear_ratio=of("r", (4, 5, 6)),
            rotor_inertia=of("J", (4, 5, 6)),
            masses=of("m", (1, 2, 3)),
            lengths=of("d", (1, 2, 3)),
            gravity=9.7,
        )
    make = getattr(textbook, system)
    if system == "remotely_driven_elbow":
        arm = {x: VALUES[x] for x in ("m1", "m2", "l1", "lc1", "lc2", "i1", "i2")}
        return make(motor_inertia=[2e-3, 3e-3], gear_ratio=[20.0, 30.0], gravity=9.7, **arm)
    names = inspect.signature(make).parameters
    return make(
        gravity=9.7,
        **{WORDS.get(x, x): v for x, v in VALUES.items() if WORDS.get(x, x) in names and x != "g"},
    )


@once
def numerical(chain, q, qd, qdd):
    return jaxdyn.inverse_dynamics(chain, q, qd, qdd) + jaxdyn.spring_force(
        chain, q
    ), jaxdyn.dynamics.velocity_products(chain, q)


@pytest.mark.parametrize("system", [pytest.param(x, marks=pytest.mark.nightly if x in LONG else ()) for x in SIZES])
def test_regressors_of_the_textbook_systems_are_minimal(system):
    """Y theta is the numerical torque, and no column and no parameter is too many."""
    chain = build(system)
    e = symbolic.derive(chain, symbolic.textbook_leaves(system))
    found = e.regressor()
    f = found.lambdify("numpy")
    values = lambda expression: {x.name: VALUES[x.name] for x in expression.free_symbols if x.name in VALUES}
    state = random_state(chain.nv, 3)
    torques, split = numerical(chain, *state)
    y = f.Y(*map(np.asarray, state), **values(found.Y))
    theta = f.theta(**values(found.theta))
    assert relative(y @ theta, torques) < 1e-12
    assert found.Y.shape == (chain.nv, SIZES[system])
    rng = np.random.default_rng(0)
    rows = [f.Y(*rng.normal(size=(3, chain.nv)), **values(found.Y)) for _ in range(20)]
    assert np.linalg.matrix_rank(np.concatenate(rows)) == SIZES[system]
    names = [x.name for x in found.theta.free_symbols]
    samples = np.array([f.theta(**dict(zip(names, rng.uniform(0.5, 2, len(names)), strict=True))) for _ in range(40)])
    assert np.linalg.matrix_rank(samples) == SIZES[system]
    # the velocity terms apart
    at = dict(zip(e.q, np.asarray(state[0]).tolist(), strict=True)) | {x: VALUES[x.name] for x in e.parameters}
    coriolis, centrifugal = np.zeros_like(split.coriolis), np.zeros_like(split.centrifugal)
    for (j, k), column in e.velocity_terms().items():
        numbers = np.array(column.subs(at).tolist(), float)[:, 0]
        if j == k:
            centrifugal[:, j] = numbers
        else:
            coriolis[:, split.pairs.index((j, k))] = numbers
    scale = max(np.abs(split.centrifugal).max(), np.abs(split.coriolis).max(initial=0), 1e-3)
    assert np.abs(coriolis - split.coriolis).max(initial=0) < 1e-12 * scale
    assert np.abs(centrifugal - split.centrifugal).max() < 1e-12 * scale


def test_the_regressor_of_the_elbow_is_that_of_the_book():
    """Spong, Hutchinson & Vidyasagar 2020, sec. 6.5: Y and Theta of five parameters, three without gravity."""
    chain, leaves = textbook.planar_elbow(), symbolic.textbook_leaves("planar_elbow")
    e = symbolic.derive(chain, leaves)
    m1, m2, l1, lc1, lc2, i1, i2, g = sympy.symbols("m1 m2 l1 lc1 lc2 i1 i2 g", positive=True)
    (q1, q2), (w1, w2), (a1, a2) = e.q, e.qd, e.qdd
    c2, s2, c1, c12 = sympy.cos(q2), sympy.sin(q2), sympy.cos(q1), sympy.cos(q1 + q2)
    y = [
        [a1, c2 * (2 * a1 + a2) - s2 * (w2**2 + 2 * w1 * w2), a2, g * c1, g * c12],
        [0, c2 * a1 + s2 * w1**2, a1 + a2, 0, g * c12],
    ]
    theta = [
        m1 * lc1**2 + m2 * (l1**2 + lc2**2) + i1 + i2,
        m2 * l1 * lc2,
        m2 * lc2**2 + i2,
        m1 * lc1 + m2 * l1,
        m2 * lc2,
    ]
    found = e.regressor()
    assert sympy.simplify(found.Y - sympy.Matrix(y)) == sympy.zeros(2, 5)
    assert sympy.simplify(found.theta - sympy.Matrix(theta)) == sympy.zeros(5, 1)
    assert found.Y[1, 4] == g * c12 and "theta5 = lc2*m2" in str(found)
    flat = symbolic.derive(chain, {**leaves, "gravity": {1: 0}}).regressor()
    assert flat.theta == found.theta[:3, :] and flat.Y.shape == (2, 3)
    # with the length a number, m2 lc2 is in both a moment and an inertia
    numbers = {name: leaf for name, leaf in leaves.items() if name != "translation"}
    assert symbolic.derive(chain, numbers).regressor().Y.shape == (2, 4)
    assert e.regressor(known=()).theta[3] == g * (m1 * lc1 + m2 * l1)
    f = found.lambdify("jax")
    assert f.theta(m1=1.0, m2=1.0, l1=1.0, lc1=0.5, lc2=0.5, i1=0.1, i2=0.1).shape == (5,)
    assert f.Y(jnp.ones(2), jnp.ones(2), jnp.ones(2), g=9.81).shape == (2, 5)


def test_only_the_elbow_with_relative_angles_has_coriolis_terms():
    """A belt takes the Coriolis force away and leaves the centrifugal ones (sec. 6.4)."""
    m2, l1, lc2 = sympy.symbols("m2 l1 lc2", positive=True)
    k = m2 * l1 * lc2
    e = symbolic.derive(textbook.planar_elbow(), symbolic.textbook_leaves("planar_elbow"))
    h = k * sympy.sin(e.q[1])
    expected = {(0, 0): [0, h], (0, 1): [-2 * h, 0], (1, 1): [-h, 0]}
    assert {key: list(x) for key, x in e.velocity_terms().items()} == expected
    e = symbolic.derive(textbook.remotely_driven_elbow(), symbolic.textbook_leaves("remotely_driven_elbow"))
    assert set(e.velocity_terms()) == {(0, 0), (1, 1)}


def test_the_elastic_link_has_the_equations_of_the_book():
    """J_l q1dd + m g lc sin q1 + k (q1 - q2) = 0, J_m q2dd + k (q2 - q1) = tau_m (example 6.2)."""
    e = symbolic.derive(textbook.elastic_link(), symbolic.textbook_leaves("elastic_link"))
    m, lc, jl, jm, r, k, g = sympy.symbols("m lc Jl Jm r k g", positive=True)
    q1, q2 = e.q
    whole = e.tau + e.spring_force
    by_hand = [jl * e.qdd[0] + m * g * lc * sympy.sin(q1) + k * (q1 - q2), r**2 * jm * e.qdd[1] + k * (q2 - q1)]
    assert sympy.simplify(whole - sympy.Matrix(by_hand)) == sympy.zeros(2, 1)
    assert sympy.expand(e.spring_energy - k * (q1 - q2) ** 2 / 2) == 0
    lines = dict(line.split(" = ") for line in str(e).splitlines())
    assert lines["k1"] == "k*(q1 - q2)" and list(lines)[-2:] == ["k1", "k2"]
