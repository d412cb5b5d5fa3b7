"""`TorqueModel`: the complete fitted torque model, for evaluation along runs or by sample and for forward dynamics.

`write_predictor`: a fitted model as source code for a controller.

One simulation step of a complete model, with implicit friction for stability at rest with any friction stiffness.

Files of complete torque models, including terms that a chain cannot contain: `save_torque_model`, `load_torque_model`.

The file format is that of `save_model`, with two additions. The first line also lists the further terms with their class
and static fields, and the arrays of these terms follow those of the chain. Terms are found by their class name, so new
classes of terms are supported automatically."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import DTypeLike

from .._summary import Summary, lines
from ..deployment import SourceFunction, write_source
from ..dynamics import friction_force, inverse_dynamics, spring_force
from ..dynamics.friction import motor_friction
from ..dynamics.regressors import DriveTerm
from ..errors import IdentificationError, ModelError
from ..io.model_file import read_model, write_model
from ..model.chain import Chain, coordinate_names, turning_joints
from .base import motion_torque, rigid_torque
from .columns import RECIPES, Columns, ExtraColumns, joint_springs, motor_terms, prior_parameters
from .factors import as_float64, by_chunks
from .friction_model import FrictionModel, along_joints, chain_friction_model, joint_positions
from .friction_terms import FrictionTerm, term_kinds
from .prediction import filtering_of_friction
from .preprocessing import Samples

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
        if self.friction and self.chain.coupling is not None:
            raise IdentificationError("friction models need uncoupled joints")
        if self.extra and (topology.has_curved_joints or self.chain.coupling is not None):
            raise IdentificationError(
                "extra columns need a fixed base and uncoupled joints, none of which is spherical"
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

    def load(self, q: Float[Array, " nq"], qd: Float[Array, " n"], qdd: Float[Array, " n"]) -> Float[Array, " n"]:
        """Torques of the rigid body, rotors, springs and further columns, without friction [N m or N]."""
        tau = inverse_dynamics(self.chain, q, qd, qdd) + spring_force(self.chain, q)
        at = 0
        for extra in self.extra:
            assert self.extra_values is not None
            own = self.extra_values[at : at + len(extra.names)]
            tau, at = tau + extra.matrix(self.chain, q, qd, qdd) @ own, at + len(extra.names)
        return tau

    def start(self, q: Float[Array, " nq"]) -> Float[Array, "n m"]:
        """Initial friction memory of joints at rest at q, with relaxed friction, for `torque` and `acceleration`.

        Each row belongs to one joint. It contains the position at the last sample [rad or m], and the states of all
        terms with memory.
        """
        if self.friction is None:
            return q[:, None]
        q = joint_positions(self.chain, q)
        return jnp.zeros((len(q), self.friction.memory_size), q.dtype).at[:, 0].set(q)

    def at_temperature(self, memory: Float[Array, "n m"], temperature: Float[Array, " n"]) -> Float[Array, "n m"]:
        """Return the memory for joints at the given temperatures [°C], which remain in effect until they are set again.

        Only models with `TemperatureDependent` friction need this method; their `start` assumes the reference
        temperature. Other models return the memory unchanged.
        """
        return memory if self.friction is None else self.friction.at_temperature(memory, temperature)

    def torque(
        self, memory: Float[Array, "n m"], q: Float[Array, " nq"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
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
        columns = self.friction.columns(joint_positions(self.chain, q), qd, load, temperature)
        of_joints = jnp.einsum("tjk,jk->tj", columns, self.coefficients)
        return load + of_joints + jax.vmap(functools.partial(motor_friction, self.chain))(qd)

    def acceleration(
        self, memory: Float[Array, "n m"], q: Float[Array, " nq"], qd: Float[Array, " n"], tau: Float[Array, " n"]
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
                blocks = friction.blocks(along_joints(chain, s))[rows]
            else:
                whole = loads(s.q, s.qd, s.qdd)
                load, blocks = whole[rows], friction.blocks(along_joints(chain, s), whole)[rows]
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
        self, memory: Float[Array, "n m"], q: Float[Array, " nq"], qd: Float[Array, " n"]
    ) -> Float[Array, "n m"]:
        """Friction memory at the next sample, with positions q and velocities qd; `torque` returns the same memory."""
        return q[:, None] if self.friction is None else self.friction.step(memory, joint_positions(self.chain, q), qd)

    def friction_at(self, memory: Array, q: Array, qd: Array, load: Array) -> Array:
        """Friction at one sample, given the friction memory (from `advanced`) and the joint loads [N m or N]."""
        if self.friction is None or self.coefficients is None:
            return friction_force(self.chain, qd)
        columns = self.friction.columns_at(memory, joint_positions(self.chain, q), qd, load)
        of_joints = (columns * self.coefficients).sum(axis=1)
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
    delay: Float[np.ndarray, " n"] | None = None,
) -> TorqueModel:
    """Create the complete torque model of a fit, in the precision of the chain.

    Args:
        chain: the chain with the identified parameters in its leaves.
        columns: the identified columns, with the fitted nonlinear parameters of friction.
        parameters: the identified parameters; only those without a leaf in the chain are used.
        delay: delay removed from the logs [s].
    """
    like = lambda x: jnp.asarray(np.asarray(x), chain.dtype)
    rigid, friction = columns.of_state, columns.friction
    at = len(rigid.names(chain.n)) - sum(len(e.names) for e in columns.extra)
    extra, values = [], []
    for e in columns.extra:
        if e.leaf is None:
            extra.append(e)
            values.extend(np.asarray(parameters)[at : at + len(e.names)].tolist())
        at += len(e.names)
    return TorqueModel(
        chain,
        None if friction is None else jax.tree.map(like, friction.for_joints(chain.n)),
        None if friction is None else like(friction.by_joint(parameters, chain.n)),
        tuple(extra),
        like(values) if extra else None,
        None if delay is None else like(delay),
    )


# -- source


def write_predictor(model: TorqueModel, path: str | os.PathLike[str]) -> dict[str, Path]:
    """Write a model as C (path.c, path.h) and Python (path.py) code, for control loops without JAX or this library.

    The files define these functions, whose names in C are prefixed with the file name:

    - `start(q, memory)` computes the friction memory of a robot at rest at q, with relaxed friction.
    - `torque(memory, q, qd, qdd, tau, next)` computes the torques of one control cycle, with all terms of the model,
      and the memory for the next cycle.
    - `gravity(q, tau)` computes the torques that hold the robot still, from inverse dynamics, springs and further
      columns, without friction.
    - `at_temperature(memory, temperature, next)` sets the temperatures of the joints [°C]. It exists only if the model
      has `TemperatureDependent` friction.

    In C, `next` may be the same array as `memory`. In Python, the functions return their results, for example
    `tau, memory = torque(memory, q, qd, qdd)`. Positions, velocities, accelerations and torques are in SI units. The
    header of each file lists the joints in order.

    The torques equal those of `TorqueModel.torque` up to rounding. They are neither filtered nor delayed.
    `write_source` describes the properties of the code.

    Args:
        model: the fitted model.
        path: path of the files, without the suffix.

    Raises:
        DeploymentError: a user-defined term uses operations that `write_source` does not support.
        OutputError: a file cannot be written.

    Cost: one to two seconds. For seven joints, a call of the generated `torque` takes 1 us in C, and 10 to 20 us in
    Python.
    """
    with jax.enable_x64(True):
        double = in_float64(model)
        chain = double.chain
        memory = jax.eval_shape(double.start, jax.ShapeDtypeStruct((chain.nq,), jnp.float64)).shape
    q, qd = (chain.nq,), (chain.nv,)
    still = lambda q: double.load(q, jnp.zeros(qd), jnp.zeros(qd))
    functions = []
    if model.friction is not None and model.friction.needs_temperature:
        inputs = {"memory": memory, "temperature": qd}
        about = "The memory for joints at these temperatures [°C], which stay in effect until set again."
        functions = [SourceFunction("at_temperature", double.at_temperature, inputs, ("next",), about)]
    functions += [
        SourceFunction("start", double.start, {"q": q}, ("memory",), "Memory of a robot at rest at q."),
        SourceFunction(
            "torque",
            double.torque,
            {"memory": memory, "q": q, "qd": qd, "qdd": qd},
            ("tau", "next"),
            "Torques of one cycle, and the memory for the next one, which may be the same array.",
        ),
        SourceFunction("gravity", still, {"q": q}, ("tau",), "Torques that hold the robot still, without friction."),
    ]
    units = {
        name: ", rad and N m" if turn else ", m and N"
        for name, turn in zip(chain.joint_names, turning_joints(chain), strict=True)
    }
    rows = "\n".join(f"  {row}: {name}{units.get(name, '')}" for row, name in enumerate(coordinate_names(chain)))
    friction = "viscous, Coulomb and constant" if model.friction is None else ", ".join(model.terms)
    return write_source(path, functions, f"Torques of a robot. Friction: {friction}. Entries:\n{rows}")


# -- step

_ITERATIONS = 6


class Deviation(NamedTuple):
    """Deviation e of a simulated robot from a given motion.

    Attributes:
        position: e [rad or m].
        travelled: sum of dt e' over all steps [rad or m]; the friction memory uses this deviation instead of
            `position`.
        rate: e' [rad/s or m/s].
        memory: friction memory.
    """

    position: Float[Array, " n"]
    travelled: Float[Array, " n"]
    rate: Float[Array, " n"]
    memory: Float[Array, "n m"]


def advanced(
    model: TorqueModel,
    state: Deviation,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    tau: Float[Array, " n"],
    dt: Float[Array, ""],
) -> Deviation:
    """Deviation e from a given motion at the end of a step, at which the motion is (q, qd, qdd) and the torques are tau.

    The step solves load(q + e, qd + e', qdd + x) + f(e' + dt x) = tau for x = e'', with the friction f at the velocity
    and travel after the step. Then e' is increased by dt x, and e is integrated by the trapezoidal rule. The load is
    affine in x, equal to M x + b, where b depends on the previous state.

    Newton's method uses the slope of the friction, or the secant of the last iteration if it is steeper. With the slope
    alone, the iteration would oscillate across a sign change of the velocity.

    Cost: n + 1 evaluations of inverse dynamics, and the solution of six linear systems of n equations.
    """
    position, rate = state.position + dt * state.rate, state.rate
    load = lambda x: model.load(q + position, qd + rate, qdd + x)
    rows = jax.vmap(load)(jnp.concatenate([jnp.zeros((1, len(q)), q.dtype), jnp.eye(len(q), dtype=q.dtype)]))
    b, m = rows[0], (rows[1:] - rows[0][None]).T

    def end(x: Array) -> tuple[Array, Array, Array]:
        """Memory, position and velocity after a step."""
        later = rate + dt * x
        place, speed = q + state.travelled + dt * later, qd + later
        return model.advanced(state.memory, place, speed), place, speed

    def improved(_: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, before, f_before = now
        carried = b + m @ x
        f, slope = jax.jvp(lambda x: model.friction_at(*end(x), carried), (x,), (jnp.ones_like(x),))
        moved = x - before
        some = jnp.abs(moved) > 1e-9 * (1 + jnp.abs(x))
        secant = jnp.where(some, (f - f_before) / jnp.where(some, moved, jnp.ones_like(x)), jnp.zeros_like(x))
        slope = jnp.maximum(jnp.maximum(slope, secant), jnp.zeros_like(x))
        return x + jnp.linalg.solve(m + jnp.diag(slope), tau - f - carried), x, f

    still = jnp.zeros_like(q)
    x, _, _ = jax.lax.fori_loop(0, _ITERATIONS, improved, (still, still, still))
    later = rate + dt * x
    return Deviation(state.position + dt * (rate + later) / 2, state.travelled + dt * later, later, end(x)[0])


# -- file


def save_torque_model(model: TorqueModel, path: str | os.PathLike[str], about: Mapping[str, str] | None = None) -> None:
    """Save a complete model to one file, for example model.eqx, from which `load_torque_model` restores it bit for bit.

    `load_model` reads only the chain from such a file, and warns if the file contains further terms. If the model is
    only a chain, the file is identical to one written by `save_model`.

    Args:
        model: the model.
        path: the file.
        about: notes, which are stored as text in the first line.

    Raises:
        ModelError: the model has user-defined columns (`ExtraColumns`), which are functions and cannot be saved; or as
            for `save_model`. `dataclasses.replace(model, extra=(), extra_values=None)` removes such columns.
    """
    if own := [name for e in model.extra if e.recipe is None for name in e.names]:
        raise ModelError(
            f"the columns {', '.join(own)} are user-defined functions, which cannot be saved to a file",
            "save the model without them: dataclasses.replace(model, extra=(), extra_values=None)",
        )
    beyond: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    if model.friction is not None:
        assert model.coefficients is not None
        terms = [_described(term) for term in model.friction.terms]
        beyond["friction"] = {"cutoff": model.friction.cutoff, "terms": terms}
        arrays["coefficients"] = model.coefficients
        for k, term in enumerate(model.friction.terms):
            arrays |= {f"terms.{k}.{name}": value for name, value in _numbers(term)}
    if model.extra:
        assert model.extra_values is not None
        beyond["extra"] = [e.recipe for e in model.extra]
        arrays["extra_values"] = model.extra_values
    if model.delay is not None:
        arrays["delay"] = model.delay
    write_model(model.chain, path, about, beyond, arrays)


def load_torque_model(path: str | os.PathLike[str], *, dtype: DTypeLike | None = None) -> TorqueModel:
    """Read a model saved by `save_torque_model`, or a chain saved by `save_model`, from any version of the library.

    Args:
        path: the file.
        dtype: floating-point type of the leaves; by default that of the file.

    Raises:
        ModelError: as for `load_model`; or the class of a friction term is unknown. If it is your own subclass of
            `FrictionTerm`, import it first.
    """
    chain, beyond, arrays = read_model(path, dtype)
    try:
        friction = _friction(beyond["friction"], arrays) if "friction" in beyond else None
        extra = tuple(
            RECIPES[name](*(tuple(x) if isinstance(x, list) else x for x in arguments))
            for name, arguments in beyond.get("extra", ())
        )
        numbers = (arrays.get(name) for name in ("extra_values", "delay"))
        return TorqueModel(chain, friction, arrays.get("coefficients"), extra, *numbers)
    except ModelError as error:
        raise ModelError(error.fault, error.remedy, place=path) from None
    except Exception:  # JSON of another form can cause any exception
        raise ModelError("the first line does not describe a model; was the file edited by hand?", place=path) from None


def _friction(held: Mapping[str, Any], arrays: Mapping[str, Array]) -> FrictionModel:
    kinds, terms = term_kinds(), []
    for k, said in enumerate(held["terms"]):
        static = {name: tuple(x) if isinstance(x, list) else x for name, x in said["static"].items()}
        if (kind := kinds.get(said["kind"])) is None:
            raise ModelError(
                f"the class of the friction term {said['kind']} is unknown",
                "import the module that defines it first",
            )
        start = f"terms.{k}."
        static |= {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}
        terms.append(kind(**static))
    return FrictionModel(tuple(terms), held["cutoff"])


def _described(term: FrictionTerm) -> dict[str, Any]:
    """A term's class and static fields."""
    static = {f.name: getattr(term, f.name) for f in dataclasses.fields(term) if f.metadata.get("static")}
    return {"kind": type(term).__name__, "static": static}


def _numbers(term: FrictionTerm) -> Iterator[tuple[str, Array]]:
    for field in dataclasses.fields(term):
        if not field.metadata.get("static"):
            yield field.name, jnp.asarray(np.asarray(getattr(term, field.name)))
