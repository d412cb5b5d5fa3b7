"""The contact wrench cone of a rectangular sole: limits of the ground's wrench on a foot, as a constraint on a motion."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics import forward_dynamics, frame_pose, resistive_force
from ...dynamics._mechanisms.ground import ground_reaction
from ...model._chain import Chain
from ...spatial.se3 import adjoint
from .constraints import Constraint
from .knot import Knot, as_floats


class ContactWrenchCone(Constraint):
    """Constraint that the stance foot neither lifts off, slips, tips, nor rotates on the ground.

    The wrench (n, f) of the ground on the robot, `ground_reaction` of the knot's torques and of the accelerations that they
    cause, is expressed about the middle of a rectangular sole with half lengths X and Y and normal z. Forces at the
    sole's corners, each in the pyramid |f_x|, |f_y| <= mu f_z, can produce it if and only if (Caron, Pham & Nakamura
    2015)

        f_z >= least_force,  |f_x| <= mu f_z,  |f_y| <= mu f_z,                                 (lifting off, slipping)
        |n_x| <= Y f_z,  |n_y| <= X f_z,                        (the zero moment point (-n_y, n_x) / f_z is in the sole)
        |Y f_x - mu n_x| + |X f_y - mu n_y| - mu (X + Y) f_z <= n_z,                            (turning)
        n_z <= mu (X + Y) f_z - |Y f_x + mu n_x| - |X f_y + mu n_y|,

    here as 17 linear inequalities, divided by the robot's weight (and, for moments, by X + Y). A pyramid with
    mu = mu_cone / sqrt(2) is within the friction cone of mu_cone.

    All forces on the robot are assumed to act at this foot: single support, of a robot whose base is that foot.
    `solve_by_inverse_dynamics` computes the reaction with the torques; in the other solvers each value costs one forward
    dynamics, and second derivatives of that take minutes to compile for ten joints.

    Attributes:
        frame: link or frame on the ground with z along the ground's normal; may be fixed to the base.
        lower: the sole's corner of least x and y, in the frame [m].
        upper: the corner of greatest x and y.
        friction: friction coefficient mu of the pyramid.
        besides: additional ground wrench (n, f), world axes, about the world's origin, for loads other than the robot:
            (c x f, f), f upwards, for the weight of a foot that is the base [N m, N].
        least_force: least normal force [N].
    """

    of_ground_reaction: ClassVar[bool] = True
    frame: str = eqx.field(static=True)
    lower: Float[Array, "2"] = eqx.field(converter=as_floats)
    upper: Float[Array, "2"] = eqx.field(converter=as_floats)
    friction: Float[Array, ""] = eqx.field(converter=as_floats)
    besides: Float[Array, "6"] = eqx.field(converter=as_floats, default=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    least_force: Float[Array, ""] = eqx.field(converter=as_floats, default=0.0)

    def wrench(self, chain: Chain, knot: Knot) -> Float[Array, "6"]:
        """(n, f) of the ground about the middle of the sole, in the frame's axes [N m, N]."""
        ground = knot.ground
        if ground is None:
            a = forward_dynamics(chain, knot.q, knot.v, knot.tau - resistive_force(chain, knot.q, knot.v))
            ground = ground_reaction(chain, knot.q, knot.v, a)
        middle = jnp.concatenate([(self.lower + self.upper) / 2, jnp.zeros(1, self.lower.dtype)])
        sole = frame_pose(chain, knot.q, self.frame) @ jnp.eye(4, dtype=middle.dtype).at[:3, 3].set(middle)
        return adjoint(sole).T @ (ground + self.besides)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, "17"]:
        nx, ny, nz, fx, fy, fz = self.wrench(chain, knot)
        x, y = (self.upper - self.lower) / 2
        mu = self.friction
        turning = [
            sign * nz + s * (y * fx + sign * mu * nx) + t * (x * fy + sign * mu * ny) - mu * (x + y) * fz
            for sign in (-1, 1)
            for s in (-1, 1)
            for t in (-1, 1)
        ]
        tipping = [s * n - half * fz for n, half in ((nx, y), (ny, x)) for s in (-1, 1)]
        slipping = [s * f - mu * fz for f in (fx, fy) for s in (-1, 1)]
        moments, forces = jnp.stack(tipping + turning), jnp.stack([self.least_force - fz, *slipping])
        weight = chain.inertia[:, 0].sum() * jnp.linalg.norm(chain.gravity)
        return jnp.concatenate([forces, moments / (x + y)]) / weight
