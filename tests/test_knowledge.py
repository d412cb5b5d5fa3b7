"""Parts of a robot that are known, exactly or with a standard deviation; limbs that mirror each other; robots of one type."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, random_inertia
from jaxdyn import IdentificationError, textbook
from jaxdyn.identification import (
    FrictionModel,
    Knowledge,
    MaxwellSlip,
    Offset,
    Samples,
    Terms,
    Viscous,
    base_parameters,
    identify_payload,
    identify_together,
    known_parameters,
    linear_constraints,
    mirrored_links,
    random_excitation,
    solve,
    synthetic_log,
)
from jaxdyn.identification.columns import all_columns, prior_parameters
from jaxdyn.identification.friction_terms import chain_terms
from jaxdyn.identification.knowledge import Known, body_rows, mirrored_parameters
from jaxdyn.identification.prediction import row_chunks
from jaxdyn.report import write_report
from regression import dense_blocks, known_arm

PLAIN = Terms(choose=())


@pytest.fixture(scope="module")
def arm():
    """Three joints without springs, and rows of its regressor at 240 random states."""
    chain = random_chain(3, joints="revolute")
    chain = dataclasses.replace(chain, springs=jax.tree.map(lambda x: 0 * x, chain.springs))
    columns = all_columns(chain)
    q, qd, qdd = np.random.default_rng(1).normal(size=(3, 240, 3))
    return chain, columns, np.asarray(jax.jit(jax.vmap(columns.matrix, (None, 0, 0, 0)))(chain, q, qd, qdd))


def test_a_known_body_is_a_quadratic_divergence_in_any_frame():
    """P of a body against tr((J0^-1 (J - J0))^2) / 2 of the same body, here and in a moved frame."""
    rng, s = np.random.default_rng(0), 0.07
    pi, change, turn = random_inertia(rng), 1e-2 * rng.normal(size=10), np.eye(4)
    turn[:3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn[:3, :3] *= np.sign(np.linalg.det(turn[:3, :3]))
    turn[:3, 3] = rng.normal(size=3)
    for move in (
        lambda x: x,
        lambda x: np.asarray(jaxdyn.spatial.inertia.transform_inertial_parameters(jnp.asarray(turn), x)),
    ):
        at, away = np.asarray(move(jnp.asarray(pi))), np.asarray(move(jnp.asarray(pi + change)))
        found = 0.5 * ((body_rows("x", at, s) @ (away - at)) ** 2).sum()
        inertias = [np.asarray(jaxdyn.spatial.inertia.pseudo_inertia(jnp.asarray(x))) for x in (at, away)]
        relative = np.linalg.solve(inertias[0], inertias[1] - inertias[0])
        expected = 0.5 * np.trace(relative @ relative) / (4 * s**2)
        assert found == pytest.approx(expected, rel=1e-9)
    assert (0.5 * (body_rows("x", pi, s) @ (1.01 * pi - pi)) ** 2).sum() == pytest.approx(0.5 * (0.01 / s) ** 2)
    with pytest.raises(IdentificationError, match="'x' has no mass in the model"):
        body_rows("x", np.zeros(10), s)


def cloud(points, masses):
    """Ten parameters of point masses."""
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    i = np.trace(second) * np.eye(3) - second
    return np.array([masses.sum(), *(masses @ points), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


def test_mirrored_bodies_are_those_of_mirrored_points():
    chain = textbook.biped(floating=True)
    pairs = mirrored_links(chain)
    assert pairs == tuple((f"left_{x}", f"right_{x}") for x in ("hip", "thigh", "shin", "ankle", "foot"))
    rng, q = np.random.default_rng(2), np.zeros(17)
    q[3] = 1.0
    poses = np.asarray(jaxdyn.forward_kinematics(chain, jnp.asarray(q)))
    for left, right in pairs:
        points, masses = rng.normal(size=(9, 3)), rng.uniform(0.1, 1, 9)
        a, b = (poses[chain.link_names.index(name)] for name in (left, right))
        image = (points @ a[:3, :3].T + a[:3, 3]) * [1, -1, 1]
        other = (image - b[:3, 3]) @ b[:3, :3]
        there = mirrored_parameters(chain, left, right)
        np.testing.assert_allclose(there @ cloud(points, masses), cloud(other, masses), atol=1e-12)
        np.testing.assert_allclose(mirrored_parameters(chain, right, left) @ there, np.eye(10), atol=1e-12)
    with pytest.raises(IdentificationError, match=r"do not mirror each other.*mirrored_links finds"):
        mirrored_parameters(chain, "left_hip", "right_foot")
    with pytest.raises(IdentificationError, match="no link 'tail'"):
        mirrored_parameters(chain, "left_hip", "tail")
    assert mirrored_links(random_chain(3)) == ()


def test_base_parameters_of_a_part(arm):
    """Exactly known columns are none; those known to a deviation are rows beside the regressor's."""
    chain, columns, w = arm
    rows, links = w.reshape(-1, w.shape[2]), chain.link_names
    exact = base_parameters(chain, columns, knowledge=Knowledge(links=links[2:]))
    free = np.r_[20 : rows.shape[1]]
    assert exact.size == np.linalg.matrix_rank(rows[:, free], tol=1e-9 * np.linalg.norm(rows))
    assert exact.known == columns.names(3)[:20] and not exact.matrix[:, :20].any()
    assert not set(exact.known) & {*exact.dropped, *exact.unidentifiable}
    assert exact.null_space.shape == (len(free) - exact.size, rows.shape[1]) and not exact.null_space[:, :20].any()
    loose = base_parameters(chain, columns, knowledge=Knowledge(links=links[2:], deviation=0.1))
    assert loose.size == exact.size + 20 and loose.known == ()
    assert np.abs(rows - rows[:, loose.kept] @ loose.matrix).max() < 1e-7
    drives = base_parameters(chain, columns, knowledge=Knowledge(joints=("joint3",)))
    assert {name[:-1] for name in drives.known} == {"Ia", "fv", "fc", "off"} and len(drives.known) == 8
    some = Knowledge(links=links[2:], deviation={links[0]: 0.1}).of(chain, columns)
    assert some.fixed.sum() == 10 and some.fixed[10:20].all() and some.rows.shape == (10, rows.shape[1] + 1)


