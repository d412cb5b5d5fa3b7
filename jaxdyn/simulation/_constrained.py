"""Time integration of constrained robots: the schemes of `step`, followed by a projection that removes drift."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import resistive_force
from ..dynamics._mechanisms.closure import project_configuration, project_velocity
from ..dynamics._mechanisms.constrained import Stabilisation, constrained_forward_dynamics
from ..model._chain import Chain
from ..model._compiled import compiled
from ..model._mechanisms.constraint import Constraints
from ._integrate import Method, advance, promoted
from ._rollout import repeated


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
