"""Torques and accelerations as functions of a parameter vector, with efficient sensitivities.

Output-error methods need forward-mode differentiation with hundreds of tangents. Because tau = W(q, qd, qdd) p is
linear in the parameters p, the recursions for the dynamics need not be repeated for each tangent. For each state, the
differentiation rules in this module compute all matrices once, and multiply them by the tangents.

Synthetic logs of a known robot along a trajectory, with friction and sensor noise, for tests and teaching.

Simulation of a robot with its controller, for estimators that compare the simulated motion with the measured one.

Position controllers and simulated logs of position-controlled arms, for Monte Carlo comparisons of estimators.

The protocol follows BIRDy (Leboutet, Roux, Janot, Guadarrama-Olvera & Cheng, "Inertial Parameter Identification in
Robotics: A Survey", Applied Sciences 2021). An arm is position-controlled, its positions and torques are noisy, and
estimators start from perturbed but physically consistent parameters."""

import dataclasses
import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import make_interp_spline

from ..dynamics import (
    bias_force,
    crba,
    forward_dynamics,
    friction_force,
    inverse_dynamics,
    inverse_dynamics_derivatives,
    resistive_force,
)
from ..dynamics.regressors import DRIVE_LEAVES
from ..errors import IdentificationError, ModelError
from ..io.logs import Log
from ..model.build import check_inertia
from ..model.chain import Chain, with_leaves
from ..simulation.integrate import Method, advance
from ..textbook.robots import panda
from .base import motion_torque, with_parameters
from .columns import Columns
from .excitation import FourierTrajectory, random_excitation
from .factors import as_float64
from .preprocessing import Samples


def parameters_of(chain: Chain, columns: Columns) -> Float[Array, " p"]:
    """Parameters of a chain in column order, with zeros for columns without a leaf in the chain.

    Unlike `prior_parameters`, this function is traceable by JAX.
    """
    drive = [attrgetter(DRIVE_LEAVES[term])(chain) for term in columns.drive_terms]
    rows = [chain.inertia.reshape(-1), *([jnp.stack(drive, axis=1).reshape(-1)] if drive else [])]
    for extra in columns.extra:
        none = jnp.zeros(len(extra.names), chain.dtype)
        rows.append(none if extra.leaf is None else attrgetter(extra.leaf)(chain)[jnp.array(extra.joints, int) - 1])
    return jnp.concatenate(rows)


