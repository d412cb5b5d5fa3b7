"""An excitation trajectory within the limits of a UR10, compared with random motions.

The velocity and torque limits are those of the robot's data sheet; we chose the position and acceleration limits. The tip
must stay above a table. Writes exciting_motion.csv and exciting_motion.png.
"""

import os

import jax.numpy as jnp
import numpy as np

import jaxdyn

FAST = bool(os.environ.get("JAXDYN_EXAMPLES_FAST"))

chain = jaxdyn.robots.ur10()
limits = jaxdyn.identification.motion_limits(
    chain,
    lower=[-3.0, -2.6, -2.6, -3.0, -3.0, -3.0],
    upper=[3.0, -0.5, 2.6, 3.0, 3.0, 3.0],
    velocity=[2.0, 2.0, 3.0, 3.0, 3.0, 3.0],
    acceleration=[8.0, 8.0, 8.0, 15.0, 15.0, 15.0],
    torque=[330.0, 330.0, 150.0, 56.0, 56.0, 56.0],
)


def clearance(q):
    """Height of the tip above a table at z = 0 [m]."""
    return jaxdyn.frame_pose(chain, q)[2, 3]


design = jaxdyn.identification.optimal_excitation(
    chain,
    jaxdyn.identification.FourierSeries(duration=5.0 if FAST else 10.0, harmonics=5 if FAST else 10),
    limits=limits,
    clearance=clearance,
    search=jaxdyn.identification.excitation_design.ExcitationSearch(starts=2 if FAST else 6, rounds=4 if FAST else 16),
)
best = max(design.random, key=lambda quality: quality.log_det) if design.random else None
print(f"{design.quality.parameters} parameters, condition number {design.quality.condition:.0f}")
if best is not None:
    ratio = jaxdyn.identification.variance_ratio(design.quality, best)
    print(
        f"variances {ratio:.1f} times smaller than with the best random motion (condition number {best.condition:.0f})"
    )
for name, share in design.usage.items():
    print(
        f"  {name:14}", *((np.round(100 * share).astype(int), "% of the limit") if share.any() else ("no limit set",))
    )
print(f"  the tip stays {design.clearance:.3f} m above the table")
assert max(share.max() for share in design.usage.values()) < 0.951 and design.clearance >= 0

samples = jaxdyn.identification.sample_trajectory(chain, design.trajectory, rate=200.0)
jaxdyn.identification.write_trajectory("exciting_motion.csv", samples)
jaxdyn.identification.draw_trajectory("exciting_motion.png", chain, samples, limits)
q, _, _ = design.trajectory(jnp.array([0.0, 1.0]))
print("starts at", np.round(np.asarray(q[0]), 2), "; written: exciting_motion.csv, exciting_motion.png")