def test_a_motor_belongs_to_the_joint_that_it_moves_alone():
    """Of the wrist's motors the third moves two joints, so it stays to be identified when one of these is known."""
    chain = textbook.coupled_wrist()
    columns = all_columns(chain)
    known = Knowledge(links=chain.link_names, joints=("joint5",)).of(chain, columns)
    fixed = {name for name, fixed in zip(columns.names(3), known.fixed, strict=True) if fixed}
    drives = {f"{name}{joint}" for name in ("Ia", "fv", "fc", "off") for joint in (1, 3)}
    assert fixed == drives | {"J1", "B1", "Fc1"}


def test_directions_that_are_known_count_whatever_their_units():
    """Rows of sizes fifteen decades apart, one of them a multiple of another, and one of zeros."""
    rows = np.array([[1e9, 0, 0, 0, 1], [2.0, 0, 0, 0, 1], [0, 0, 1e-6, 1e-6, 1], [0, 0, 0, 0, 0]])
    directions = Known(np.zeros(4, bool), np.zeros(4), rows).directions
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-14)
    onto = directions.T @ directions
    np.testing.assert_allclose(rows[:, :4] @ onto, rows[:, :4], rtol=1e-12, atol=1e-12)


def test_a_drive_is_known_to_its_standard_deviation(arm):
    chain, columns, _ = arm
    name, *others = chain.joint_names
    known = Knowledge(joints=tuple(others), deviation={name: 0.1}).of(chain, columns)
    own = prior_parameters(chain, columns)
    at = np.flatnonzero(columns.of_joint(chain, 0) & (own != 0))
    assert len(at) >= 3 and not known.fixed[at].any()
    rows = known.rows[known.rows[:, at].any(axis=1)]
    np.testing.assert_allclose(rows[:, at], np.diag(1 / (0.1 * np.abs(own[at]))), rtol=1e-14)
    np.testing.assert_allclose(rows[:, -1], np.sign(own[at]) / 0.1, rtol=1e-14)


