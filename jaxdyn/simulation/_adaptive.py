"""Integration with adaptive steps, by diffrax. An extra: `pip install "jaxdyn[adaptive]"`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..dynamics import forward_dynamics, resistive_force
from ..errors import ModelError
from ..model._chain import Chain
from ..model._configuration import integrate, normalise_configuration
from ._integrate import promoted


class AdaptiveRollout(NamedTuple):
    """A motion integrated with adaptive steps.

    Attributes:
        positions: q at the requested times; not finite after an early stop of the integration.
        velocities: qd there.
        steps: steps taken, rejected ones included.
        successful: true if the last time was reached.
    """

    positions: Float[Array, "times nq"]
    velocities: Float[Array, "times nv"]
    steps: Int[Array, ""]
    successful: Bool[Array, ""]


def adaptive_rollout(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    controls: Float[Array, "intervals nv"] | Callable[[Array, Array, Array], Array],
    times: Float[Array, " times"],
    rtol: float | None = None,
    atol: float | None = None,
    external_wrenches: Float[Array, "n 6"] | None = None,
    **options: Any,
) -> AdaptiveRollout:
    """The motion of qdd = forward_dynamics(tau - resistive_force) at given times, with steps chosen by error control.

    Quaternions are integrated by their rates, d/dt (w, x, y, z) = (w, x, y, z) (0, omega) / 2, and returned with unit
    length. The root mean square over entries of a step's error is kept below atol + rtol |y| with y = (q, qd).

    Derivatives: reverse mode, with checkpoints (`diffrax.RecursiveCheckpointAdjoint`); for forward mode pass
    adjoint=diffrax.ForwardMode(). They are those of the steps taken.

    Args:
        controls: torques held between successive times, where steps then end [N m], or a smooth policy tau =
            controls(t, q, qd), whose quaternions may deviate slightly from unit length.
        times: increasing; the first is that of (q, qd) [s].
        rtol: relative error of a step; by default the root of the type's rounding, 1.5e-8 or 3.5e-4, as atol.
        atol: absolute error [rad or m, rad/s or m/s].
        external_wrenches: wrenches (n, f) on each link, in its frame, held [N m, N].
        options: of `diffrax.diffeqsolve`, such as `solver`, by default `Tsit5`, explicit, of fifth order (`Kvaerno5` for stiff
            friction); `adjoint`; and `max_steps`, by default 4096, after which `successful` is False.

    Raises:
        ImportError: diffrax is not installed.
        ModelError: fewer than two times; a wrong number of torque rows.
    """
    try:
        import diffrax
    except ModuleNotFoundError as missing:
        raise ImportError(
            'adaptive_rollout needs diffrax, which is not installed: pip install "jaxdyn[adaptive]"'
        ) from missing

    q, qd = promoted(chain, q, qd)
    times = jnp.asarray(times, q.dtype)
    policy, rows = (controls, None) if callable(controls) else (None, jnp.asarray(controls))
    if len(times) < 2:
        raise ModelError(f"an adaptive rollout needs at least two times, the first that of the state; not {len(times)}")
    if rows is not None and len(rows) != len(times) - 1:
        raise ModelError(f"{len(rows)} rows of torques are given for {len(times) - 1} intervals between times")

    def rate(t, y, arguments):
        robot, wrenches, torques = arguments
        x, xd = y
        if policy is not None:
            tau = policy(t, x, xd)
        else:
            tau = torques[jnp.clip(jnp.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)]
        _, velocity = jax.jvp(lambda dq: integrate(robot, x, dq), (jnp.zeros_like(xd),), (xd,))
        return velocity, forward_dynamics(robot, x, xd, tau - resistive_force(robot, x, xd), wrenches)

    default = float(jnp.finfo(q.dtype).eps) ** 0.5
    controller = diffrax.PIDController(default if rtol is None else rtol, default if atol is None else atol)
    if rows is not None:
        controller = diffrax.ClipStepSizeController(controller, jump_ts=times[1:-1])
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        options.pop("solver", None) or diffrax.Tsit5(),
        times[0],
        times[-1],
        None,
        (q, qd),
        (chain, external_wrenches, rows),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=controller,
        throw=False,
        **options,
    )
    ys: Any = solution.ys
    positions, velocities = ys
    positions = jax.vmap(lambda x: normalise_configuration(chain, x))(positions)
    return AdaptiveRollout(
        positions, velocities, solution.stats["num_steps"], solution.result == diffrax.RESULTS.successful
    )
