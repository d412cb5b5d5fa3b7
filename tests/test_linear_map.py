"""Linear functions with a transpose of their own (`linear_map`): all transformations, and which form each uses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from jaxdyn.dynamics.engine.kernel import linear_map

WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
X, DX = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3)))


@pytest.fixture
def used():
    """Names of the forms that were traced."""
    return []


@pytest.fixture
def product(used):
    """x -> sin(c) W x for a constant c, in two results."""

    def forward(c, x):
        used.append("forward")
        y = jnp.sin(c) * (WEIGHTS @ x)
        return y[:2], y[2:]

    def backward(c, y):
        used.append("backward")
        return jnp.sin(c) * (jnp.concatenate(y) @ WEIGHTS)

    return lambda c, x: jnp.concatenate(linear_map(forward, backward, c, x))


def plain(c, x):
    return jnp.sin(c) * (WEIGHTS @ x)


def energy(function):
    return lambda c, x: jnp.sum(jnp.sin(function(c, x)) ** 2)


@pytest.mark.parametrize("around", [lambda f: f, jax.jit], ids=["", "jit"])
def test_values_and_derivatives_are_those_of_the_plain_function(around, product):
    c, first = jnp.array(0.7), around(product)
    assert_allclose(first(c, X), plain(c, X), rtol=1e-14)
    tangents = jax.jvp(first, (c, X), (jnp.array(0.3), DX))[1], jax.jvp(plain, (c, X), (jnp.array(0.3), DX))[1]
    assert_allclose(*tangents, rtol=1e-13)
    for order in (jax.grad, lambda f, k: jax.jacrev(jax.grad(f, k), k), lambda f, k: jax.jacfwd(jax.grad(f, k), k)):
        for k in (0, 1):
            assert_allclose(around(order(energy(product), k))(c, X), order(energy(plain), k)(c, X), rtol=1e-12)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (0, 1)])
def test_batches_of_constants_and_of_arguments(axes, product):
    cs, xs = jnp.linspace(0.2, 1.1, 3), jnp.stack([X, DX, X - DX], axis=axes[1] or 0)
    given = cs if axes[0] == 0 else cs[0], xs if axes[1] is not None else X
    for function, truth in ((product, plain), (jax.grad(energy(product), 1), jax.grad(energy(plain), 1))):
        assert_allclose(jax.vmap(function, axes)(*given), jax.vmap(truth, axes)(*given), rtol=1e-12)
    total = lambda f: lambda x: jnp.sum(jax.vmap(energy(f), axes)(given[0], x))
    assert_allclose(jax.grad(total(product))(given[1]), jax.grad(total(plain))(given[1]), rtol=1e-12)


def test_reverse_mode_uses_the_given_transpose_but_jacobians_share_the_function(product, used):
    jax.grad(energy(product), 1)(jnp.array(0.7), X)
    assert "backward" in used
    jacobians = [transform(product, 1)(jnp.array(0.7), X) for transform in (jax.jacfwd, jax.jacrev)]
    assert_allclose(jacobians, [np.sin(0.7) * WEIGHTS] * 2, rtol=1e-14)
    # rows share what depends on the constants: the sine is not evaluated for each
    program = str(jax.make_jaxpr(jax.jacrev(product, 1))(jnp.array(0.7), X))
    assert "sin" in program and "f64[4] = sin" not in program
