"""Identification of a heavy arm with a hydropneumatic counterbalance, with and without a model of the counterbalance.

The log is simulated for an arm of a few hundred kilograms, similar to a KUKA KR 300. To use a log of your robot, replace it
with `jaxdyn.read_log("run.csv")`. The geometry of the cylinder is assumed to be known from a drawing. Its force, and the
length of the gas column that remains at full stroke, are identified.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn.identification import Counterbalance, Filters, FrictionModel, Terms

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))
SECONDS, RATE, NOISE = 12.0 if FAST else 30.0, 200.0, 10.0

arm = jaxdyn.textbook.planar_elbow(m1=300.0, m2=150.0, l1=1.15, lc1=0.5, lc2=0.6)
arm = jaxdyn.model.with_leaves(
    arm, {"friction.viscous": jnp.array([80.0, 40.0]), "friction.coulomb_velocity": jnp.full(2, 0.1)}
)
# lengths of pivot and crank [m], angle between them at q = 0 [rad]
pivot, crank, angle = 0.8, 0.2, float(np.deg2rad(95.0))
true = FrictionModel((Counterbalance(pivot=pivot, crank=crank, angle=angle, reserve=0.15, joints=(1,)),))

t = np.arange(round(SECONDS * RATE)) / RATE
q, qd, qdd = jaxdyn.identification.random_excitation(arm, SECONDS, 5, seed=2)(jnp.asarray(t))
tau = jax.vmap(lambda *x: jaxdyn.inverse_dynamics(arm, *x) + jaxdyn.friction_force(arm, x[1]))(q, qd, qdd)
force = true.columns(q, qd, jnp.zeros_like(q))[:, :, 0] * jnp.array([9000.0, 0.0])
noise = NOISE * np.random.default_rng(0).normal(size=q.shape)
log = jaxdyn.Log(t, np.asarray(q), None, np.asarray(tau + force) + noise, source="synthetic")

# the initial guess is a gas column of half a metre at full stroke
start = Counterbalance(pivot=pivot, crank=crank, angle=angle, joints=(1,))
filters, plain = Filters(10.0), Terms(choose=())
without = jaxdyn.identify(arm, log, terms=plain, filters=filters)
balanced = jaxdyn.identify(arm, log, terms=Terms(further=(start,), choose=()), filters=filters)
assert balanced.friction is not None
found = dict(zip(balanced.names, balanced.parameters, strict=True))
reserve = balanced.friction.nonlinear[0, balanced.friction.model.nonlinear_names().index("reserve(cb)")]
for name, result in (("without the term", without), ("with the term", balanced)):
    print(f"held-out torque error {name}: {result.validation[0].fit.rms.round(1)} N m")
print(f"force {found['cb1']:.0f} N (true: 9000 N), gas column {reserve:.3f} m (true: 0.15 m)")
assert balanced.validation[0].fit.rms[0] < 0.5 * without.validation[0].fit.rms[0]
assert abs(found["cb1"] - 9000) < 900 and abs(reserve - 0.15) < 0.05
