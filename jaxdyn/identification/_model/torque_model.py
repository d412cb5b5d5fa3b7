"""`TorqueModel`: the complete fitted torque model, for evaluation along runs or by sample and for forward dynamics."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._summary import Summary, lines
from ...dynamics import friction_force, inverse_dynamics, spring_force
from ...dynamics._equations.drive_regressors import DriveTerm
from ...dynamics._equations.friction import motor_friction
from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.fit import FrictionFit
from .._friction.model import FrictionModel, chain_friction_model
from .._preprocessing.samples import Samples
from .._regression.columns import Columns, ExtraColumns, joint_springs, motor_terms, prior_parameters
from .._regression.completion import motion_torque, rigid_torque
from .._regression.prediction import filtering_of_friction
from .._regression.robot import as_float64
from .._regression.rows import by_chunks

_STEPS = 6  # Newton steps for accelerations with load-dependent friction


class TorqueModel(eqx.Module, Summary):
    """Identified torque model of a robot with all terms, including those that a `Chain` cannot contain.

        tau = inverse_dynamics(q, qd, qdd) + spring_force(q) + E(q, qd, qdd) e + f

    E contains further columns with parameters e, and f is friction. Without a friction model, f is the friction of the
    chain (`friction_force`). With a friction model, the friction of joint j is sum_k c_jk F_jk, plus the friction of the
    motors of a transmission. The columns F_jk may depend on memory and load, and c_jk are their coefficients.

    Obtain a model from `identify` (`Identification.model`), from a file (`load_torque_model`), or from any chain
    (`TorqueModel(chain)`). A model is a pytree, and its methods `torques`, `torque` and `acceleration` work under
    `jax.jit`, `jax.vmap` and `jax.grad`, in single and double precision. `predict` computes torques for the filtered
    samples of a log.

    Attributes:
        chain: the robot. With a friction model, the friction of the chain's joints is only an approximation for
            simulators and files, and the torque model does not use it.
        friction: the friction model, which replaces the friction of the chain's joints and has nonlinear parameters for
            each joint; None if there is none.
        coefficients: linear parameters c_jk of the friction model, one row per joint, in the order of
            `FrictionModel.blocks`.
        extra: further columns E, whose parameters the chain cannot contain.
        extra_values: parameters e of the further columns.
        delay: delay of the logged torques that was removed before the fit [s]. Predictions are not delayed.
    """

    chain: Chain
    friction: FrictionModel | None = None
    coefficients: Float[Array, "n k"] | None = None
    extra: tuple[ExtraColumns, ...] = eqx.field(static=True, default=())
    extra_values: Float[Array, " m"] | None = None
    delay: Float[Array, " n"] | None = None

    def __check_init__(self) -> None:
        topology = self.chain.topology
        if (self.friction or self.extra) and (topology.quaternion_joints or self.chain.coupling is not None):
            raise IdentificationError(
                "friction models and extra columns need a fixed base and uncoupled joints, none of which is spherical"
            )

    def __repr__(self) -> str:
        friction = "of the chain" if self.friction is None else ", ".join(self.terms)
        return lines(
            f"TorqueModel: {self.chain.nv} joints, {', '.join(self.chain.joint_names)}",
            f"friction: {friction}",
            f"further columns: {', '.join(name for e in self.extra for name in e.names)}" if self.extra else "",
        )

    @property
    def terms(self) -> tuple[str, ...]:
        """Class names of the friction model's terms; empty if there is no friction model."""
        return (
            () if self.friction is None else tuple(dict.fromkeys(type(term).__name__ for term in self.friction.terms))
        )

    @property
    def is_chain(self) -> bool:
        """True if the chain alone yields the same torques."""
        return self.friction is None and not self.extra

    @property
    def cutoff(self) -> float | None:
        """Cutoff of the low-pass filter on friction in the fit [Hz]; None if friction was not filtered."""
        return None if self.friction is None else self.friction.cutoff

    @property
    def needs_full_rate(self) -> bool:
        """True if `predict` needs samples at the log's rate (stride 1), because friction has memory or is filtered."""
        return self.friction is not None and (
            self.cutoff is not None or any(term.remembers for term in self.friction.terms)
        )

    @property
    def unfiltered(self) -> "TorqueModel":
        """The model without the low-pass filter on friction in `predict`, for comparison with raw torques."""
        if self.friction is None or self.cutoff is None:
            return self
        return dataclasses.replace(self, friction=dataclasses.replace(self.friction, cutoff=None))

    def filtered(self, cutoff: float | None) -> "TorqueModel":
        """The model with a low-pass filter on friction in `predict`, for comparison with filtered torques.

        The model is unchanged if its friction is already filtered, if joints are coupled, or if the cutoff is None.

        Args:
            cutoff: low-pass cutoff of the torques [Hz].
        """
        found = chain_friction_model(self.chain) if self.friction is None else (self.friction, self.coefficients)
        if cutoff is None or self.cutoff is not None or found is None:
            return self
        friction = dataclasses.replace(found[0].for_joints(self.chain.n), cutoff=cutoff)
        return dataclasses.replace(self, friction=friction, coefficients=found[1])

    def load(self, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]) -> Float[Array, " n"]:
        """Torques of the rigid body, rotors, springs and further columns, without friction [N m or N]."""
        tau = inverse_dynamics(self.chain, q, qd, qdd) + spring_force(self.chain, q)
        at = 0
        for extra in self.extra:
            assert self.extra_values is not None
            own = self.extra_values[at : at + len(extra.names)]
            tau, at = tau + extra.matrix(self.chain, q, qd, qdd) @ own, at + len(extra.names)
        return tau

    def start(self, q: Float[Array, " n"]) -> Float[Array, "n m"]:
        """Initial friction memory of joints at rest at q, with relaxed friction, for `torque` and `acceleration`.

        Each row belongs to one joint. It contains the position at the last sample [rad or m], and the states of all
        terms with memory.
        """
        if self.friction is None:
            return q[:, None]
        return jnp.zeros((len(q), self.friction.memory_size), q.dtype).at[:, 0].set(q)

    def at_temperature(self, memory: Float[Array, "n m"], temperature: Float[Array, " n"]) -> Float[Array, "n m"]:
        """Return the memory for joints at the given temperatures [°C], which remain in effect until they are set again.

        Only models with `TemperatureDependent` friction need this method; their `start` assumes the reference
        temperature. Other models return the memory unchanged.
        """
        return memory if self.friction is None else self.friction.at_temperature(memory, temperature)

    def torque(
        self, memory: Float[Array, "n m"], q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n m"]]:
        """Torques of one sample [N m or N], and the memory for the next sample; call this method once per control cycle.

        The time between calls may vary, because the memory depends on the travel since the last call.
        """
        memory = self.advanced(memory, q, qd)
        return self._torque_at(memory, q, qd, qdd), memory

    def torques(
        self,
        q: Float[Array, "N nq"],
        qd: Float[Array, "N nv"],
        qdd: Float[Array, "N nv"],
        temperature: Float[Array, "N nv"] | None = None,
    ) -> Float[Array, "N nv"]:
        """Torques along an evenly sampled run, with relaxed initial memory [N m or N].

        Args:
            temperature: temperatures of the joints for `TemperatureDependent` friction [°C]; by default the reference
                temperature of each term.
        """
        load = jax.vmap(self.load)(q, qd, qdd)
        if self.friction is None:
            return load + jax.vmap(functools.partial(friction_force, self.chain))(qd)
        of_joints = jnp.einsum("tjk,jk->tj", self.friction.columns(q, qd, load, temperature), self.coefficients)
        return load + of_joints + jax.vmap(functools.partial(motor_friction, self.chain))(qd)

    def acceleration(
        self, memory: Float[Array, "n m"], q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n m"]]:
        """Accelerations caused by the torques tau [rad/s^2 or m/s^2], and the memory for the next sample.

        The accelerations qdd solve torque(memory, q, qd, qdd) = tau, with all terms of the model. They are computed by
        Newton's method. One step suffices if the torques are linear in qdd; if friction depends on the load, six steps
        are taken.

        Cost: n + 1 evaluations of inverse dynamics and the solution of n linear equations per Newton step. For a model
        that is only a chain, `forward_dynamics` is faster.
        """
        memory = self.advanced(memory, q, qd)
        torque = lambda qdd: self._torque_at(memory, q, qd, qdd)
        improved = lambda _, qdd: qdd + jnp.linalg.solve(jax.jacfwd(torque)(qdd), tau - torque(qdd))
        steps = _STEPS if self.friction is not None and self.friction.needs_load else 1
        return jax.lax.fori_loop(0, steps, improved, jnp.zeros_like(qd)), memory

    def predict(
        self, samples: Samples, rows: Int[np.ndarray, " M"] | None = None, *, filtered: bool | None = None
    ) -> Float[np.ndarray, "M n"]:
        """Predict the torques for samples [N m or N], in double precision.

        The friction memory is relaxed at the start of each continuous piece of the samples. If joint friction was
        filtered in the fit (`FrictionModel.cutoff`), it is low-pass filtered with the torque cutoff of the samples.

        Args:
            samples: the samples. If `needs_full_rate` is True, they must have the log's rate (`preprocess` with stride
                1).
            rows: indices of the samples to predict, by default all. The memory and the low-pass filter are always
                computed from all samples.
            filtered: True to filter all dry friction, including that of the chain, with the torque cutoff of the
                samples, for comparison with their torques; False to filter none, for comparison with raw torques. The
                default is True if the model has a friction model that was filtered in the fit.

        Cost: one evaluation of inverse dynamics for each predicted sample, or for every sample if friction depends on
        the load.
        """
        s = samples
        rows = np.arange(len(s)) if rows is None else rows
        with jax.enable_x64(True):
            chain, extra, values = as_float64(self.chain), self.extra, self.extra_values
            values = None if values is None else np.asarray(values, float)
            filtered = self.cutoff is not None if filtered is None else filtered
            filtering = self._filtering(chain, samples)[rows] if filtered else 0.0
            if self.friction is None or self.coefficients is None:
                return motion_torque(chain, s.q[rows], s.qd[rows], s.qdd[rows], extra, values) + filtering
            if np.any(np.asarray(chain.springs.stiffness)):
                extra = (joint_springs(chain), *extra)
            loads = lambda q, qd, qdd: rigid_torque(chain, q, qd, qdd, extra, values)
            friction = self.friction
            if friction.cutoff is not None:  # use the cutoff of the measured torques
                friction = dataclasses.replace(friction, cutoff=s.torque_cutoff if filtered else None)
            if not friction.needs_load:
                load = loads(s.q[rows], s.qd[rows], s.qdd[rows])
                blocks = friction.blocks(s)[rows]
            else:
                whole = loads(s.q, s.qd, s.qdd)
                load, blocks = whole[rows], friction.blocks(s, whole)[rows]
            if chain.transmission is not None:
                load = load + by_chunks(functools.partial(_of_motors, chain), s.qd[rows])
        return load + np.einsum("tjk,jk->tj", blocks, np.asarray(self.coefficients, float)) + filtering

    def _filtering(self, chain: Chain, samples: Samples) -> Float[np.ndarray, "N n"]:
        """Change in the torques when dry friction outside the friction model is filtered like the measured torques."""
        drives: tuple[DriveTerm, ...] = ("coulomb",) if self.friction is None else ()
        columns = Columns(drives, (*motor_terms(chain, ("coulomb",)), *self.extra))
        known = prior_parameters(chain, columns)
        if self.extra_values is not None:
            known[len(known) - len(self.extra_values) :] = np.asarray(self.extra_values, float)
        return filtering_of_friction(columns, chain, known, samples)

    def memory(self, samples: Samples) -> Float[np.ndarray, "N n m"]:
        """Friction memory at every sample, relaxed at the start of each continuous piece of the samples."""
        pieces = samples.segments or ((0, len(samples)),)
        if self.friction is None:
            return samples.q[:, :, None]
        with jax.enable_x64(True):
            model = in_float64(self)
            parts = [_memory(model, jnp.asarray(samples.q[a:b]), jnp.asarray(samples.qd[a:b])) for a, b in pieces]
            out = jnp.concatenate(parts)
            for heat in self.friction.temperature(samples):
                out = self.friction.at_temperature(out, jnp.asarray(heat))
            return np.asarray(out)

    def advanced(
        self, memory: Float[Array, "n m"], q: Float[Array, " n"], qd: Float[Array, " n"]
    ) -> Float[Array, "n m"]:
        """Friction memory at the next sample, with positions q and velocities qd; `torque` returns the same memory."""
        return q[:, None] if self.friction is None else self.friction.step(memory, q, qd)

    def friction_at(self, memory: Array, q: Array, qd: Array, load: Array) -> Array:
        """Friction at one sample, given the friction memory (from `advanced`) and the joint loads [N m or N]."""
        if self.friction is None or self.coefficients is None:
            return friction_force(self.chain, qd)
        of_joints = (self.friction.columns_at(memory, q, qd, load) * self.coefficients).sum(axis=1)
        return of_joints + motor_friction(self.chain, qd)

    def _torque_at(self, memory: Array, q: Array, qd: Array, qdd: Array) -> Array:
        load = self.load(q, qd, qdd)
        return load + self.friction_at(memory, q, qd, load)


@jax.jit
def _of_motors(chain: Chain, qd: Array) -> Array:
    return jax.vmap(motor_friction, (None, 0))(chain, qd)


def in_float64(model: TorqueModel) -> TorqueModel:
    """The model in double precision, for use under `jax.enable_x64(True)`."""
    double = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), model)
    return dataclasses.replace(double, chain=as_float64(model.chain))


