"""Simulation of a robot with its controller, for estimators that compare the simulated motion with the measured one."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline

from ...dynamics import friction_force, inverse_dynamics
from ...errors import IdentificationError
from ...model._chain import Chain
from ...simulation._integrate import Method, advance
from .._preprocessing.samples import Samples
from .._regression.columns import Columns
from .parametric import parameters_of, parametric_acceleration, parametric_torque

Torque = Callable[[Array, Array, Array], Array]


class ProportionalDerivativeLaw(eqx.Module):
    """PD control, tau = kp (q_r - q) + kd (qd_r - qd), with optional feed-forward torque from a nominal model.

    Attributes:
        kp: stiffness of each joint [N m/rad or N/m].
        kd: damping of each joint [N m s/rad or N s/m].
        nominal: model of the controller, whose torque along the reference is fed forward; None disables feed-forward.
            This model does not change with the identified parameters.
    """

    kp: Float[Array, " n"]
    kd: Float[Array, " n"]
    nominal: Chain | None = None

    def __call__(self, torque: Torque, reference: tuple[Array, Array, Array], q: Array, qd: Array) -> Array:
        """The torque at one instant, from the reference (q_r, qd_r, qdd_r) and the measured state [N m or N]."""
        q_r, qd_r, qdd_r = reference
        tau = self.kp * (q_r - q) + self.kd * (qd_r - qd)
        if self.nominal is None:
            return tau
        return tau + inverse_dynamics(self.nominal, q_r, qd_r, qdd_r) + friction_force(self.nominal, qd_r)


class ComputedTorqueLaw(eqx.Module):
    """Computed-torque control, tau = ID(q, qd, qdd_r + 2 z w (qd_r - qd) + w^2 (q_r - q)).

    ID is the inverse dynamics of the simulated model, so the simulated motion follows the reference whatever the
    model's parameters are. The updated gains of Gautier, Janot & Vandanjon (2013) have the same effect. If the
    controller of a log is unknown, use this law with the measured motion as the reference.

    Attributes:
        frequency: bandwidth w of the tracking error [rad/s].
        damping: damping ratio z; 1 is critical damping.
    """

    frequency: Float[Array, ""]
    damping: Float[Array, ""]

    def __call__(self, torque: Torque, reference: tuple[Array, Array, Array], q: Array, qd: Array) -> Array:
        """The torque at one instant, from the reference (q_r, qd_r, qdd_r) and the measured state [N m or N]."""
        q_r, qd_r, qdd_r = reference
        wanted = qdd_r + 2 * self.damping * self.frequency * (qd_r - qd) + self.frequency**2 * (q_r - q)
        return torque(q, qd, wanted)


class ClosedLoop(eqx.Module):
    """A reference motion, the control law that tracks it, and settings of the simulation.

    Attributes:
        q: reference positions at the control instants t_0 + k dt [rad or m]. The torque is constant between these
            instants.
        qd: reference velocities [rad/s or m/s].
        qdd: reference accelerations [rad/s^2 or m/s^2].
        law: control law (torque, (q_r, qd_r, qdd_r), q, qd) -> tau. It must be a pytree, such as
            `ProportionalDerivativeLaw` and `ComputedTorqueLaw`. The argument `torque` is the function (q, qd, qdd) ->
            tau of the simulated model.
        start: initial state (q, qd).
        dt: period of the controller [s].
        t_0: time of the first control instant [s].
        every: number of control periods between samples that are compared with the log.
        substeps: number of integration steps per control period.
        method: integration scheme, as in `step`. For Coulomb friction fc with a smooth sign function of width v_c and a joint
            inertia M, "rk4" is stable for steps below about 2.8 M v_c / fc.
        feedforward: torques added to those of the law at each control instant [N m or N]; None for zero.
        lead: time by which the commanded torques lead the motion [s]. A torque that is constant during a period acts,
            on average, half a period after it is commanded. An `EstimationProblem` assumes that logs contain commanded
            torques, and shifts these torques by the lead. Specifying `Filters.delay`, even as zero, disables this
            shift.
    """

    q: Float[Array, "steps n"]
    qd: Float[Array, "steps n"]
    qdd: Float[Array, "steps n"]
    law: Any
    start: tuple[Float[Array, " n"], Float[Array, " n"]]
    dt: float = eqx.field(static=True)
    t_0: float = eqx.field(static=True, default=0.0)
    every: int = eqx.field(static=True, default=1)
    substeps: int = eqx.field(static=True, default=1)
    method: Method = eqx.field(static=True, default="rk4")
    feedforward: Float[Array, "steps n"] | None = None
    lead: float = eqx.field(static=True, default=0.0)

    @classmethod
    def following(
        cls,
        trajectory: Callable[[Array], tuple[Array, Array, Array]],
        law: Any,
        duration: float,
        dt: float,
        every: int = 1,
        t_0: float = 0.0,
        substeps: int = 1,
        method: Method = "rk4",
    ) -> "ClosedLoop":
        """Create a closed loop that tracks a trajectory t -> (q, qd, qdd) for `duration` seconds.

        The loop starts in the initial state of the trajectory, and its `lead` is half a period. All other arguments are
        those of `ClosedLoop`.
        """
        with jax.enable_x64(True):
            t = t_0 + dt * jnp.arange(round(duration / dt) // every * every + 1, dtype=jnp.float64)
            q, qd, qdd = (jnp.asarray(x, jnp.float64) for x in trajectory(t))
            law = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), law)
            return cls(q, qd, qdd, law, (q[0], qd[0]), dt, t_0, every, substeps, method, lead=dt / 2)

    @classmethod
    def tracking(cls, samples: Samples, frequency: float = 60.0, period: float = 1e-3) -> "ClosedLoop":
        """Create a closed loop that tracks a measured motion, for logs with an unknown reference and controller.

        The control law is `ComputedTorqueLaw`, and the reference is a fifth-order spline through the filtered
        positions. Since the reference contains the noise that passed the filter, estimators that simulate the robot
        benefit less than they would from the actual reference. The control period differs from that of the real
        controller, so `lead` is zero.

        Args:
            samples: the run, which must be in one piece.
            frequency: bandwidth of the simulated controller [rad/s].
            period: upper bound on the period of the simulated controller [s]. The sample time is an integer multiple of
                the period used.

        Raises:
            IdentificationError: the samples are in several pieces.
        """
        if len(samples.segments) != 1:
            raise IdentificationError(
                f"a run in {len(samples.segments)} pieces cannot be simulated as one; pass each piece as a separate run"
            )
        spline = make_interp_spline(samples.t, samples.q, k=5)
        every = max(1, int(np.ceil(1 / (samples.rate * period) - 1e-9)))
        dt = 1 / (samples.rate * every)
        law = ComputedTorqueLaw(jnp.asarray(frequency), jnp.asarray(1.0))
        last = samples.t[-1]
        trajectory = lambda t: tuple(spline(np.minimum(np.asarray(t), last), nu=k) for k in range(3))
        loop = cls.following(trajectory, law, last - samples.t[0] + dt / 2, dt, every, float(samples.t[0]))
        return dataclasses.replace(loop, lead=0.0)

    @classmethod
    def replaying(cls, samples: Samples, law: Any, period: float = 1e-3) -> "ClosedLoop":
        """Create a closed loop driven by the measured torques and kept near the measured motion by feedback.

        The simulated torque is tau = tau_measured(t) + law(q_measured, q). Model errors move the simulated robot away
        from the measured motion, and this deviation increases as the law becomes softer. The reference and the gains of
        the real controller need not be known, because `law` acts as the corrector of a predictor (Ljung 1999, ch. 4).
        The measured torques determine the scale of the parameters.

        Args:
            samples: the run, which must be in one piece, with torques that are aligned in time with the positions.
            law: feedback law, for example `drive_gains(model, 30.0)`. Its bandwidth [rad/s] should be a few times the
                frequencies of the motion. With a much softer law, the simulated robot drifts so far that sensitivities
                are meaningless. With a much stiffer law, the loop is unstable for this period.
            period: upper bound on the period of the simulated controller [s]. The sample time is an integer multiple of
                the period used.

        Raises:
            IdentificationError: the samples are in several pieces.
        """
        loop = cls.tracking(samples, period=period)
        t = loop.t_0 + loop.dt * np.arange(len(loop.q))
        torque = make_interp_spline(samples.t, samples.tau, k=3)(np.minimum(t, samples.t[-1]))
        with jax.enable_x64(True):
            law = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), law)
            return dataclasses.replace(loop, law=law, feedforward=jnp.asarray(torque))

    @property
    def rate(self) -> float:
        """Rate of the samples that are compared with the log [1/s]."""
        return 1 / (self.dt * self.every)

    def rows(self, t: Float[np.ndarray, " N"], source: str = "the run") -> np.ndarray:
        """Indices of the loop's samples at the times t.

        Args:
            t: the times [s].
            source: name of the run, for error messages.

        Raises:
            IdentificationError: one of the times is not a sample time of the loop.
        """
        exact = (np.asarray(t) - self.t_0) * self.rate
        rows = np.round(exact).astype(int)
        last = (len(self.q) - 1) // self.every
        if np.abs(exact - rows).max() > 0.01 or rows.min() < 0 or rows.max() > last:
            raise IdentificationError(
                f"{source}: its samples, {t[0]:g} to {t[-1]:g} s, are not among those of the closed loop, {self.t_0:g} to "
                f"{self.t_0 + last / self.rate:g} s at {self.rate:g} Hz; use a reference that covers the run, with a "
                "period that divides the log's sample time"
            )
        return rows


class ClosedLoopMotion(NamedTuple):
    """Motion and torques of a simulated closed loop at its samples.

    Attributes:
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations due to the torques at the same instant [rad/s^2 or m/s^2].
        tau: commanded torques [N m or N].
    """

    q: Float[Array, "N n"]
    qd: Float[Array, "N n"]
    qdd: Float[Array, "N n"]
    tau: Float[Array, "N n"]


def simulate_closed_loop(
    loop: ClosedLoop,
    chain: Chain,
    columns: Columns | None = None,
    parameters: Float[Array, " p"] | None = None,
    noise: tuple[Float[Array, "steps n"], Float[Array, "steps n"]] | None = None,
    resistance: Float[Array, "steps n"] | None = None,
) -> ClosedLoopMotion:
    """Simulate the chain under the loop's control law: M qdd + C qd + g + friction (+ extra columns) = tau(q_r, q, qd).

    The simulation can be compiled, batched, and differentiated with respect to the parameters and the loop. The motion
    depends on the parameters only through the base parameters.

    Args:
        loop: the closed loop.
        chain: the robot.
        columns: regressor columns of the parameters. The torques of extra columns are part of the dynamics and must be
            affine in qdd.
        parameters: parameters in column order; by default the chain's parameters.
        noise: noise added to the positions and velocities that the control law receives [rad, rad/s or m, m/s].
        resistance: additional torques that resist the motion, at the control instants, for example friction with memory
            along the reference [N m or N].

    Returns:
        The motion at every `loop.every`-th control instant. It contains non-finite numbers if the loop is unstable.

    Raises:
        IdentificationError: the integration method is "implicit_damping", which changes the model's armature.

    Cost: one forward-dynamics evaluation per substep, or four with "rk4". In forward-mode differentiation, each
    evaluation also needs one set of Jacobians, which is multiplied by the tangent of each parameter.
    """
    if loop.method == "implicit_damping":
        raise IdentificationError(
            "closed loops cannot be simulated with 'implicit_damping'; use 'rk4' or 'semi_implicit_euler' with substeps"
        )
    columns = columns or Columns()  # the chain's drive terms act even if they are not among the columns
    known = parameters_of(chain, columns) if parameters is None else parameters
    values = jnp.asarray(known, loop.q.dtype)
    against = jnp.zeros_like(loop.q) if resistance is None else resistance
    added = jnp.zeros_like(loop.q) if loop.feedforward is None else loop.feedforward
    acceleration = lambda q, qd, tau: parametric_acceleration(columns, chain, values, q, qd, tau)

    def period(state, row):
        reference, disturbance, own, fed = row
        q, qd = state
        seen = (q, qd) if disturbance is None else (q + disturbance[0], qd + disturbance[1])
        torque = lambda q, qd, qdd: parametric_torque(columns, chain, values, q, qd, qdd) + own
        tau = loop.law(torque, reference, *seen) + fed

        def substep(state, _):
            x, xd = state
            step = jnp.asarray(loop.dt / loop.substeps, x.dtype)
            return advance(chain, x, xd, step, lambda _, y, yd, __: acceleration(y, yd, tau - own), loop.method), None

        state, _ = jax.lax.scan(substep, (q, qd), length=loop.substeps)
        return state, (q, qd, tau)

    _, (q, qd, tau) = jax.lax.scan(period, loop.start, ((loop.q, loop.qd, loop.qdd), noise, against, added))
    q, qd, tau, against = (x[:: loop.every] for x in (q, qd, tau, against))
    return ClosedLoopMotion(q, qd, jax.vmap(acceleration)(q, qd, tau - against), tau)