def test_knowledge_that_makes_no_sense_is_refused(arm):
    chain, columns, _ = arm
    cases = [
        (Knowledge(links=("hand",)), "no link 'hand' to identify; the links are link1"),
        (Knowledge(joints=("wrist",)), "no joint 'wrist' to identify"),
        (Knowledge(links=(), joints=()), "nothing is left to identify"),
        (Knowledge(links=("link1",), deviation=-0.1), "is -0.1; it must be finite and not negative"),
        (
            Knowledge(links=("link1",), deviation={"link1": 0.1}),
            "'link1', which is identified or is not part of the robot",
        ),
        (Knowledge(mirrored=(("link1", "hand"),)), "no link 'hand'"),
    ]
    for knowledge, text in cases:
        with pytest.raises(IdentificationError, match=text):
            knowledge.of(chain, columns)


def test_least_squares_with_knowledge_is_that_of_all_rows_and_covers_the_truth(arm):
    """Against one dense least-squares problem; over 24 logs and as many wrong models, 2 sd hold the truth."""
    chain, columns, w = arm
    rng, noise, s = np.random.default_rng(3), np.array([0.3, 0.2, 0.1]), 0.1
    knowledge = Knowledge(links=("link3",), deviation=s)
    base = base_parameters(chain, columns, knowledge=knowledge)
    true, shares = prior_parameters(chain, columns), []
    spread = [np.linalg.inv(body_rows("x", true[10 * i : 10 * i + 10], s)) for i in range(2)]
    for turn in range(24):
        tau = w @ true + noise * rng.normal(size=w.shape[:2])
        wrong = np.array(chain.inertia)
        for i in range(2):
            wrong[i] += spread[i] @ rng.normal(size=10)
        known = knowledge.of(chain, columns)
        sides = known.rows[:, :-1] @ np.concatenate([wrong.reshape(-1), true[30:]])
        stated = np.column_stack([known.rows[:, :-1], sides])
        blocks = dense_blocks([np.concatenate([w, tau[:, :, None]], axis=2)])
        found = solve(blocks, base, known=dataclasses.replace(known, rows=stated))
        shares.append(np.mean(np.abs(found.values - base.matrix @ true) <= 2 * found.standard_deviations))
        if turn == 0:
            dense = (np.concatenate([w, tau[:, :, None]], axis=2) / found.noise[None, :, None]).reshape(
                -1, w.shape[2] + 1
            )
            dense = np.concatenate([dense, stated])
            expected = np.linalg.lstsq(dense[:, base.kept], dense[:, -1], rcond=None)[0]
            np.testing.assert_allclose(found.values, expected, atol=1e-2 * found.standard_deviations.min())
    assert 0.92 <= np.mean(shares) <= 0.99


def test_constraints_where_some_parameters_are_known(arm):
    chain, columns, _ = arm
    names, fixed = columns.names(3), np.arange(42) < 20
    values = np.where(fixed, prior_parameters(chain, columns), 0.0)
    least = linear_constraints(names, {"m1": 1.0, "m3": 1.0}, least=5.0)
    given = (known_parameters(names, {"m1": values[0]}) + least).given(fixed, values)
    assert given.equal.shape == (0, 42) and given.least[0].tolist() == np.isin(np.array(names), ["m3"]).tolist()
    assert given.least_of == pytest.approx([5.0 - values[0]])
    with pytest.raises(IdentificationError, match="involves only known parameters"):
        known_parameters(names, {"m1": values[0] + 0.1}).given(fixed, values)


@pytest.fixture(scope="module")
def geared():
    chain = jaxdyn.robots.ur5e()
    drives = {"armature": [1.0, 1.0, 0.6, 0.2, 0.2, 0.2], "viscous": [5.0, 5.0, 4.0, 1.0, 1.0, 1.0]}
    drives |= {"coulomb": [4.0, 4.0, 3.0, 1.0, 1.0, 1.0]}
    leaves = {k if k == "armature" else f"friction.{k}": jnp.asarray(v) for k, v in drives.items()}
    return jaxdyn.model.with_leaves(chain, leaves)


def run_of(chain, seed, seconds=10.0):
    return synthetic_log(chain, random_excitation(chain, seconds, 5, seed), None, 100.0, 1e-6, 0.3, seed, f"run {seed}")


def with_tool(chain, pi):
    return jaxdyn.with_inertial_parameters(chain, chain.inertia.at[-1].add(jnp.asarray(pi)))


TOOL = np.array([1.6, 0.03, -0.05, 0.2, 0.04, 0.001, 0.038, -0.003, 0.004, 0.008])


