"""Programs of many knots against their functions taken as a whole: values, derivatives, linear systems, motions."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
from numpy.testing import assert_allclose

from helpers import once
from jaxdyn.trajectory.collocation import Inner, Part, StagedProgram, uncoupled
from jaxdyn.trajectory.primal_dual import DenseProgram, convexifier
from jaxdyn.trajectory.splines import SplineProgram, spline_basis

RNG = np.random.default_rng(0)


def rows(*shape):
    return jnp.asarray(RNG.normal(size=shape))


def checked(program, whole, x, free):
    """Values and derivatives of a program at x, against x -> (f, c, g) written out; fixed unknowns have no derivatives."""
    _, c, g = jax.eval_shape(whole, x)
    y, w, dx, r1, r2 = (rows(*shape.shape) for shape in (c, g, x, x, c))
    weights, diagonal = jnp.asarray(RNG.uniform(0.5, 1.5, g.shape)), jnp.asarray(RNG.uniform(30.0, 40.0, x.shape))
    share, delta = jnp.asarray(0.7), jnp.asarray(1e-3)

    @once
    def both(x):
        at = program.linearise(x, y, w, free)
        factors = program.factor(at, share, diagonal, weights, delta)
        lagrangian = lambda x: (lambda f, c, g: f + y @ c + w @ g)(*whole(x))
        found = {
            "evaluate": program.evaluate(x),
            "values": at.values,
            "gradient": at.gradient,
            "times": program.times(at, dx * free),
            "transposed": program.transposed(at, y, w),
            "curvature": at.curvature,
            "solve": program.solve(factors, r1, r2),
        }
        return found, whole(x), jax.jacfwd(whole)(x), jax.hessian(lagrangian)(x)

    found, values, (gradient, a, b), hessian = jax.tree.map(np.asarray, both(x))
    for name in ("evaluate", "values"):
        jax.tree.map(lambda u, v: assert_allclose(u, v, rtol=1e-12, atol=1e-12), found[name], values)
    free, d = np.asarray(free), np.asarray(dx * free)
    gradient, a, b, masked = gradient * free, a * free, b * free, hessian * np.outer(free, free)
    close = lambda u, v: assert_allclose(u, v, rtol=1e-9, atol=1e-9)
    close(found["gradient"], gradient)
    for u, v in zip(found["times"], (masked @ d, a @ d, b @ d), strict=True):
        close(u, v)
    close(found["transposed"], a.T @ y + b.T @ w)
    assert np.abs(masked).max() * (1 - 1e-9) <= found["curvature"] <= np.abs(hessian).max() * (1 + 1e-9)
    top = share * masked + np.diag(diagonal) + b.T @ np.diag(weights) @ b
    matrix = np.block([[top, a.T], [a, -delta * np.eye(len(a))]])
    close(np.concatenate(found["solve"]), np.linalg.solve(matrix, np.concatenate([r1, r2])))


def test_a_dense_program_has_its_derivatives():
    p, q = rows(4, 4), rows(3, 4)
    objective = lambda x: jnp.sin(x) @ p @ x
    equality, inequality = lambda x: jnp.cos(q @ x), lambda x: jnp.stack([x @ x - 1, x[0] * x[3]])
    whole = lambda x: (objective(x), equality(x), inequality(x))
    checked(DenseProgram(objective, equality, inequality), whole, rows(4), jnp.array([1.0, 0.0, 1.0, 1.0]))


def test_a_staged_program_has_the_derivatives_of_the_whole():
    """Three stages of three unknowns; two numbers in between, two couplings; equalities and inequalities of all kinds."""
    a, b, data = rows(2, 3), rows(2, 2, 5), rows(3, 2)
    inner = lambda z: jnp.sin(a @ z) * z[0]

    def stage(data, z, u):
        e = jnp.concatenate([z, u])
        cost = data[0] * jnp.cos(e @ e) + z[1] ** 3
        rows = data[1:] * z[:1] * u[1:], jnp.stack([u @ z[:2], z[2]])
        return Part(cost, *rows, left=jnp.sin(b[0] @ e[:5]), right=(b[1] @ e) ** 2)

    last = lambda z, u: uncoupled(z @ z * u[0], jnp.stack([z[0] * u[1], u @ u]), jnp.stack([z[1] * z[2]]))

    def whole(x):
        z = [x[3 * k : 3 * k + 3] for k in range(3)]
        at = [stage(data[k], z[k], inner(z[k])) for k in range(3)]
        end = last(z[2], inner(z[2]))
        couplings = [at[0].left + at[1].right, at[1].left + at[2].right]
        return (
            at[0].cost + at[1].cost + at[2].cost + end.cost,
            jnp.concatenate([*couplings, *(s.equality for s in at), end.equality]),
            jnp.concatenate([*(s.inequality for s in at), end.inequality]),
        )

    program = StagedProgram(data, jnp.zeros((0, 3)), Inner(inner, jax.jacfwd(inner), True), stage, last, (2, 1, 2))
    checked(program, whole, rows(9), jnp.ones(9).at[jnp.array([1, 5])].set(0.0))


@pytest.mark.ci
def test_a_program_of_splines_has_the_derivatives_of_the_whole():
    """Two joints, five control points, four knots that see positions, two derivatives and the duration; two torques."""
    basis = spline_basis(2, 3, np.linspace(0, 1, 4))[:3] * np.array([1, 0.1, 0.01])[:, None, None]
    data, a = rows(4, 2), rows(2, 7)
    inner = lambda y: jnp.sin(0.3 * a @ y) * y[-1]

    def knot(data, y, u):
        e = jnp.concatenate([y, u])
        rows = data[1:] * y[:1] * u[1:], jnp.stack([u @ y[:2], y[5] * y[6]])
        return uncoupled(data[0] * jnp.cos(e[::2] @ e[::2]), *rows)

    start = rows(2, 7)
    last = lambda y, u: uncoupled(y[1] * u[0], jnp.stack([u[1] * y[6]]), jnp.stack([y[0] * y[1], u @ u]))

    def whole(x):
        parts = jnp.einsum("dsk,kj->sdj", basis, x[:-1].reshape(5, 2))
        y = [jnp.append(parts[k].reshape(-1), x[-1]) for k in range(4)]
        at = [knot(data[k], y[k], inner(y[k])) for k in range(4)]
        end = last(y[3], inner(y[3]))
        equal = jnp.concatenate([*(part.equality for part in at), start @ y[0], end.equality])
        below = jnp.concatenate([part.inequality for part in (*at, end)])
        return sum(part.cost for part in (*at, end)), equal, below

    derived = Inner(inner, jax.jacfwd(inner), True)
    program = SplineProgram(data, start, derived, knot, last, (0, 1, 2), jnp.asarray(basis))
    x = rows(11).at[-1].set(0.8)
    checked(program, whole, x, jnp.ones(11).at[jnp.array([0, 6])].set(0.0))


def test_the_weight_of_constraints_in_a_pivot_is_bounded():
    """Ten thousand times the curvature, in units of the largest entry of the Jacobian; a hundredth of 1/delta at most."""
    weight = lambda *x: float(convexifier(*map(jnp.asarray, x)))
    assert weight(3.0, 20.0, 1e-6) == pytest.approx(3e4 / 400, rel=1e-12)
    assert weight(1e-9, 0.5, 1e-6) == pytest.approx(4.0, rel=1e-12)
    assert weight(3.0, 2.0, 1e-2) == weight(3.0, 0.0, 1e-2) == pytest.approx(1.0, rel=1e-12)


def test_splines_and_their_derivatives():
    """On one interval Bernstein's polynomials; else the elements that scipy gives, with knots repeated at the ends."""
    times = np.linspace(0, 1, 7)
    for i, row in enumerate(np.moveaxis(spline_basis(1, 4, times), 2, 0)):
        binomial = np.polynomial.Polynomial([0, 1]) ** i * np.polynomial.Polynomial([1, -1]) ** (4 - i) * comb(4, i)
        for order in range(4):
            assert_allclose(row[order], (binomial.deriv(order) if order else binomial)(times), atol=1e-11)
    knots = [0, 0, 0, 0, 1 / 3, 2 / 3, 1, 1, 1, 1]
    basis = spline_basis(3, 3, times)
    assert basis.shape == (4, 7, 6)
    for i in range(6):
        element = scipy.interpolate.BSpline.basis_element(knots[i : i + 5])
        inside = np.where((times >= knots[i]) & (times <= knots[i + 4]), element(times), 0)
        assert_allclose(basis[0, :-1, i], inside[:-1], atol=1e-12)  # it is taken from the right
