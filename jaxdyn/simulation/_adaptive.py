"""Time integration with adaptive steps by diffrax, an optional dependency (`pip install "jaxdyn[adaptive]"`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..dynamics import forward_dynamics, resistive_force
from ..errors import ModelError
from ..model._chain import Chain
from ..model._compiled import checked
from ..model._configuration import integrate, normalise_configuration
from ._integrate import promoted


class AdaptiveRollout(NamedTuple):
    """A motion integrated with adaptive steps.

    Attributes:
        positions: positions q at the requested times [rad or m]. If the integration stops early, the entries for later times
            are not finite.
        velocities: velocities qd at the requested times [rad/s or m/s].
        steps: number of steps, including rejected ones.
        successful: True if the integration reached the last of the requested times.
    """

    positions: Float[Array, "times nq"]
    velocities: Float[Array, "times nv"]
    steps: Int[Array, ""]
    successful: Bool[Array, ""]


@checked
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
    """Integrate qdd = forward_dynamics(tau - resistive_force) with adaptive steps and return the states at requested times.

    Quaternions are integrated from their rates, d/dt (w, x, y, z) = (w, x, y, z) (0, omega) / 2, and returned with unit length.
    A step is accepted if the estimated error of y = (q, qd), divided by atol + rtol |y|, has an RMS below 1 over all entries.

    JAX differentiates through the integration steps, by default in reverse mode with checkpoints
    (`diffrax.RecursiveCheckpointAdjoint`). For forward mode, pass adjoint=diffrax.ForwardMode().

    Args:
        q: initial positions [rad or m].
        qd: initial velocities [rad/s or m/s].
        controls: either torques [N m or N], one row for each interval between successive times, or a policy tau =
            controls(t, q, qd). Torques are constant within an interval, and no step extends beyond it. A policy must be smooth,
            and must accept quaternions whose length differs slightly from 1.
        times: increasing times [s]; (q, qd) is the state at the first time.
        rtol: relative tolerance; by default, the square root of the machine epsilon, which is 1.5e-8 in float64 and 3.5e-4
            in float32.
        atol: absolute tolerance, with the same default [rad or m, rad/s or m/s].
        external_wrenches: constant wrench (n, f) on each link, in the link's frame [N m, N].
        options: keyword arguments for `diffrax.diffeqsolve`, such as `adjoint`. The default `solver` is `Tsit5`, an explicit
            fifth-order scheme; use `Kvaerno5` for stiff friction. The default `max_steps` is 4096; if more steps are needed,
            `successful` is False.

    Raises:
        ImportError: diffrax is not installed.
        ModelError: there are fewer than two times, or the number of torque rows differs from the number of intervals.
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
        raise ModelError(
            f"an adaptive rollout needs at least two times, the first for the initial state; got {len(times)}"
        )
    if rows is not None and len(rows) != len(times) - 1:
        raise ModelError(
            f"{len(rows)} rows of torques are given for {len(times) - 1} intervals between times; pass one row per interval"
        )

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