@pytest.mark.nightly
def test_a_tool_alone_by_two_ways(geared, tmp_path):
    """The last link with the rest of the arm known, against `identify_payload`, which knows the arm too."""
    log, last = run_of(with_tool(geared, TOOL), 4), geared.link_names[-1:]
    terms = Terms(("viscous", "coulomb", "offset"), choose=())
    width = np.asarray(geared.friction.coulomb_velocity)
    result = jaxdyn.identify(geared, log, terms=terms, knowledge=Knowledge(links=last), consistent=None)
    payload = identify_payload(geared, log, frame=last[0], friction=FrictionModel(chain_terms(width)))
    found = result.parameters[50:60] - np.asarray(geared.inertia[-1])
    assert result.base.size == 10 + 18 and np.array_equal(result.chain.inertia[:5], geared.inertia[:5])
    assert (np.abs(found - payload.parameters) <= 0.3 * payload.standard_deviations).all()
    assert abs(found[0] / TOOL[0] - 1) < 0.005 and np.abs(found - TOOL)[1:].max() < 0.005
    loose = jaxdyn.identify(geared, log, terms=terms, knowledge=Knowledge(links=last, deviation=0.05))
    lead = [name.split()[0] for name in loose.base.names]
    sd = loose.estimate.standard_deviations[lead.index("m6")]
    assert (
        sd > 3 * result.estimate.standard_deviations[result.base.names.index("m6")]
    )  # the arm's own uncertainty is in it
    assert abs(loose.estimate.values[lead.index("m6")] - 1.6 - float(geared.inertia[-1, 0])) < 2 * sd
    write_report(result, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Taken from the given model" in text and f"link {geared.link_names[0]}" in text


@pytest.mark.ci
def test_two_arms_share_their_links(geared):
    """One regression of both against its dense form; friction is each arm's own."""
    other = jaxdyn.model.with_leaves(geared, {"friction.viscous": 1.5 * geared.friction.viscous})
    logs = {"left": run_of(geared, 5), "right": run_of(other, 6)}
    wrong = jaxdyn.with_inertial_parameters(geared, geared.inertia * np.linspace(0.7, 1.4, 6)[:, None])
    found = identify_together(wrong, logs)
    left, right = found["left"], found["right"]
    assert np.array_equal(left.chain.inertia, right.chain.inertia)
    assert np.array_equal(left.chain.armature, right.chain.armature)
    assert np.abs(left.chain.friction.viscous / geared.friction.viscous - 1).max() < 0.1
    assert np.abs(right.chain.friction.viscous / other.friction.viscous - 1).max() < 0.1
    alone = jaxdyn.identify(wrong, logs["left"], terms=PLAIN)
    rigid = [k for k, name in enumerate(left.base.names) if name[0] in "Im"]
    assert np.median((left.estimate.standard_deviations / alone.estimate.standard_deviations)[rigid]) < 0.85
    assert left.split_half is not None and left.split_half.share > 0.85
    # the dense regression, rows of each joint divided by its noise
    rows = []
    for name, run in (("left", left), ("right", right)):
        s, at = run.fitted[0].samples, np.arange(84)
        w = np.concatenate([rows for _, rows in row_chunks(run.columns, wrong, s)])
        own = np.array([k >= 60 and k % 4 != 0 for k in range(84)])
        wide = np.zeros((*w.shape[:2], 84 + 18 + 1))
        wide[:, :, at[~own]] = w[:, :, ~own]
        wide[:, :, at[own] if name == "left" else 84 + np.arange(18)] = w[:, :, own]
        wide[:, :, -1] = s.tau
        rows.append((wide / left.estimate.noise[None, :, None]).reshape(-1, wide.shape[2]))
    rows = np.concatenate(rows)
    dense = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=1e-10)[0]
    np.testing.assert_allclose(
        left.base.matrix @ dense[:84], left.estimate.values, atol=0.02 * left.estimate.standard_deviations.min()
    )


