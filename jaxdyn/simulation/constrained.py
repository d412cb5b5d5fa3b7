"""Rollouts of robots under constraints, and with a prescribed motion of the base or of some joints."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics import resistive_force
from ..dynamics.constraints import Stabilisation, constrained_forward_dynamics, project_configuration, project_velocity
from ..dynamics.prescribed import base_motion, hybrid_dynamics, moving_base_forward_dynamics
from ..errors import ModelError
from ..model.chain import Chain, Force, Position, Velocity, Wrenches, layout
from ..model.compiled import compiled
from ..model.mechanisms import Constraints, coordinate_columns
from .integrate import Method, advance, promoted
from .rollouts import Controls, Motion, repeated


@compiled
def constrained_step(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    qd: Velocity,
    tau: Force,
    dt: float | Float[Array, ""],
    external_wrenches: Wrenches | None = None,
    method: Method = "rk4",
    stabilisation: Stabilisation | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state (q, qd) after a time step dt under qdd = constrained_forward_dynamics(tau - resistive_force).

    After the step, the state is projected onto the nearest state that satisfies the constraints
    (`project_configuration`, `project_velocity`). The projection changes the state by an amount of the order of the
    integration error, and therefore preserves the order of the scheme.

    Args:
        stabilisation: gains (alpha, beta) of Baumgarte's feedback [1/s], which replaces the projection and acts like an
            artificial spring and damper; with (0, 0), the residual phi of the constraints drifts due to integration
            errors.

    Raises:
        ModelError: the scheme is unknown, there is no constraint, or a constraint refers to an unknown frame.
    """
    q, qd = promoted(chain, q, qd)
    gains = (0.0, 0.0) if stabilisation is None else stabilisation

    def acceleration(robot, x, xd, _):
        driven = tau - resistive_force(robot, x, xd)
        return constrained_forward_dynamics(robot, constraints, x, xd, driven, external_wrenches, gains).acceleration

    q, qd = advance(chain, q, qd, jnp.asarray(dt, q.dtype), acceleration, method)
    if stabilisation is not None:
        return q, qd
    q = project_configuration(chain, constraints, q, max_iterations=10).configuration
    return q, project_velocity(chain, constraints, q, qd)


@compiled
def constrained_rollout(
    chain: Chain,
    constraints: Constraints,
    q: Position,
    qd: Velocity,
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> Motion:
    """Positions and velocities at t = 0, every * dt, ..., steps * dt by `constrained_step`; row 0 is the initial state.

    Start from a state that satisfies the constraints (`project_configuration`, `project_velocity`). The other arguments and
    the errors are those of `rollout` and `constrained_step`.
    """
    move = lambda _t, q, qd, tau, dt, _row: constrained_step(chain, constraints, q, qd, tau, dt, None, method)
    return repeated(move, promoted(chain, q, qd), controls, dt, steps, every, checkpoint)


@compiled
def moving_base_rollout(
    chain: Chain,
    path: Callable[[Array], Array],
    q: Position,
    qd: Velocity,
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> Motion:
    """Positions and velocities of a robot whose base follows a path of poses T(t), at t = 0, every * dt, ..., steps * dt.

    Accelerations are those of `moving_base_forward_dynamics` under tau - resistive_force, at each stage of the scheme.
    The other arguments and the errors are those of `rollout` and `moving_base_forward_dynamics`.

    Args:
        path: twice differentiable function of time [s] that returns the pose (4x4) of the base in the world [m].
    """

    def move(start, q, qd, tau, dt, _):
        def acceleration(robot, x, xd, elapsed):
            base = base_motion(path, start + elapsed)
            return moving_base_forward_dynamics(robot, base, x, xd, tau - resistive_force(robot, x, xd))

        return advance(chain, q, qd, dt, acceleration, method)

    return repeated(move, promoted(chain, q, qd), controls, dt, steps, every, checkpoint)


@compiled
def hybrid_rollout(
    chain: Chain,
    prescribed: Mapping[str | int, Callable[[Array], Array]],
    q: Position,
    qd: Velocity,
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> Motion:
    """Positions and velocities of a robot with prescribed motions of some joints, at t = 0, every * dt, ..., steps * dt.

    Accelerations are those of `hybrid_dynamics`, which also returns the forces that the prescribed motion requires.
    Prescribed coordinates follow their functions exactly at every stage of the integration scheme; their entries in q,
    qd and controls are ignored. The other arguments are those of `rollout`.

    Args:
        prescribed: mapping from joint names (coordinate names, if joints are coupled) or columns of v to twice
            differentiable functions of time [s] that return a position [rad or m].

    Raises:
        ModelError: as for `rollout`, or a coordinate is unknown, repeated, or part of a quaternion joint.
    """
    columns = coordinate_columns(chain, tuple(prescribed))
    where = dict(zip(layout(chain).columns.tolist(), layout(chain).entries.tolist(), strict=True))
    if not set(columns.tolist()) <= set(where):
        raise ModelError(
            f"one of the prescribed coordinates {tuple(prescribed)} belongs to a quaternion joint; to prescribe the motion "
            "of the base, remove the free joint from the robot and use moving_base_rollout"
        )
    entries = np.array([where[k] for k in columns.tolist()], int)

    def path(t):
        return jnp.stack([jnp.reshape(position(t), ()) for position in prescribed.values()])

    def on_path(t, q, qd):
        velocity = lambda s: jax.jvp(path, (s,), (jnp.ones_like(s),))
        (x, xd), (_, xdd) = jax.jvp(velocity, (t,), (jnp.ones_like(t),))
        return q.at[entries].set(x.astype(q.dtype)), qd.at[columns].set(xd.astype(qd.dtype)), xdd.astype(qd.dtype)

    def move(start, q, qd, tau, dt, _):
        def acceleration(robot, x, xd, elapsed):
            x, xd, xdd = on_path(start + elapsed, x, xd)
            return hybrid_dynamics(
                robot, x, xd, tuple(prescribed), xdd, tau - resistive_force(robot, x, xd)
            ).acceleration

        q, qd, _ = on_path(start, q, qd)
        return on_path(start + dt, *advance(chain, q, qd, dt, acceleration, method))[:2]

    q, qd = promoted(chain, q, qd)
    state = on_path(jnp.zeros((), q.dtype), q, qd)[:2]
    return repeated(move, state, controls, dt, steps, every, checkpoint)
