"""The measurements of one process: robots with states and references, checks and timing of calls, and records."""

import dataclasses
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np

from . import comparison, machine, operations, peers
from .quantities import Quantity, quantities
from .reference import reference
from .subjects import STEPS, Subject, Unavailable, states, subject
from .timing import in_turn, waited

ROWS = 4096  # number of different states; larger batches repeat them
CHUNK = 4096


def why(error: Exception) -> str:
    """The text of an error as one line, for the tables."""
    text = " ".join(str(error).split()) or "no message"
    return (text if isinstance(error, (Wrong, Unavailable)) else f"{type(error).__name__}: {text}")[:200]


class Wrong(Exception):
    """A result that differs from the reference by more than the tolerance; the message states the difference."""


@dataclasses.dataclass(eq=False)
class Case:
    """A robot with its states, its reference, and the correct results computed so far."""

    robot: Subject
    state: dict
    reference: object
    quantities: dict[str, Quantity]
    right: dict = dataclasses.field(default_factory=dict)

    def rows(self, count: int, names: tuple[str, ...] = ()) -> dict:
        """The first `count` states, repeated if there are fewer; if `names` are given, only these vectors."""
        given = {name: x for name, x in self.state.items() if name in names or not names}
        return {k: np.resize(x, (count, *x.shape[1:])) if count > len(x) else x[:count] for k, x in given.items()}

    def error(self, quantity: str, found: list[np.ndarray], precision: str, own: bool = True) -> float:
        """The relative difference of the results for the first states from the reference.

        Raises:
            Wrong: the difference exceeds the tolerance of the quantity and floating-point type.
        """
        count = 1 if quantity == "rollout_gradient" else min(comparison.CHECKED, len(found[0]))
        if self.right.get(quantity, (0,))[0] < count:
            self.right[quantity] = (count, self.reference.results(quantity, self.rows(count)))
        error = comparison.difference(found, self.right[quantity][1])
        if not error < comparison.tolerance(quantity, precision):
            raise Wrong(f"differs from {self.reference.name} by {error:.1e}")
        return error