@eqx.filter_jit
def _memory(model: TorqueModel, q, qd):
    def body(memory, now):
        memory = model.advanced(memory, *now)
        return memory, memory

    return jax.lax.scan(body, model.start(q[0]), (q, qd))[1]


def torque_model(
    chain: Chain,
    columns: Columns,
    parameters: Float[np.ndarray, " p"],
    friction: FrictionFit | None = None,
    delay: Float[np.ndarray, " n"] | None = None,
) -> TorqueModel:
    """Create the complete torque model of a fit, in the precision of the chain.

    Args:
        chain: the chain with the identified parameters in its leaves.
        columns: the identified columns.
        parameters: the identified parameters; only those without a leaf in the chain are used.
        friction: the fitted friction.
        delay: delay removed from the logs [s].
    """
    like = lambda x: jnp.asarray(np.asarray(x), chain.dtype)
    names = columns.names(chain.n)
    at = len(names) - sum(len(e.names) for e in columns.extra)
    extra, values = [], []
    for e in columns.extra:
        if e.leaf is None:
            extra.append(e)
            values.extend(np.asarray(parameters)[at : at + len(e.names)].tolist())
        at += len(e.names)
    return TorqueModel(
        chain,
        None if friction is None else jax.tree.map(like, friction.model),
        None if friction is None else like(friction.coefficients),
        tuple(extra),
        like(values) if extra else None,
        None if delay is None else like(delay),
    )
