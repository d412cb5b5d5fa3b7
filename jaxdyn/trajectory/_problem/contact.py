"""The contact wrench cone of a rectangular sole: limits on the ground reaction wrench at a foot, as a constraint."""

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
    """Constraint that prevents the stance foot from lifting off, slipping, tipping, or turning on the ground.

    The ground exerts a wrench (n, f) on the robot, which `ground_reaction` computes from the knot's torques and the resulting
    accelerations. It is expressed about the middle of a rectangular sole with half lengths X and Y and normal z. Forces at the
    sole's corners, each in the friction pyramid |f_x|, |f_y| <= mu f_z, can produce this wrench if and only if (Caron, Pham &
    Nakamura 2015)

        f_z >= least_force,  |f_x| <= mu f_z,  |f_y| <= mu f_z,                             (no lifting off, no slipping)
        |n_x| <= Y f_z,  |n_y| <= X f_z,                     (no tipping: (-n_y, n_x) / f_z is in the sole)
        |Y f_x - mu n_x| + |X f_y - mu n_y| - mu (X + Y) f_z <= n_z,                            (no turning)
        n_z <= mu (X + Y) f_z - |Y f_x + mu n_x| - |X f_y + mu n_y|.

    The conditions are implemented as 17 linear inequalities. All of them are divided by the robot's weight, and those that
    contain moments also by X + Y. The pyramid with mu = mu_cone / sqrt(2) lies within the friction cone with coefficient
    mu_cone.

    All contact forces are assumed to act on this foot, which is the robot's base (single support). Use
    `solve_by_inverse_dynamics`, which computes the ground reaction together with the torques. With other solvers, every
    evaluation requires forward dynamics, whose second derivatives take minutes to compile for a robot with ten joints.

    Attributes:
        frame: name of the link or frame on the ground, with z along the ground's normal; it may be fixed to the base.
        lower: smallest x and y of the sole in this frame [m].
        upper: largest x and y of the sole in this frame [m].
        friction: friction coefficient mu of the pyramid.
        besides: additional ground wrench (n, f) that supports loads other than the modelled links, in world axes about the
            world's origin [N m, N]. If the foot is the base, its weight is not modelled: pass (c x f, f), where c is the
            foot's centre of mass and f the upward force that balances its weight.
        least_force: smallest normal force [N].
    """

    of_ground_reaction: ClassVar[bool] = True
    frame: str = eqx.field(static=True)
    lower: Float[Array, "2"] = eqx.field(converter=as_floats)
    upper: Float[Array, "2"] = eqx.field(converter=as_floats)
    friction: Float[Array, ""] = eqx.field(converter=as_floats)
    besides: Float[Array, "6"] = eqx.field(converter=as_floats, default=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    least_force: Float[Array, ""] = eqx.field(converter=as_floats, default=0.0)

    def wrench(self, chain: Chain, knot: Knot) -> Float[Array, "6"]:
        """The wrench (n, f) that the ground exerts on the robot about the middle of the sole, in the frame's axes [N m, N]."""
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