class Session:
    """Settings and state shared by the parts of the suite.

    Attributes:
        options: options from the command line.
        precision: floating-point type of this process.
        records: results so far, one dictionary each.
    """

    def __init__(self, options, precision: str):
        self.options, self.precision, self.records = options, precision, []
        self.devices = jax.devices()

    def add(self, **record) -> None:
        """Keep a record and print it, to show progress."""
        record = {"precision": self.precision, **record}
        self.records.append(record)
        shown = [record.get(key) for key in ("part", "robot", "quantity", "library", "variant", "precision", "batch")]
        value = record.get("reason") or (f"{1e6 * record['seconds']:.3f} us" if record.get("seconds") else "")
        print("  ", *(str(x) for x in shown if x), value, file=sys.stderr, flush=True)

    @functools.cache  # noqa: B019, there is one session per process
    def case(self, name: str, rows: int = ROWS) -> Case:
        robot = subject(name)
        truth = reference(robot)
        state = states(robot, rows)
        state["tau"] = truth.torques(state)
        state["controls"] = np.broadcast_to(state["tau"][:, None], (rows, STEPS, robot.nv))
        return Case(robot, state, truth, quantities(robot))

    def wanted(self, case: Case, default: tuple[str, ...]) -> list[Quantity]:
        """The quantities selected on the command line, or the part's defaults, if this version of jaxdyn provides them."""
        return [case.quantities[name] for name in self.options.quantities or default if name in case.quantities]

    # -- jaxdyn

    def ours(self, case: Case, quantity: Quantity, batch: int, devices: int = 1, chunked: bool = False):
        """A call of jaxdyn that computes a batch, and the relative difference of its result from the reference.

        Raises:
            Wrong: the difference exceeds the tolerance.
        """
        state = case.rows(batch, quantity.arguments)
        chain = case.robot.chain
        arrays = [jnp.asarray(state[name], chain.dtype) for name in quantity.arguments]
        mapped = jax.vmap(quantity.function, (None, *[0] * len(arrays)))
        if chunked:
            one = lambda chain, *rows: jax.lax.map(lambda row: quantity.function(chain, *row), rows, batch_size=CHUNK)
            program = jax.jit(one)
        elif devices > 1:
            program, places = machine.spread(mapped, self.devices[:devices], len(arrays))
            chain, *arrays = (jax.device_put(x, place) for x, place in zip((chain, *arrays), places, strict=True))
        else:
            program = jax.jit(mapped)
        call = waited(program, chain, *arrays)
        first = jax.tree.map(lambda x: np.asarray(x[: comparison.CHECKED]), call())
        found = case.reference.layout.convert(quantity.form, first, case.rows(min(batch, comparison.CHECKED)))
        precision = jnp.dtype(chain.dtype).name
        return call, case.error(quantity.name, found, precision)

    def work(self, case: Case, quantity: Quantity) -> dict:
        """Operations per evaluation, and bytes of its arguments and results, counted from the batched program."""
        dtype = jnp.dtype(self.precision)
        chain = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), case.robot.chain)
        rows = case.rows(1)
        shapes = [jax.ShapeDtypeStruct((ROWS, *rows[name].shape[1:]), dtype) for name in quantity.arguments]
        mapped = jax.vmap(quantity.function, (None, *[0] * len(shapes)))
        counted = operations.count(mapped, chain, *shapes)
        moved = operations.size_in_bytes(shapes) + operations.size_in_bytes(jax.eval_shape(mapped, chain, *shapes))
        return {"operations": counted.operations / ROWS, "bytes": moved / ROWS}

    def fits(self, work: dict, batch: int) -> bool:
        """True if three times the arguments and results of a batch fit into memory."""
        limit = self.options.memory << 30 if self.options.memory else machine.memory_available() // 2
        return 3 * work["bytes"] * batch < limit

    def floor(self, work: dict, devices: int = 1) -> float:
        peak = machine.peaks(self.precision, self.options.budget, self.options.turns, devices)
        return machine.floor(work["operations"], work["bytes"], peak)

    # -- other libraries

    def libraries(self, part: str, case: Case, names) -> dict[str, dict[str, peers.Entry]]:
        """The libraries that can be measured here; for each of the others, a record states the reason."""
        found = {}
        for name in names:
            try:
                found[name] = self._peer(name, case)
            except Exception as error:  # any exception is a reason not to measure a library
                reason = why(error)
                self.add(part=part, robot=case.robot.name, library=name, reason=reason)
        return found

    @functools.cache  # noqa: B019
    def _peer(self, name: str, case: Case) -> dict[str, peers.Entry]:
        return peers.build(name, case.robot, case.state, self.precision)

    def theirs(self, case: Case, quantity: str, entry: peers.Entry, batch: int | None):
        """A call of another JAX library on a batch (or on one state if `batch` is None), and its relative difference.

        Raises:
            Wrong: the difference exceeds the tolerance.
        """
        count = batch or 1
        rows = [np.resize(x, (count, *x.shape[1:])) if count > len(x) else x[:count] for x in entry.arguments]
        arrays = [jnp.asarray(x, self.precision) for x in rows]
        if batch is None:
            arrays = [x[0] for x in arrays]
            call = waited(jax.jit(entry.function), *arrays)
            first = jax.tree.map(lambda x: np.asarray(x)[None], call())
        else:
            call = waited(jax.jit(jax.vmap(entry.function)), *arrays)
            first = jax.tree.map(lambda x: np.asarray(x[: comparison.CHECKED]), call())
        return call, case.error(quantity, entry.finish(first), self.precision)

    def time(self, calls: dict) -> dict:
        return in_turn(calls, self.options.budget, self.options.turns)
