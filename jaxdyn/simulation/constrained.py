"""Time integration of constrained robots: the schemes of `step`, followed by a projection that removes drift.

Rollouts with a prescribed motion of the base or of some joints."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics import resistive_force
from ..dynamics.constraints import Stabilisation, constrained_forward_dynamics, project_configuration, project_velocity
from ..dynamics.prescribed import base_motion, hybrid_dynamics, moving_base_forward_dynamics
from ..errors import ModelError
from ..model.chain import Chain
from ..model.compiled import compiled, layout
from ..model.mechanisms import Constraints, coordinate_columns
from .integrate import Method, advance, promoted
from .rollout import repeated


@compiled
def constrained_step(
    chain: Chain,
    constraints: Constraints,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    external_wrenches: Float[Array, "n 6"] | None = None,
    method: Method = "rk4",
    stabilisation: Stabilisation | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state (q, qd) after a time step dt under qdd = constrained_forward_dynamics(tau - resistive_force).

    After the step, the state is projected onto the nearest state that satisfies the constraints (`project_configuration`,
    `project_velocity`). The projection changes the state by an amount of the order of the integration error, and
    therefore preserves the order of the scheme. If `stabilisation` is given, Baumgarte's feedback replaces the projection;
    it acts like an artificial spring and damper that reduces drift.

    Args:
        constraints: one or more constraints (`point_constraint`, `pose_constraint`, `FunctionConstraint`).
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        tau: joint torques, constant during the step [N m or N].
        dt: time step [s].
        external_wrenches: constant wrench (n, f) on each link, in the link's frame [N m, N].
        method: integration scheme, as in `step`.
        stabilisation: Baumgarte's gains (alpha, beta) [1/s], used instead of the projection; with (0, 0), the residual phi
            of the constraints drifts due to integration errors.

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
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    controls: Float[Array, "steps nv"] | Callable[[Array, Array, Array], Array],
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities at t = 0, every * dt, ..., steps * dt by `constrained_step`; row 0 is the initial state.

    Start from a state that satisfies the constraints (`project_configuration`, `project_velocity`).

    Args:
        constraints: one or more constraints, as in `constrained_step`.
        q: initial positions [rad or m].
        qd: initial velocities [rad/s or m/s].
        controls: torques, constant during each step [N m or N], or a policy tau = controls(t, q, qd).
        dt: time step [s].
        steps: number of steps; required if `controls` is a policy.
        method: integration scheme, as in `step`.
        every: number of steps between returned states; must divide the total number of steps.
        checkpoint: number of checkpoint levels for reverse-mode derivatives, as in `rollout`.

    Raises:
        ModelError: as for `rollout` and `constrained_step`.
    """
    move = lambda q, qd, tau, dt, _: constrained_step(chain, constraints, q, qd, tau, dt, None, method)
    return repeated(move, promoted(chain, q, qd), controls, dt, steps, None, every, checkpoint)


# -- prescribed

Controls = Float[Array, "steps nv"] | Callable[[Array, Array, Array], Array]


@compiled
def moving_base_rollout(
    chain: Chain,
    path: Callable[[Array], Array],
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities of a robot whose base follows a path of poses T(t), at t = 0, every * dt, ..., steps * dt.

    Accelerations are those of `moving_base_forward_dynamics` under tau - resistive_force. The motion of the base is evaluated
    at each stage of the integration scheme, so the scheme retains its order.

    Args:
        path: twice differentiable function of time [s] that returns the pose (4x4) of the base in the world [m].
        q: initial positions [rad or m].
        qd: initial velocities [rad/s or m/s].
        controls: torques, constant during each step [N m or N], or a policy tau = controls(t, q, qd).
        dt: time step [s].
        steps: number of steps; required if `controls` is a policy.
        method: integration scheme, as in `step`.
        every: number of steps between returned states; must divide the total number of steps.
        checkpoint: number of checkpoint levels for reverse-mode derivatives, as in `rollout`.

    Raises:
        ModelError: as for `rollout` and `moving_base_forward_dynamics`.
    """

    def move(q, qd, tau, dt, start):
        def acceleration(robot, x, xd, elapsed):
            base = base_motion(path, start + elapsed)
            return moving_base_forward_dynamics(robot, base, x, xd, tau - resistive_force(robot, x, xd))

        return advance(chain, q, qd, dt, acceleration, method)

    state = promoted(chain, q, qd)
    return repeated(move, state, controls, dt, steps, _starts(controls, dt, steps, state[0]), every, checkpoint)


@compiled
def hybrid_rollout(
    chain: Chain,
    prescribed: Mapping[str | int, Callable[[Array], Array]],
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "rk4",
    every: int = 1,
    checkpoint: int | None = None,
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities of a robot with prescribed motions of some joints, at t = 0, every * dt, ..., steps * dt.

    Accelerations are those of `hybrid_dynamics`. Prescribed coordinates follow their functions exactly at every stage of the
    integration scheme; their entries in q and qd are ignored. To obtain the forces that the prescribed motion requires, call
    `hybrid_dynamics` at the returned states.

    Args:
        prescribed: mapping from prescribed coordinates to their motions. A key is the name of a joint (of a coordinate, if
            joints are coupled) or a column of v; a value is a twice differentiable function of time [s] that returns a
            position [rad or m]. Quaternion joints are not supported.
        q: initial positions [rad or m].
        qd: initial velocities [rad/s or m/s].
        controls: torques, constant during each step [N m or N], or a policy tau = controls(t, q, qd); ignored for prescribed
            coordinates.
        dt: time step [s].
        steps: number of steps; required if `controls` is a policy.
        method: integration scheme, as in `step`.
        every: number of steps between returned states; must divide the total number of steps.
        checkpoint: number of checkpoint levels for reverse-mode derivatives, as in `rollout`.

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

    def move(q, qd, tau, dt, start):
        def acceleration(robot, x, xd, elapsed):
            x, xd, xdd = on_path(start + elapsed, x, xd)
            return hybrid_dynamics(
                robot, x, xd, tuple(prescribed), xdd, tau - resistive_force(robot, x, xd)
            ).acceleration

        q, qd, _ = on_path(start, q, qd)
        return on_path(start + dt, *advance(chain, q, qd, dt, acceleration, method))[:2]

    q, qd = promoted(chain, q, qd)
    state = on_path(jnp.zeros((), q.dtype), q, qd)[:2]
    return repeated(move, state, controls, dt, steps, _starts(controls, dt, steps, q), every, checkpoint)


def _starts(controls: Controls, dt: float | Array, steps: int | None, like: Array) -> Float[Array, " steps"] | None:
    """The time at which each step starts [s]; None if the number of steps is missing (`repeated` then raises an error)."""
    count = steps if callable(controls) else len(controls)
    return None if count is None else jnp.arange(count, dtype=like.dtype) * jnp.asarray(dt, like.dtype)