def _extra_torque(columns: Columns, chain: Chain, parameters: Array, q: Array, qd: Array, qdd: Array) -> Array:
    """Torques of those extra columns that have no leaf in the chain."""
    at, torque = parameters.shape[0] - sum(len(e.names) for e in columns.extra), jnp.zeros_like(q)
    for extra in columns.extra:
        if extra.leaf is None:
            torque = torque + extra.matrix(chain, q, qd, qdd) @ parameters[at : at + len(extra.names)]
        at += len(extra.names)
    return torque


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def parametric_torque(
    columns: Columns,
    chain: Chain,
    parameters: Float[Array, " p"],
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Torque W(q, qd, qdd) p plus the torques of the chain's other terms, such as friction and springs [N m or N].

    The torque is differentiable with respect to the parameters p and the state. Its derivatives with respect to the
    chain's leaves are zero.
    """
    robot = with_parameters(chain, columns, parameters)
    tau = inverse_dynamics(robot, q, qd, qdd) + resistive_force(robot, q, qd)
    return tau + _extra_torque(columns, robot, parameters, q, qd, qdd) if columns.extra else tau


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def parametric_acceleration(
    columns: Columns,
    chain: Chain,
    parameters: Float[Array, " p"],
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    tau: Float[Array, " n"],
) -> Float[Array, " n"]:
    """Acceleration qdd that solves parametric_torque(columns, chain, p, q, qd, qdd) = tau [rad/s^2 or m/s^2].

    Extra columns must be affine in qdd. The differential is d qdd = M^-1 (d tau - W d p - d ID), where d ID is the
    change in torque due to changes in q and qd. As for `parametric_torque`, derivatives with respect to the chain's
    leaves are zero.
    """
    robot = with_parameters(chain, columns, parameters)
    driven = tau - resistive_force(robot, q, qd)
    if not columns.extra:
        return forward_dynamics(robot, q, qd, driven)
    own = lambda qdd: _extra_torque(columns, robot, parameters, q, qd, qdd)
    still = jnp.zeros_like(qd)
    return jnp.linalg.solve(crba(robot, q) + jax.jacfwd(own)(still), driven - bias_force(robot, q, qd) - own(still))


def _matrices(columns: Columns, chain: Chain, parameters: Array, q: Array, qd: Array, qdd: Array) -> tuple[Any, ...]:
    """The matrices W, d tau / d q, d tau / d qd and M of `parametric_torque` at one state."""
    robot = with_parameters(chain, columns, parameters)
    rigid = inverse_dynamics_derivatives(robot, q, qd, qdd)
    stiffness, damping = jax.jacfwd(lambda x, xd: resistive_force(robot, x, xd), argnums=(0, 1))(q, qd)
    parts = [rigid.q + stiffness, rigid.qd + damping, rigid.qdd]
    if columns.extra:
        more = jax.jacfwd(lambda *x: _extra_torque(columns, robot, parameters, *x), argnums=(0, 1, 2))(q, qd, qdd)
        parts = [a + b for a, b in zip(parts, more, strict=True)]
    return (columns.matrix(robot, q, qd, qdd), *parts)


@parametric_torque.defjvp
def _model_torque_jvp(columns, primals, tangents):
    _, dp, dq, dqd, dqdd = tangents
    w, by_q, by_qd, inertia = _matrices(columns, *primals)
    return parametric_torque(columns, *primals), w @ dp + by_q @ dq + by_qd @ dqd + inertia @ dqdd


@parametric_acceleration.defjvp
def _model_acceleration_jvp(columns, primals, tangents):
    chain, parameters, q, qd, _ = primals
    _, dp, dq, dqd, dtau = tangents
    qdd = parametric_acceleration(columns, *primals)
    w, by_q, by_qd, inertia = _matrices(columns, chain, parameters, q, qd, qdd)
    inverse = jnp.linalg.inv(inertia)
    return qdd, inverse @ (dtau - w @ dp - by_q @ dq - by_qd @ dqd)


# -- synthetic


def synthetic_log(
    chain: Chain,
    trajectory: FourierTrajectory,
    duration: float | None = None,
    rate: float = 1000.0,
    position_noise: float = 1e-5,
    torque_noise: float = 0.1,
    seed: int = 0,
    source: str = "synthetic",
) -> Log:
    """Create a log of a robot that follows a trajectory exactly, with white measurement noise.

    The torques along the trajectory are the sum of `inverse_dynamics` and `resistive_force`.

    Args:
        chain: the robot.
        trajectory: the trajectory, which the robot follows exactly.
        duration: duration of the log [s]; by default one period of the trajectory.
        rate: sample rate [1/s].
        position_noise: standard deviation of the encoder noise [rad or m].
        torque_noise: standard deviation of the torque noise [N m or N].
        seed: seed for the random noise.
        source: name of the log.
    """
    with jax.enable_x64(True):
        model = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
        t = np.arange(round((trajectory.period if duration is None else duration) * rate)) / rate
        q, qd, qdd = trajectory.sampled(t)
        torque = motion_torque(model, q, qd, qdd)
    rng = np.random.default_rng(seed)
    return Log(
        t=t,
        q=q + position_noise * rng.normal(size=q.shape),
        qd=None,
        tau=torque + torque_noise * rng.normal(size=q.shape),
        source=source,
    )


def example(seed: int = 0) -> tuple[Chain, Chain, list[Log], list[Log]]:
    """Create example data: a true 7R arm, a typical model of this arm, a log to fit and a log for validation.

    The true arm has friction, reflected rotor inertia and torque offsets, and the model has none of these. In the
    model, the inertial parameters of each link are wrong by a random factor with a standard deviation of 15 %, which is
    typical of CAD models. The log to fit lasts 20 s, and the one for validation 10 s. Each follows a random Fourier
    trajectory at 500 Hz, with encoder noise of 1e-5 rad and torque noise of 0.2 N m.
    """
    rng = np.random.default_rng(seed)
    model = panda()
    n = model.n
    truth = dataclasses.replace(
        model,
        armature=jnp.asarray([0.6, 0.6, 0.5, 0.5, 0.2, 0.2, 0.15], model.dtype),
        friction=dataclasses.replace(
            model.friction,
            viscous=jnp.asarray(rng.uniform(0.2, 1.2, n), model.dtype),
            coulomb=jnp.asarray(rng.uniform(0.2, 0.8, n), model.dtype),
            offset=jnp.asarray(rng.normal(size=n) * 0.1, model.dtype),
        ),
    )
    scale = jnp.asarray(1 + 0.15 * rng.normal(size=(n, 1)), model.dtype)
    prior = dataclasses.replace(model, inertia=model.inertia * scale)
    fit = synthetic_log(
        truth, random_excitation(truth, 10.0, 6, seed=1), 20.0, 500.0, 1e-5, 0.2, 2, "simulated excitation"
    )
    check = synthetic_log(
        truth, random_excitation(truth, 10.0, 5, seed=3), 10.0, 500.0, 1e-5, 0.2, 4, "simulated validation"
    )
    return truth, prior, [fit], [check]


# -- closed loop

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
            on average, half a period after it is commanded.
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


# -- monte carlo


class NoiseLevel(NamedTuple):
    """Standard deviations of white measurement noise.

    Attributes:
        position: standard deviation of the noise on positions [rad or m].
        torque: standard deviation of the noise on torques [N m or N].
    """

    position: float
    torque: float


_DEGREE = np.pi / 180
NOISE_LEVELS = {
    "low_position": NoiseLevel(1e-4 * _DEGREE, 0.05),
    "standard": NoiseLevel(1e-3 * _DEGREE, 0.05),
    "high_torque": NoiseLevel(1e-3 * _DEGREE, 0.1),
    "high_position": NoiseLevel(1e-2 * _DEGREE, 0.05),
    "high_both": NoiseLevel(1e-2 * _DEGREE, 0.1),
}


def drive_gains(chain: Chain, frequency: float = 120.0, damping: float = 1.0) -> ProportionalDerivativeLaw:
    """Create a position controller with bandwidth w and gains kp = w^2 J and kd = 2 z w J.

    As is usual in drive tuning, the inertia J of each joint is constant. It is the joint's diagonal entry of the mass
    matrix at q = 0 [kg m^2 or kg].

    Args:
        chain: the robot.
        frequency: bandwidth w [rad/s].
        damping: damping ratio z.
    """
    with jax.enable_x64(True):
        model = as_float64(chain)
        inertia = np.diag(np.asarray(crba(model, jnp.zeros(chain.n))))
        return ProportionalDerivativeLaw(
            jnp.asarray(frequency**2 * inertia), jnp.asarray(2 * damping * frequency * inertia)
        )


def closed_loop_log(
    chain: Chain,
    loop: ClosedLoop,
    noise: NoiseLevel = NOISE_LEVELS["standard"],
    seed: int = 0,
    source: str = "simulated",
) -> Log:
    """Simulate a log of a robot whose controller receives noisy positions.

    The log has the sample rate of the loop. The controller feeds the noise back into the torques and the motion, so the
    errors of the regressor and of the torques are correlated, as on a real robot.

    Args:
        chain: the true robot.
        loop: the closed loop.
        noise: standard deviations of the measurement noise.
        seed: seed for the random noise.
        source: name of the log.

    Raises:
        ModelError: the loop is unstable with this chain.
    """
    rng = np.random.default_rng(seed)
    q_noise = noise.position * rng.normal(size=np.shape(loop.q))
    with jax.enable_x64(True):
        seen = jnp.asarray(q_noise), jnp.zeros_like(jnp.asarray(q_noise))
        motion = _run(loop, as_float64(chain), seen)
        q, tau = np.asarray(motion.q), np.asarray(motion.tau)
    if not np.all(np.isfinite(q)):
        raise ModelError("the simulated closed loop is unstable; reduce its gains or its period")
    tau = tau + noise.torque * rng.normal(size=tau.shape)
    t = loop.t_0 + np.arange(len(q)) / loop.rate
    return Log(t=t, q=q + q_noise[:: loop.every], qd=None, tau=tau, source=source)


@jax.jit
def _run(loop, chain, seen):
    return simulate_closed_loop(loop, chain, noise=seen)


def perturbed_chains(chain: Chain, count: int, deviation: float = 0.15, seed: int = 0) -> list[Chain]:
    """Create physically consistent chains with randomly perturbed inertial, friction and rotor parameters.

    The chains serve as initial models for Monte Carlo comparisons. Each parameter is multiplied by 1 + `deviation` z,
    where z is a standard normal random number. The parameters of a link are drawn again until they are physically
    consistent.

    Args:
        chain: the robot to perturb.
        count: number of chains.
        deviation: relative standard deviation of each perturbed parameter.
        seed: seed for the random number generator.

    Raises:
        ModelError: no physically consistent parameters are found for a link in a thousand draws.
    """
    rng = np.random.default_rng(seed)
    inertia = np.asarray(chain.inertia, float)
    out = []
    for _ in range(count):
        rows = [_possible(rng, name, pi, deviation) for name, pi in zip(chain.link_names, inertia, strict=True)]
        leaves = {"inertia": np.stack(rows)}
        for name in DRIVE_LEAVES.values():
            leaves[name] = np.abs(1 + deviation * rng.normal(size=chain.n)) * np.asarray(attrgetter(name)(chain))
        out.append(with_leaves(chain, {name: jnp.asarray(x, chain.dtype) for name, x in leaves.items()}))
    return out


def _possible(rng: np.random.Generator, name: str, pi: np.ndarray, deviation: float) -> np.ndarray:
    for _ in range(1000):
        drawn = pi * (1 + deviation * rng.normal(size=10))
        try:
            check_inertia(name, drawn)
        except ModelError:
            continue
        return drawn
    raise ModelError(
        f"no physically consistent parameters of {name} were found with a perturbation of {100 * deviation:g} %; "
        "use a smaller one"
    )
