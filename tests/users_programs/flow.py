"""Dynamics in loops and branches, and under JAX's transformations and their compositions."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.ode import odeint
from jax.experimental.xla_metadata import set_xla_metadata

import jaxdyn

from .states import ARM, FD, ID, MIMIC, ROWS, STATE, STILL, Programs, checked, wanted, wanted_rows


def control_flow() -> Programs:
    q, v, a = STATE
    arm = functools.partial(ID, ARM)

    def step(state, tau):
        q, v = state
        v = v + 0.01 * FD(ARM, q, v, tau)
        return (q + 0.01 * v, v), ID(MIMIC, q, v, STILL)

    def by_hand(count):
        state, taus = (q, v), []
        for _ in range(count):
            new = 0.01 * wanted(FD, ARM, (*state, a)) + state[1]
            taus.append(wanted(ID, MIMIC, (state[0], new, STILL)))
            state = state[0] + 0.01 * new, new
        return state, jnp.stack(taus) if taus else jnp.zeros((0, 2))

    def falls(state):
        return state[1], wanted(FD, ARM, (*state, STILL))

    def by_runge_kutta(steps=20, h=0.01 / 20):
        """The classical method of order four over 0.01 s, without torques."""
        moved = lambda y, s, d: tuple(x + s * k for x, k in zip(y, d, strict=True))
        y = q, v
        for _ in range(steps):
            k1 = falls(y)
            k2 = falls(moved(y, h / 2, k1))
            k3 = falls(moved(y, h / 2, k2))
            k4 = falls(moved(y, h, k3))
            y = tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(y, k1, k2, k3, k4, strict=True))
        return tuple(jnp.stack([x, z]) for x, z in zip((q, v), y, strict=True))

    def until(q):
        return lax.while_loop(lambda q: jnp.sum(jaxdyn.gravity_force(ARM, q) ** 2) > 1e30, lambda q: arm(q, q, q), q)

    branches = [arm, functools.partial(FD, ARM), lambda q, v, a: q]
    chosen = jax.jit(lambda k, *x: lax.switch(k, branches, *x))
    either = lambda q, v, a: lax.cond(q[0] > 0, arm, functools.partial(FD, ARM), q, v, a)
    both = lambda q, v, a: jnp.where(q[0] > 0, arm(q, v, a), FD(ARM, q, v, a))
    mixed = jnp.where(ROWS[0][:, :1] > 0, wanted_rows(), wanted_rows(FD))
    one = either(*map(jnp.asarray, STATE))
    return {
        "scan": lambda: (jax.jit(lambda q, v: lax.scan(step, (q, v), jnp.stack([a] * 3)))(q, v), by_hand(3)),
        "scan of nothing": lambda: (jax.jit(lambda q, v: lax.scan(step, (q, v), jnp.zeros((0, 2))))(q, v), by_hand(0)),
        "scan of once": lambda: (jax.jit(lambda q, v: lax.scan(step, (q, v), a[None]))(q, v), by_hand(1)),
        "scan unrolled": lambda: (
            jax.jit(lambda q, v: lax.scan(step, (q, v), jnp.stack([a] * 3), unroll=3))(q, v),
            by_hand(3),
        ),
        "while": lambda: (jax.jit(until)(q), q),
        "loop with constants": lambda: (
            jax.jit(lambda q: lax.fori_loop(0, 2, lambda _, x: x + 1e-3 * ID(MIMIC, q, STILL, STILL), q))(q),
            q + 2e-3 * wanted(ID, MIMIC, (q, STILL, STILL)),
        ),
        "cond": lambda: (jax.jit(either)(*STATE), one),
        "cond of a batch": lambda: (jax.jit(jax.vmap(either))(*ROWS), mixed),
        "switch": lambda: (tuple(chosen(k, *STATE) for k in range(3)), (wanted(), wanted(FD), q)),
        "where": lambda: (jax.jit(both)(*STATE), one),
        "where of a batch": lambda: (jax.jit(jax.vmap(both))(*ROWS), mixed),
        "map": lambda: (jax.jit(lambda *x: lax.map(lambda x: arm(*x), x))(*ROWS), wanted_rows()),
        "map by twos": lambda: (jax.jit(lambda *x: lax.map(lambda x: arm(*x), x, batch_size=2))(*ROWS), wanted_rows()),
        "associative scan": lambda: (
            jax.jit(lambda q: lax.associative_scan(jax.vmap(lambda x, y: x + y + 0 * arm(x, x, y)), q))(ROWS[0]),
            jnp.cumsum(ROWS[0], 0),
        ),
        "nested jit": lambda: (jax.jit(lambda *x: 2 * jax.jit(jax.jit(arm))(*x))(*STATE), 2 * wanted()),
        "jit inlined": lambda: (jax.jit(lambda *x: jax.jit(arm, inline=True)(*x))(*STATE), wanted()),
        "barriers": lambda: (
            jax.jit(lambda *x: lax.optimization_barrier(arm(*lax.optimization_barrier(x))))(*STATE),
            wanted(),
        ),
        "marks of the user's": lambda: (jax.jit(set_xla_metadata(a="b")(lambda *x: arm(*x)))(*STATE), wanted()),
        "callbacks beside": lambda: (jax.jit(calls_back)(*STATE), 2 * wanted()),
        "ode": lambda: (
            jax.jit(
                lambda q, v: odeint(
                    lambda y, t: (y[1], FD(ARM, *y, STILL)), (q, v), jnp.array([0.0, 0.01]), rtol=1e-10, atol=1e-10
                )
            )(q, v),
            by_runge_kutta(),
            1e-8,
        ),
        "conjugate gradients": lambda: (
            jax.jit(lambda q, a: jax.scipy.sparse.linalg.cg(lambda x: arm(q, STILL, x) - arm(q, STILL, STILL), a)[0])(
                q, a
            ),
            jnp.linalg.solve(jaxdyn.mass_matrix(ARM, q), a),
        ),
    }


def calls_back(*x):
    jax.debug.callback(lambda y: None, x[0])
    tau = ID(ARM, *x)
    return tau + jax.pure_callback(lambda y: np.asarray(y), jax.typeof(tau), tau)


def transformations() -> Programs:
    q, v, a = STATE
    tau = functools.partial(ID, MIMIC)
    cost = lambda q: jnp.sum(tau(q, v, a) ** 2)
    slope = jax.jit(jax.jacfwd(tau, (0, 1, 2)))
    along = (v, a, q)

    def pushed():
        return sum(j @ t for j, t in zip(slope(*STATE), along, strict=True))

    def differences(function, x, step=1e-5):
        return jnp.stack([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(2)], -1)

    gradient = jax.jit(jax.grad(cost))
    point = tuple(map(jnp.asarray, STATE))
    far = functools.partial(jnp.float64, 1e-6)  # of central differences
    kept = jax.checkpoint(tau, policy=jax.checkpoint_policies.dots_saveable)
    rows = wanted_rows(ID, MIMIC)
    jacobians = lambda: jnp.stack([slope(*x)[0] for x in zip(*ROWS, strict=True)])
    weighted = lambda s, x: ID(eqx.tree_at(lambda c: c.inertia, ARM, s * ARM.inertia), *x)
    return {
        "checkpoint": lambda: (jax.jit(jax.grad(lambda q: jnp.sum(jax.checkpoint(tau)(q, v, a) ** 2)))(q), gradient(q)),
        "checkpoint that saves": lambda: (jax.jit(jax.grad(lambda q: jnp.sum(kept(q, v, a) ** 2)))(q), gradient(q)),
        "checkpoint in scan": lambda: (
            jax.jit(
                jax.grad(lambda q: lax.scan(jax.checkpoint(lambda c, _: (c + cost(q), None)), 0.0, None, length=2)[0])
            )(q),
            2 * gradient(q),
        ),
        "linearize": lambda: (jax.jit(lambda *x: jax.linearize(tau, *x)[1](*along))(*STATE), pushed()),
        "linearize without jit": lambda: (jax.linearize(tau, *point)[1](*map(jnp.asarray, along)), pushed()),
        "jvp": lambda: (jax.jit(lambda *x: jax.jvp(tau, x, along)[1])(*STATE), pushed()),
        "jvp along constants": lambda: (
            jax.jit(lambda q: jax.jvp(lambda q: tau(q, q, STILL), (q,), (STILL,))[1])(q),
            STILL,
        ),
        "vjp": lambda: (
            jax.jit(lambda *x: jax.vjp(tau, *x)[1](a))(*STATE),
            tuple(a @ j for j in slope(*STATE)),
        ),
        "hessian": lambda: (jax.jit(jax.hessian(cost))(q), differences(gradient, q), far()),
        "hessian of forward dynamics": lambda: (
            jax.jit(jax.hessian(lambda v: jnp.sum(FD(ARM, q, v, a))))(v),
            differences(jax.jit(jax.grad(lambda v: jnp.sum(FD(ARM, q, v, a)))), v),
            far(),
        ),
        "reverse over reverse": lambda: (
            jax.jit(jax.jacrev(jax.grad(cost)))(q),
            differences(gradient, q),
            far(),
        ),
        "vmap of vmap": lambda: (
            jax.jit(jax.vmap(jax.vmap(tau, (None, 0, 0)), (0, None, None)))(*ROWS)[jnp.arange(5), jnp.arange(5)],
            rows,
        ),
        "vmap of jvp": lambda: (
            jax.jit(jax.vmap(lambda *x: jax.jvp(tau, x, (x[1], x[2], x[0]))[1]))(*ROWS)[1],
            sum(j @ x[1] for j, x in zip(slope(*(x[1] for x in ROWS)), (ROWS[1], ROWS[2], ROWS[0]), strict=True)),
        ),
        "vmap of jvp's directions": lambda: (
            jax.jit(jax.vmap(lambda t: jax.jvp(lambda q: tau(q, v, a), (q,), (t,))[1]))(jnp.eye(2)).T,
            slope(*STATE)[0],
        ),
        "vmap of jacrev": lambda: (jax.jit(jax.vmap(jax.jacrev(tau)))(*ROWS), jacobians()),
        "jacfwd of vmap": lambda: (
            jnp.einsum("iaib->iab", jax.jit(jax.jacfwd(jax.vmap(tau)))(*ROWS)),
            jacobians(),
        ),
        "vmap with a name": lambda: (
            jax.jit(jax.vmap(lambda *x: lax.psum(tau(*x), "rows"), axis_name="rows"))(*ROWS)[0],
            rows.sum(0),
        ),
        "vmap along the last axis": lambda: (jax.jit(jax.vmap(tau, -1, -1))(*(x.T for x in ROWS)).T, rows),
        "vectorize": lambda: (jax.jit(jnp.vectorize(tau, signature="(n),(n),(n)->(n)"))(*ROWS), rows),
        "derivative to the robot": lambda: (
            jax.jit(jax.jacfwd(weighted))(1.0, STATE),
            wanted(robot=eqx.tree_at(lambda c: c.armature, ARM, 0 * ARM.armature)),
        ),
        "vmap of robots": lambda: (
            jax.jit(jax.vmap(weighted, (0, None)))(jnp.ones(3), STATE),
            jnp.stack([wanted()] * 3),
        ),
        "vmap of robots and states": lambda: (jax.jit(jax.vmap(weighted))(jnp.ones(5), ROWS), wanted_rows()),
    }


def programs():
    return checked(control_flow(), transformations())
