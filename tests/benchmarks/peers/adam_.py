"""adam: floating-base dynamics in JAX; arms are floating robots with a fixed base."""

import jax.numpy as jnp
import numpy as np

from ..comparison import Layout
from ..subjects import Subject
from . import Entry


def build(robot: Subject, state: dict, precision: str) -> dict[str, Entry]:
    from adam.core.constants import Representations
    from adam.jax import KinDynComputations

    layout = Layout(robot)
    names = [robot.chain.topology.joint_names[i] for i in layout.columns if not robot.floating or i > 5]
    dtype = jnp.dtype(precision)
    there = KinDynComputations(robot.urdf, names, dtype=dtype, gravity=jnp.asarray([0, 0, -9.81, 0, 0, 0], dtype))
    # adam passes its device to every asarray, which JAX 0.10 rejects under vmap; None selects the default device
    math = there.rbdalgos.math
    if getattr(math.factory, "_device", None) is not None:
        math.factory._device = None
    there.set_frame_velocity_representation(Representations.BODY_FIXED_REPRESENTATION)
    q, v, a, tau = (layout.vector(state[k]) for k in ("v", "v", "a", "tau"))
    q = layout.q(state["q"])
    same = lambda x: [np.asarray(x, float)]

    if robot.floating:

        def base(q):
            x, y, z, w = q[3:7]
            rows = [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), q[0]],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x), q[1]],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y), q[2]],
                [0 * w, 0 * w, 0 * w, 0 * w + 1],
            ]
            return jnp.stack([jnp.stack(row) for row in rows]), q[7:]

        velocity = lambda v: (v[:6], v[6:])
        kept = slice(None)
    else:
        base = lambda q: (jnp.eye(4, dtype=q.dtype), q)
        velocity = lambda v: (jnp.zeros(6, v.dtype), v)
        kept = slice(6, None)

    def mass(q):
        return there.mass_matrix(*base(q))[kept, kept]

    def bias(q, v):
        return there.bias_force(*base(q), *velocity(v))[kept]

    def inverse(q, v, a):
        return mass(q) @ a + bias(q, v)

    found = {
        "inverse_dynamics": Entry(inverse, (q, v, a), same, "M a + bias_force"),
        "crba": Entry(mass, (q,), same),
        "gravity": Entry(lambda q: there.gravity_term(*base(q))[kept], (q,), same),
        "frame_pose": Entry(lambda q: there.forward_kinematics(robot.frame, *base(q)), (q,), same),
    }
    if robot.floating:
        forward = lambda q, v, tau: there.aba(*base(q), *velocity(v), tau)
        found["forward_dynamics"] = Entry(forward, (q, v, tau), same)
    else:
        forward = lambda q, v, tau: jnp.linalg.solve(mass(q), tau - bias(q, v))
        found["forward_dynamics"] = Entry(forward, (q, v, tau), same, "M^-1 (tau - bias_force); aba has a free base")
    return found
