"""Arguments and results as XLA or JAX may treat them otherwise: constants, the same one thrice, unused, donated, of any type.

With robots of few joints, so that a program compiles in a second.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import random_chain

from .states import ARM, FD, ID, MIMIC, OTHER, ROWS, STATE, STILL, Programs, checked, wanted, wanted_rows

LINK = random_chain(1, joints="revolute")


def constants() -> Programs:
    """Arguments that XLA knows, and the same one for several."""
    found, (q, v, a) = {}, STATE
    for name, robot in {"arm": ARM, "mimic": MIMIC}.items():
        for of, function in {"inverse": ID, "forward": FD}.items():
            given = functools.partial(wanted, function, robot)
            f = functools.partial(function, robot)
            found |= {
                f"{of} of {name}, q known": lambda f=f, w=given: (jax.jit(lambda v, a: f(q, v, a))(v, a), w()),
                f"{of} of {name}, at rest": lambda f=f, w=given: (
                    jax.jit(lambda q: f(q, STILL, STILL))(q),
                    w(state=(q, STILL, STILL)),
                ),
                f"{of} of {name}, all known": lambda f=f, w=given: (jax.jit(lambda: f(q, v, a))(), w()),
                f"{of} of {name}, all zero": lambda f=f, w=given: (
                    jax.jit(lambda: f(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)))(),
                    w(state=(STILL,) * 3),
                ),
                f"{of} of {name}, thrice the same": lambda f=f, w=given: (
                    jax.jit(lambda q: f(q, q, q))(q),
                    w(state=(q, q, q)),
                ),
            }
    link, still = functools.partial(ID, LINK), np.zeros(1)
    several = {
        "one link at rest": lambda: (
            jax.jit(lambda q: link(q, still, still))(q[:1]),
            wanted(ID, LINK, (q[:1], still, still)),
        ),
        "one link, all known": lambda: (
            jax.jit(lambda: FD(LINK, q[:1], v[:1], a[:1]))(),
            wanted(FD, LINK, (q[:1], v[:1], a[:1])),
        ),
        "a batch known": lambda: (jax.jit(lambda: jax.vmap(functools.partial(ID, ARM))(*ROWS))(), wanted_rows()),
        "a batch of zeros": lambda: (
            jax.jit(lambda q: jax.vmap(functools.partial(ID, MIMIC))(q, jnp.zeros((5, 2)), jnp.zeros((5, 2))))(ROWS[0]),
            jnp.stack([wanted(ID, MIMIC, (q, STILL, STILL)) for q in ROWS[0]]),
        ),
        "a batch, one argument for all": lambda: (
            jax.jit(jax.vmap(functools.partial(ID, MIMIC), (0, None, None)))(ROWS[0], STILL, STILL),
            jnp.stack([wanted(ID, MIMIC, (q, STILL, STILL)) for q in ROWS[0]]),
        ),
        "a robot's leaves known to be zero": lambda: (
            jax.jit(lambda q: ID(eqx.tree_at(lambda c: c.gravity, ARM, jnp.zeros(3)), q, STILL, STILL))(q),
            STILL,
        ),
        "a robot of arguments": lambda: (jax.jit(ID)(ARM, *STATE), wanted()),
        "a robot of arguments, filtered": lambda: (eqx.filter_jit(FD)(MIMIC, *STATE), wanted(FD, MIMIC)),
        "a constant after optimisation": lambda: (
            jax.jit(lambda q, v: ID(ARM, q, v - v, jnp.where(v > 1e9, 0.0, 0.0)))(q, v),
            wanted(state=(q, STILL, STILL)),
        ),
        "one of iota": lambda: (
            jax.jit(lambda q: ID(ARM, q, jnp.arange(2.0), jnp.full(2, 3.0)))(q),
            wanted(state=(q, np.arange(2.0), np.full(2, 3.0))),
        ),
    }
    return found | several


def results() -> Programs:
    """Results that nobody reads, calls that are repeated, and buffers that may be written over."""
    q, v, a = STATE
    first = lambda *x: jaxdyn.inverse_dynamics_derivatives(MIMIC, *x)

    def repeated(*x):
        return ID(ARM, *x), ID(ARM, *x), ID(OTHER, *x), FD(ARM, *x), jaxdyn.gravity_force(ARM, x[0])

    def donated(function, arguments):
        return jax.jit(functools.partial(function, ARM), donate_argnums=(0, 1, 2))(*map(jnp.array, arguments))

    return {
        "nothing read": lambda: (jax.jit(lambda q, v, a: (ID(ARM, q, v, a), q)[1])(q, v, a), q),
        "one of three results": lambda: (jax.jit(lambda *x: first(*x)[1])(*STATE), jax.jit(first)(*STATE)[1]),
        "an entry of a result": lambda: (jax.jit(lambda *x: ID(MIMIC, *x)[1])(*STATE), wanted(ID, MIMIC)[1]),
        "times zero": lambda: (jax.jit(lambda *x: 0 * ID(MIMIC, *x))(*STATE), STILL),
        "repeated": lambda: (
            jax.jit(repeated)(*STATE)[:4],
            (wanted(), wanted(), wanted(ID, OTHER), wanted(FD)),
        ),
        "donated": lambda: (donated(ID, STATE), wanted()),
        "donated rows": lambda: (donated(jax.vmap(FD, (None, 0, 0, 0)), ROWS), wanted_rows(FD)),
        "gravity and bias": lambda: (
            jax.jit(lambda q: jaxdyn.bias_force(MIMIC, q, q) - jaxdyn.gravity_force(MIMIC, q))(q),
            wanted(ID, MIMIC, (q, q, STILL)) - wanted(ID, MIMIC, (q, STILL, STILL)),
        ),
        "arrays that no 64 bytes align": lambda: (
            jax.jit(functools.partial(ID, ARM))(
                *(np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(float) for x in STATE)
            ),
            wanted(),
        ),
        "every second entry": lambda: (
            jax.jit(functools.partial(ID, ARM))(*(np.repeat(x, 2)[::2] for x in STATE)),
            wanted(),
        ),
    }


def types() -> Programs:
    """Types of numbers and numbers of rows."""
    q, v, a = STATE
    single = jax.tree.map(lambda x: x.astype(np.float32), ARM)
    small = tuple(x.astype(np.float32) for x in STATE)
    whole = np.array([1, 2])
    near = 1e-4
    no_rows = jnp.zeros((0, 2))
    arm = functools.partial(ID, ARM)
    rows = jax.vmap(arm)
    found = {
        "single precision": lambda: (jax.jit(ID)(single, *small), wanted().astype(np.float32), near),
        "single states": lambda: (jax.jit(arm)(*small), wanted(), near),
        "single robot": lambda: (jax.jit(ID)(single, *STATE), wanted(), near),
        "one single argument": lambda: (jax.jit(arm)(q, small[1], a), wanted(), near),
        "single forward dynamics of rows": lambda: (
            jax.jit(jax.vmap(functools.partial(FD, single)))(*(x.astype(np.float32) for x in ROWS)),
            wanted_rows(FD).astype(np.float32),
            near,
        ),
        "integers": lambda: (jax.jit(arm)(whole, whole, whole), wanted(state=(1.0 * whole,) * 3)),
        "integers of q": lambda: (
            jax.jit(functools.partial(FD, ARM))(whole, v, a),
            wanted(FD, state=(1.0 * whole, v, a)),
        ),
        "gradient beside integers": lambda: (
            jax.jit(jax.jacfwd(arm, 1))(whole, v, a),
            jax.jit(jax.jacfwd(arm, 1))(1.0 * whole, v, a),
        ),
        "weak types": lambda: (
            jax.jit(lambda s: arm(jnp.full(2, s), jnp.full(2, 2.0), jnp.full(2, 1)))(0.3),
            wanted(state=(np.full(2, 0.3), np.full(2, 2.0), np.ones(2))),
        ),
        "rows of integers": lambda: (
            jax.jit(rows)(np.arange(6).reshape(3, 2), *(x[:3] for x in ROWS[1:])),
            jnp.stack([wanted(state=(np.array([2.0 * k, 2.0 * k + 1]), ROWS[1][k], ROWS[2][k])) for k in range(3)]),
        ),
        "no rows": lambda: (jax.jit(rows)(no_rows, no_rows, no_rows), no_rows),
        "no rows of forward dynamics": lambda: (
            jax.jit(jax.vmap(functools.partial(FD, MIMIC), (0, None, None)))(no_rows, v, a),
            no_rows,
        ),
        "no rows without jit": lambda: (rows(no_rows, no_rows, no_rows), no_rows),
        "no rows of derivatives": lambda: (
            jax.jit(jax.vmap(jax.jacrev(arm)))(no_rows, no_rows, no_rows),
            jnp.zeros((0, 2, 2)),
        ),
        "no rows of rows": lambda: (
            jax.jit(jax.vmap(rows))(*[jnp.zeros((3, 0, 2))] * 3),
            jnp.zeros((3, 0, 2)),
        ),
        "no sets of rows": lambda: (
            jax.jit(jax.vmap(jax.vmap(arm, (0, None, None)), (0, 0, None)))(jnp.zeros((0, 4, 2)), no_rows, a),
            jnp.zeros((0, 4, 2)),
        ),
        "one row": lambda: (jax.jit(rows)(*(x[None] for x in STATE)), wanted()[None]),
        "one row of one": lambda: (jax.jit(jax.vmap(rows))(*(x[None, None] for x in STATE)), wanted()[None, None]),
        "not a number": lambda: (jnp.isnan(jax.jit(arm)(q * np.nan, v, a)), np.ones(2, bool)),
    }
    for kind in (jnp.float16, jnp.bfloat16):
        found[f"{kind.__name__}"] = lambda kind=kind: (
            jax.jit(arm)(*(jnp.asarray(x, kind) for x in STATE)),
            wanted(),
            0.1,
        )
        found[f"a robot of {kind.__name__}"] = lambda kind=kind: (
            jax.jit(jax.vmap(ID, (None, 0, 0, 0)))(
                jax.tree.map(lambda x: x.astype(kind), ARM), *(jnp.asarray(x, kind) for x in ROWS)
            ).astype(float),
            wanted_rows(),
            0.3,
        )
    return found


def programs():
    return checked(constants(), results(), types())
