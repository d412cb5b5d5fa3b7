"""Friction model of all joints, and its regressor columns along a run."""

import dataclasses
import functools
import itertools
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from ..errors import IdentificationError
from ..model.chain import Chain, is_ordinary, layout, leading_joints
from .factors import by_chunks
from .filters import low_pass
from .friction_terms import FrictionTerm, LoadDependent, Stribeck, TemperatureDependent, chain_terms
from .preprocessing import Samples

LENGTHS = 1024  # runs are padded to multiples of this length, so that few programs are compiled for terms with memory


class FrictionModel(eqx.Module):
    """Friction of all joints, as a sum of terms.

    The usual model is `FrictionModel((Viscous(), Coulomb(), Offset()))`. In a fit, the model's columns along a run
    (`signals`) replace the viscous, Coulomb and constant drive terms, and are combined with `Columns(("armature",))`.

    Attributes:
        terms: the terms.
        cutoff: low-pass cutoff of the measured torques [Hz]. The same filter is applied to the columns, so that both
            sides of tau = W x are filtered equally when friction changes sign. None means no filter.
    """

    terms: tuple[FrictionTerm, ...]
    cutoff: float | None = eqx.field(static=True, default=None)

    @property
    def needs_load(self) -> bool:
        """True if any term depends on the joint loads."""
        return any(term.needs_load for term in self.terms)

    @property
    def needs_temperature(self) -> bool:
        """True if any term depends on the joint temperatures."""
        return any(isinstance(term, TemperatureDependent) for term in self.terms)

    def for_joints(self, n: int) -> "FrictionModel":
        """Return the model with every nonlinear parameter expanded to one value for each of the n joints.

        Raises:
            IdentificationError: a nonlinear parameter is not positive, or is neither a single number nor one number per
                joint; or a term names an unknown joint.
        """
        for term in self.terms:
            if any(not 1 <= j <= n for j in term.joints or ()):
                raise IdentificationError(
                    f"{type(term).__name__} names joints {term.joints}; joints must be from 1 to {n}"
                )

        def spread(x):
            values = np.asarray(x, float)
            if values.shape not in ((), (n,)):
                raise IdentificationError(
                    f"a friction parameter has shape {values.shape}; for {n} joints it must be () or ({n},)"
                )
            if not np.all(np.isfinite(values) & (values > 0)):
                raise IdentificationError(
                    f"widths, velocity scales and exponents of friction must be positive; one of them is {values}"
                )
            return jnp.asarray(values if values.ndim else np.full(n, values))

        with jax.enable_x64(True):
            return jax.tree.map(spread, self)

    def chosen(self, n: int) -> Bool[np.ndarray, "n k"]:
        """Mask of each joint's columns among the k columns of all terms, in order."""
        rows = [[t.joints is None or j + 1 in t.joints for t in self.terms for _ in t.labels] for j in range(n)]
        return np.array(rows, bool).reshape(n, sum(len(term.labels) for term in self.terms))

    def stems(self) -> tuple[tuple[str, ...], ...]:
        """The labels of each term; one that several terms have is followed by letters that make it unlike all others."""
        count = Counter(label for term in self.terms for label in term.labels)
        taken, out = set(count), []
        for term in self.terms:
            row = []
            for label in term.labels:
                free = (label + end for end in _endings() if label + end not in taken)
                row.append(next(free) if count[label] > 1 else label)
                taken.add(row[-1])
            out.append(tuple(row))
        return tuple(out)

    def names(self, n: int) -> tuple[str, ...]:
        """Names of the linear parameters in the order of `signals`, one joint after another: fv1, fc1, off1, fv2, ..."""
        stems = [label for row in self.stems() for label in row]
        return tuple(f"{stems[k]}{j + 1}" for j, k in np.argwhere(self.chosen(n)).tolist())

    def by_joint(self, parameters: Float[np.ndarray, " p"], n: int) -> Float[np.ndarray, "n k"]:
        """Linear parameters, which are the last of all parameters, in one row per joint, with 0 for absent terms."""
        chosen = self.chosen(n)
        out = np.zeros(chosen.shape)
        out[chosen] = parameters[len(parameters) - chosen.sum() :]
        return out

    def joints(self, n: int) -> Int[np.ndarray, " f"]:
        """Joint of each linear parameter, counted from 0, in the order of `names`."""
        return np.argwhere(self.chosen(n))[:, 0]

    def units(self, turns: Sequence[bool]) -> tuple[str, ...]:
        """Units of the linear parameters, in the order of `names`; `turns` is True for revolute joints."""
        each = [[unit for term in self.terms for unit in term.units(bool(turn))] for turn in turns]
        return tuple(each[j][k] for j, k in np.argwhere(self.chosen(len(turns))).tolist())

    def blocks(self, samples: Samples, load: Float[np.ndarray, "N n"] | None = None) -> Float[np.ndarray, "N n k"]:
        """Columns of all linear parameters for samples at the log's rate (stride 1), by joint.

        The friction memory is relaxed at the start of each continuous piece of the samples. A column is zero for joints
        that do not have its term.

        Args:
            samples: the samples.
            load: rigid-body torques [N m or N]; required if a term depends on the load.

        Raises:
            IdentificationError: a term needs the load, but `load` is None; or a term needs temperatures, but the
                samples contain none.
        """
        return self._run(_blocks, samples, load)

    def slopes(self, samples: Samples, load: Float[np.ndarray, "N n"] | None = None) -> Float[np.ndarray, "N n k p"]:
        """Derivatives of `blocks` with respect to the logarithms of the p nonlinear parameters of each joint."""
        return self._run(_slopes, samples, load)

    def _run(self, function, samples, load):
        if load is None:
            if self.needs_load:
                raise IdentificationError("a friction term depends on the load; pass the rigid-body torques as load")
            load = np.zeros_like(samples.qd)
        heat = self.temperature(samples)
        model, out = self.for_joints(samples.n), []
        chosen = self.chosen(samples.n)
        with jax.enable_x64(True):
            for start, stop in samples.segments:
                size = stop - start
                fill = [(0, -size % LENGTHS), (0, 0)]
                parts = [np.pad(x[start:stop], fill, mode="edge") for x in (samples.q, samples.qd, load, *heat)]
                block = np.array(function(model, *parts))[:size]
                block *= chosen.reshape(1, *chosen.shape, *[1] * (block.ndim - 3))
                out.append(block if self.cutoff is None else low_pass(block, samples.rate, self.cutoff))
        return np.concatenate(out)

    def at_states(self, q: Float[np.ndarray, "N n"], qd: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n k"]:
        """Unfiltered columns at unrelated states, in the order of `names`; zero for terms that depend on anything else."""
        model, blocks = self.for_joints(qd.shape[1]), []
        with jax.enable_x64(True):
            for term in model.terms:
                if term.remembers or term.needs_load:
                    blocks.append(np.zeros((*qd.shape, len(term.labels))))
                else:
                    blocks.append(_blocks(FrictionModel((term,)), q, qd, np.zeros_like(qd)))
        return spread_blocks(np.concatenate(blocks, axis=2), self.chosen(qd.shape[1]))

    def signals(self, samples: Samples, load: Float[np.ndarray, "N n"] | None = None) -> Float[np.ndarray, "N n k"]:
        """`blocks` as columns of the stacked regressor, in the order of `names`, for `accumulate` and `predict`."""
        return spread_blocks(self.blocks(samples, load), self.chosen(samples.n))

    def temperature(self, samples: Samples) -> tuple[Float[np.ndarray, "N n"], ...]:
        """A tuple with the temperatures of the samples [°C], or an empty tuple if no term depends on temperature.

        Raises:
            IdentificationError: the samples do not contain temperatures.
        """
        if not self.needs_temperature:
            return ()
        if samples.temperature is None:
            raise IdentificationError(
                f"{samples.source}: friction depends on temperature, but not every joint has a logged temperature; log columns "
                "temperature1, ... (or one column temperature for all joints), or remove the term"
            )
        return (samples.temperature,)

    def at_temperature(
        self, memory: Float[Array, "*N n m"], temperature: Float[Array, "*N n"]
    ) -> Float[Array, "*N n m"]:
        """Return the memory for the given joint temperatures [°C]; unchanged if no term depends on temperature."""
        remembering = [term for term in self.terms if term.remembers]
        states = [
            term.warmth(temperature) if isinstance(term, TemperatureDependent) else memory[..., k]
            for k, term in enumerate(remembering, 1)
        ]
        return jnp.stack([memory[..., 0], *states], axis=-1)

    @property
    def memory_size(self) -> int:
        """Number of memory entries per joint: one for the position at the last sample, and one for each term with memory."""
        return 1 + sum(term.remembers for term in self.terms)

    def step(self, memory: Float[Array, "n m"], q: Float[Array, " n"], qd: Float[Array, " n"]) -> Float[Array, "n m"]:
        """Friction memory one sample later, for a model returned by `for_joints`."""
        travel, states = q - memory[:, 0], iter(memory[:, 1:].T)
        moved = [term.advance(next(states), travel, qd) for term in self.terms if term.remembers]
        return jnp.stack([q, *moved], axis=1)

    def columns_at(
        self,
        memory: Float[Array, "n m"],
        q: Float[Array, " n"],
        qd: Float[Array, " n"],
        load: Float[Array, " n"],
    ) -> Float[Array, "n k"]:
        """The columns of all terms for one sample, given the memory at this sample (`step`).

        Columns are also computed for joints that do not have the term.
        """
        states = iter(memory[:, 1:].T)
        none = jnp.zeros_like(q)
        parts = [term.at(q, qd, load, next(states) if term.remembers else none) for term in self.terms]
        return jnp.concatenate(parts, axis=1)

    def columns(
        self,
        q: Float[Array, "N n"],
        qd: Float[Array, "N n"],
        load: Float[Array, "N n"],
        temperature: Float[Array, "N n"] | None = None,
    ) -> Float[Array, "N n k"]:
        """Unfiltered columns of all terms along an evenly sampled run, with relaxed initial memory; traceable by JAX."""
        return jnp.concatenate([term.columns(q, qd, load, temperature) for term in self.terms], axis=2)

    def known(self, samples: Samples) -> Bool[np.ndarray, "N n"]:
        """Mask of samples at which the friction memory of a joint no longer depends on its unknown initial value.

        The memory is known as soon as the joint's positions since the start of the continuous piece span more than the
        largest `reach` of any term. It is always known at joints without any term.
        """
        reach = max(term.reach for term in self.terms)
        out = np.ones((len(samples), samples.n), bool)
        for start, stop in samples.segments if reach > 0 else ():
            q = samples.q[start:stop]
            out[start:stop] = np.maximum.accumulate(q, 0) - np.minimum.accumulate(q, 0) > reach
        return out | ~self.chosen(samples.n).any(axis=1)

    def nonlinear_names(self) -> tuple[str, ...]:
        """Names of a joint's nonlinear parameters in the order of `slopes`, such as width(fc) and velocity(fs)."""
        names = []
        for term, stems in zip(self.terms, self.stems(), strict=True):
            for path, _ in jax.tree_util.tree_flatten_with_path(term)[0]:
                names.append(f"{path[0].name}({stems[0]})")
        return tuple(names)


def _endings() -> Iterator[str]:
    """a, b, ..., z, aa, ab, ..."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=length))


def chain_friction_model(chain: Chain) -> tuple[FrictionModel, Float[Array, "n k"]] | None:
    """Express the friction of a chain's joints as a friction model and its coefficients; None for coupled or spherical joints.

    The friction of a transmission's motors is not included.
    """
    law = chain.friction
    if not is_ordinary(chain):
        return None
    terms, coefficients = chain_terms(law.coulomb_velocity), [law.viscous, law.coulomb, law.offset]
    if np.any(np.asarray(law.stribeck)):
        terms = (*terms, Stribeck(velocity=law.stribeck_velocity, width=law.coulomb_velocity))
        coefficients.append(law.stribeck)
    return FrictionModel(terms), jnp.asarray(np.stack([np.asarray(x) for x in coefficients], axis=1))


def joint_positions(chain: Chain, q: Any) -> Any:
    """Positions (.., nv) of the joints with one coordinate each, in the order of the velocities; zero for compound joints."""
    if chain.nq == chain.nv:
        return q
    own, where = np.zeros((chain.nq, chain.nv), q.dtype), layout(chain)
    own[where.entries, where.columns] = 1.0
    return q @ own


def along_joints(chain: Chain, samples: Samples) -> Samples:
    """Samples with the positions of `joint_positions`, along which friction is computed."""
    return dataclasses.replace(samples, q=joint_positions(chain, samples.q))


def usual_friction(chain: Chain) -> FrictionModel:
    """Viscous, Coulomb, constant and load-dependent friction with the chain's width of the smooth sign function."""
    width = np.asarray(chain.friction.coulomb_velocity, float)[leading_joints(chain)]
    return FrictionModel((*chain_terms(width), LoadDependent(width=width)))


def spread_blocks(
    blocks: Float[np.ndarray, "N n k"], chosen: Bool[np.ndarray, "n k"]
) -> Float[np.ndarray, "N n total"]:
    """The columns of all joints side by side; each is zero in the rows of the other joints."""
    where = np.argwhere(chosen)
    out = np.zeros((*blocks.shape[:2], len(where)))
    for column, (j, k) in enumerate(where.tolist()):
        out[:, j, column] = blocks[:, j, k]
    return out


def _blocks(model: FrictionModel, *samples: np.ndarray) -> np.ndarray:
    """Evaluate `FrictionModel.columns` with one compiled program per kind of term, for any joints and run lengths."""
    blocks = []
    for term in model.terms:
        program = functools.partial(_columns, dataclasses.replace(term, joints=None))
        blocks.append(
            np.asarray(program(*map(jnp.asarray, samples)) if term.remembers else by_chunks(program, *samples))
        )
    return np.concatenate(blocks, axis=2)


@eqx.filter_jit
def _columns(term: FrictionTerm, q: Array, qd: Array, load: Array, *temperature: Array) -> Array:
    return term.columns(q, qd, load, *temperature)


@eqx.filter_jit
def _slopes(model: FrictionModel, q: Array, qd: Array, load: Array, *temperature: Array) -> Array:
    def moved(shift: Array) -> Array:
        moving = shifted(model, jnp.broadcast_to(shift, (qd.shape[1], shift.size)))
        return moving.columns(q, qd, load, *temperature)

    # a joint's columns depend only on its own parameters, so one shift of all joints yields all derivatives
    return jax.jacfwd(moved)(jnp.zeros(len(jax.tree.leaves(model)), qd.dtype))


def shifted(model: FrictionModel, shift: Float[ArrayLike, "n p"]) -> FrictionModel:
    """A model from `for_joints`, with its nonlinear parameters multiplied by exp(shift)."""
    leaves, tree = jax.tree.flatten(model)
    factor = jnp.exp(jnp.asarray(shift))
    return jax.tree.unflatten(tree, [leaf * factor[:, p] for p, leaf in enumerate(leaves)])


def nonlinear_values(model: FrictionModel, n: int) -> Float[np.ndarray, "n p"]:
    """The nonlinear parameters of a model, one row per joint."""
    leaves = jax.tree.leaves(model.for_joints(n))
    return np.stack([np.asarray(leaf) for leaf in leaves], axis=1) if leaves else np.zeros((n, 0))