@pytest.mark.nightly
def test_friction_with_memory_is_each_robots_own():
    """Joints that slip over other distances at another friction, and links that both arms share."""
    law = ("viscous", "coulomb", "stribeck", "offset")
    arm = jaxdyn.model.with_leaves(known_arm(), {f"friction.{x}": jnp.zeros(3) for x in law})
    given = {"left": (0.02, np.array([[2.0, 0.1, 6.0], [2.0, -0.1, 5.0], [1.0, 0.2, 3.0]]))}
    given["right"] = 0.05, given["left"][1] * [1.5, -1.0, 0.6]
    terms, logs, t = lambda width: (Viscous(), Offset(), MaxwellSlip(width=width)), {}, np.arange(3000) / 200
    for seed, (name, (width, coefficients)) in enumerate(given.items()):
        q, qd, qdd = (np.asarray(x) for x in random_excitation(arm, 15.0, 5, seed)(jnp.asarray(t)))
        samples = Samples(t, q, qd, qdd, np.zeros_like(q), 200.0, ((0, len(t)),), 100.0, 100.0)
        friction = np.einsum("tjk,jk->tj", FrictionModel(terms(width)).blocks(samples), coefficients)
        tau = np.asarray(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(arm, *x))(q, qd, qdd)) + friction
        noise = np.random.default_rng(seed).normal(size=(2, *q.shape))
        logs[name] = jaxdyn.Log(t, q + 1e-6 * noise[0], None, tau + 0.02 * noise[1], name)
    wanted = Terms(("armature", "viscous", "offset"), further=(MaxwellSlip(width=0.03),), choose=())
    found = identify_together(arm, logs, terms=wanted)
    for name, (width, coefficients) in given.items():
        result = found[name]
        np.testing.assert_allclose(result.friction.nonlinear, width, rtol=0.01)
        expected = np.concatenate([np.ravel(arm.inertia), arm.armature, coefficients.ravel()])
        off = (result.estimate.values - result.base.matrix @ expected) / result.estimate.standard_deviations
        assert result.model.needs_full_rate and np.mean(np.abs(off) < 2) >= 0.9 and np.abs(off).max() < 4
        assert result.validation[0].fit.rms.max() < 0.01
    assert np.array_equal(found["left"].chain.inertia, found["right"].chain.inertia)


def test_robots_that_cannot_be_fitted_together_are_refused(geared):
    log = run_of(geared, 5, 1.0)
    cases = [
        ({"left": log}, {}, "at least two robots"),
        ({"left": [], "right": log, "third": log}, {}, "robot 'left' has no runs to fit"),
        ({"left": log, "right": log}, {"terms": Terms()}, "no terms can be selected"),
        (
            {"left": log, "right": log},
            {"terms": Terms(("armature",), choose=()), "own": ("viscous",)},
            "own contains 'viscous', which is not among",
        ),
        ({"left": log, "right": log}, {"validate": {"third": log}}, "'third' has validation runs, but no runs to fit"),
        (
            {"left": log, "right": dataclasses.replace(log, q=log.q[:, :5], tau=log.tau[:, :5])},
            {},
            "right, .* 5 joints",
        ),
    ]
    for logs, options, text in cases:
        with pytest.raises(IdentificationError, match=text):
            identify_together(geared, logs, **options)


@pytest.mark.nightly
def test_limbs_that_mirror_each_other():
    """With the assumption, on held feet, more is found than without it, and the limbs differ less."""
    from jaxdyn.identification import identify_mechanism
    from test_identify_mechanism import LINKS, agreeing, mass, standing

    chain, prior, log, _ = standing()
    result = identify_mechanism(prior, log, columns=LINKS)
    knowledge = Knowledge(mirrored=mirrored_links(chain), mirrored_deviation=0.02)
    assumed = identify_mechanism(prior, log, columns=LINKS, knowledge=knowledge)
    assert assumed.base.size > result.base.size and agreeing(assumed, chain) >= 0.85 and not assumed.inconsistent_links
    assert abs(mass(assumed.chain) / mass(chain) - 1) < 1e-3
    there = [mirrored_parameters(chain, *pair) for pair in mirrored_links(chain)]
    apart = []
    for found in (result, assumed):
        left, right = (
            np.array([found.chain.inertia[found.chain.link_names.index(pair[side])] for pair in mirrored_links(chain)])
            for side in (0, 1)
        )
        apart.append(np.linalg.norm(right - np.einsum("kij,kj->ki", there, left)) / np.linalg.norm(right))
    assert apart[1] < 0.5 * apart[0], apart
