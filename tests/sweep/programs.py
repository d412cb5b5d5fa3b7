"""The programs of the sweep: what users compile of one robot's functions, each checked in one way or another."""

import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxdyn

from .peers import Values, rotor_matrix, solved

TOLERANCE = 1e-11
CONSISTENCY = 1e-6  # of central differences
ROWS = 65
FUNCTIONS: dict[str, Callable] = {  # of robot, frame, state and torques or accelerations
    "inverse_dynamics": lambda c, f, q, v, u: jaxdyn.inverse_dynamics(c, q, v, u),
    "forward_dynamics": lambda c, f, q, v, u: jaxdyn.forward_dynamics(c, q, v, u),
    "crba": lambda c, f, q, v, u: jaxdyn.crba(c, q),
    "mass_matrix": lambda c, f, q, v, u: jaxdyn.mass_matrix(c, q),
    "coriolis_matrix": lambda c, f, q, v, u: jaxdyn.coriolis_matrix(c, q, v),
    "coriolis_force": lambda c, f, q, v, u: jaxdyn.coriolis_force(c, q, v),
    "bias_force": lambda c, f, q, v, u: jaxdyn.bias_force(c, q, v),
    "gravity_force": lambda c, f, q, v, u: jaxdyn.gravity_force(c, q),
    "regressor": lambda c, f, q, v, u: jaxdyn.regressor(c, q, v, u),
    "forward_kinematics": lambda c, f, q, v, u: jaxdyn.forward_kinematics(c, q),
    "jacobian": lambda c, f, q, v, u: jaxdyn.jacobian(c, q, f),
    "jacobian_derivative": lambda c, f, q, v, u: jaxdyn.jacobian_derivative(c, q, v, f),
    "centroidal_momentum_matrix": lambda c, f, q, v, u: jaxdyn.centroidal_momentum_matrix(c, q),
    "kinetic_energy": lambda c, f, q, v, u: jaxdyn.kinetic_energy(c, q, v),
    "potential_energy": lambda c, f, q, v, u: jaxdyn.potential_energy(c, q),
    "inverse_dynamics_derivatives": lambda c, f, q, v, u: jaxdyn.inverse_dynamics_derivatives(c, q, v, u),
    "forward_dynamics_derivatives": lambda c, f, q, v, u: jaxdyn.forward_dynamics_derivatives(c, q, v, u),
    "step": lambda c, f, q, v, u: jaxdyn.step(c, q, v, u, 1e-3),
}
_SOLVES = "forward_dynamics", "forward_dynamics_derivatives", "step"  # as exact as the mass matrix is well conditioned
_OF_MASS = (*_SOLVES, "centroidal_momentum_matrix")  # about a centre of mass
_KNOWN = "inverse_dynamics", "forward_dynamics", "crba", "forward_kinematics"
_AT_REST = "inverse_dynamics", "forward_dynamics", "bias_force", "coriolis_force", "regressor"
_SECOND = "inverse_dynamics_derivatives", "forward_dynamics_derivatives", "step", "coriolis_matrix"


class Wrong(Exception):
    """A description of a program's error."""


@dataclasses.dataclass
class Robot:
    """A robot with states, what is known of it there, and its functions compiled alone.

    Attributes:
        frame: a link, for Jacobians.
        states: q, v, and torques or accelerations.
        truths: what another program says at the states; empty where there is none.
        singular: loading warned that the mass matrix is, so that nothing which divides by it is tried.
        singles: results of the functions compiled alone, by name, at all states.
    """

    chain: jaxdyn.Chain
    frame: str
    states: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    truths: list[Values]
    singular: bool = False
    singles: dict[str, list[Any]] = dataclasses.field(default_factory=dict)

    def of(self, name: str) -> Callable:
        """The function of the state, as users close over their robot."""
        return functools.partial(FUNCTIONS[name], self.chain, self.frame)

    @functools.cache  # noqa: B019  one robot a process
    def compiled(self, name: str) -> Callable:
        return jax.jit(self.of(name))

    def single(self, name: str) -> list[Any]:
        if name not in self.singles:
            found = [jax.tree.map(np.asarray, self.compiled(name)(*state)) for state in self.states]
            if not all(np.isfinite(x).all() for x in jax.tree.leaves(found)):
                raise Wrong(f"{name}: not finite")
            self.singles[name] = found
        return self.singles[name]

    @functools.cached_property
    def condition(self) -> float:
        return max(float(np.linalg.cond(m)) for m in self.single("crba"))

    def tolerance(self, name: str) -> float:
        own = 64 * np.finfo(float).eps * self.condition if name in _SOLVES else 0.0
        return max(TOLERANCE, own)

    def __hash__(self) -> int:
        return id(self)


def same(name: str, found: Any, wanted: Any, tolerance: float, gaps: bool = False) -> None:
    """Raises Wrong unless all arrays agree, relative to the largest entry of each; with gaps where `wanted` is no NaN."""
    for k, (x, y) in enumerate(zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)):
        x, y = np.asarray(x, float), np.asarray(y, float)
        if x.shape != y.shape:
            raise Wrong(f"{name}: result {k} has shape {x.shape}, not {y.shape}")
        known = ~np.isnan(y) if gaps else np.ones(y.shape, bool)
        if not known.any() or not np.isfinite(y[known]).all():
            raise Wrong(f"{name}: nothing to compare result {k} with")
        if not np.isfinite(x[known]).all():
            raise Wrong(f"{name}: result {k} is not finite")
        off = np.abs(x - y)[known].max(initial=0)
        scale = max(np.abs(y)[known].max(initial=0), 1e-3)
        if off > tolerance * scale:
            raise Wrong(f"{name}: result {k} is off by {off:.2g} of {scale:.2g}")


def alone(robot: Robot, name: str) -> None:
    """Compiled alone: finite, what another program says, and what its own definition says."""
    found = robot.single(name)
    for values, (_, v, u), result in zip(robot.truths, robot.states, found, strict=False):
        if name == "forward_dynamics":
            if values["peer's error"] > 1e-6:
                raise Wrong("the other program's forward dynamics do not belong to its own mass matrix")
            exact = solved(values["crba"], u - values["bias_force"])
            same(name, result, exact, max(TOLERANCE, 10 * float(values["peer's error"])))
        elif name == "regressor":
            torques = result @ np.asarray(jaxdyn.inertial_parameters(robot.chain)).ravel() + _rotors(robot.chain) @ u
            same("Y pi", torques, values["inverse_dynamics"], TOLERANCE)
        elif (known := "crba" if name == "mass_matrix" else name) in values:
            same(name, result, values[known], TOLERANCE, gaps=True)
        elif name == "kinetic_energy":
            same(name, result, v @ values["crba"] @ v / 2, TOLERANCE)
        elif name == "coriolis_matrix":
            same("C v", result @ v, values["coriolis_force"], TOLERANCE)
    if name == "coriolis_matrix":
        v = robot.states[0][1]
        rate = _difference(robot, "crba", (v, 0 * v, 0 * v))[0]
        same("dM/dt = C + C^T", found[0] + found[0].T, rate, CONSISTENCY)


def _rotors(chain: jaxdyn.Chain) -> np.ndarray:
    """The part of the mass matrix that no link's inertia makes."""
    matrix = np.diag(chain.armature) + rotor_matrix(chain)
    s = np.eye(chain.n) if chain.coupling is None else np.asarray(chain.coupling.matrix)
    return s.T @ matrix @ s


def together(robot: Robot, names: list[str]) -> None:
    """Several functions in one program: the numbers of each alone."""
    found = jax.jit(lambda *state: [robot.of(name)(*state) for name in names])(*robot.states[0])
    for name, result in zip(names, found, strict=True):
        same(name, result, robot.single(name)[0], robot.tolerance(name))


def with_constants(robot: Robot, name: str, others: list[str]) -> None:
    """At rest, with the zeros known to the compiler, beside other functions; against the function of variables."""
    q, v, _ = robot.states[0]
    zero = jnp.zeros(robot.chain.nv)
    program = jax.jit(lambda q: [robot.of(n)(q, zero, zero) for n in (name, *others)])
    for n, result in zip((name, *others), program(q), strict=True):
        same(n, result, robot.compiled(n)(q, 0 * v, 0 * v), robot.tolerance(n))


def batched(robot: Robot, name: str) -> None:
    """65 states, which the states alone repeat."""
    count = len(robot.states)
    rows = [np.stack([robot.states[k % count][i] for k in range(ROWS)]) for i in range(3)]
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(robot.of(name)))(*rows))
    for k in range(ROWS):
        same(name, jax.tree.map(lambda x, k=k: x[k], found), robot.single(name)[k % count], robot.tolerance(name))


def _moved(robot: Robot, directions, h: float) -> tuple:
    q, v, u = robot.states[0]
    dq, dv, du = directions
    return jaxdyn.integrate(robot.chain, jnp.asarray(q), jnp.asarray(h * dq)), v + h * dv, u + h * du


def _difference(robot: Robot, name: str, directions, h: float = 1e-3) -> list[np.ndarray]:
    """The derivative along a direction by central differences of the function compiled alone, an array for each result."""
    at = lambda k: jax.tree.leaves(jax.tree.map(np.asarray, robot.compiled(name)(*_moved(robot, directions, k * h))))
    return [(a - 8 * b + 8 * c - d) / (12 * h) for a, b, c, d in zip(at(-2), at(-1), at(1), at(2), strict=True)]


def differentiated(robot: Robot, name: str) -> None:
    """Forwards and backwards in one program: against central differences, and against each other."""
    rng = np.random.default_rng(1)
    state, nv = tuple(map(jnp.asarray, robot.states[0])), robot.chain.nv
    directions = tuple(rng.normal(size=(3, nv)))
    weights = [rng.normal(size=np.shape(x)) for x in jax.tree.leaves(robot.single(name)[0])]

    def local(dq, dv, du):
        q, v, u = state
        return jax.tree.leaves(robot.of(name)(jaxdyn.integrate(robot.chain, q, dq), v + dv, u + du))

    @jax.jit
    def both(directions):
        zeros = (jnp.zeros(nv),) * 3
        forward = jax.jvp(local, zeros, directions)[1]
        return forward, jax.vjp(local, *zeros)[1]([jnp.asarray(w) for w in weights])

    forward, reverse = jax.tree.map(np.asarray, both(directions))
    wanted = _difference(robot, name, directions)
    looser = min(1 + 1e-6 * robot.condition, 1e3) if name in _SOLVES else 1.0
    same(f"derivative of {name}", forward, wanted, CONSISTENCY * looser)
    pushed = [w * x for w, x in zip(weights, forward, strict=True)]
    pulled = [d * x for d, x in zip(directions, reverse, strict=True)]
    gap = abs(sum(x.sum() for x in pushed) - sum(x.sum() for x in pulled))
    scale = sum(np.abs(x).sum() for x in (*pushed, *pulled)) + 1e-3
    if not gap <= 1e3 * robot.tolerance(name) * scale:
        raise Wrong(f"{name}: forwards and backwards differ by {gap:.2g} of {scale:.2g}")


def eagerly(robot: Robot, name: str) -> None:
    """Called as it stands, without `jax.jit`."""
    same(name, robot.of(name)(*map(jnp.asarray, robot.states[0])), robot.single(name)[0], robot.tolerance(name))


def in_single_precision(robot: Robot, name: str) -> None:
    """In float32: its type all through, and its accuracy."""
    low = jax.tree.map(lambda x: x.astype(jnp.float32), robot.chain)
    state = [x.astype(np.float32) for x in robot.states[0]]
    found = jax.jit(functools.partial(FUNCTIONS[name], low, robot.frame))(*state)
    if any(x.dtype != jnp.float32 for x in jax.tree.leaves(found)):
        raise Wrong(f"{name}: float32 does not stay so")
    exact = jax.tree.map(np.asarray, robot.compiled(name)(*(x.astype(float) for x in state)))
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(found)):
        raise Wrong(f"{name}: not finite in float32")
    if name not in _SOLVES:
        same(name, found, exact, 2e-3)
    elif robot.condition < 1e4:  # what is left of seven digits says nothing beyond
        same(name, found, exact, 1e-6 * max(robot.condition, 1e3))


def on_two_devices(robot: Robot, name: str, kind: str) -> None:
    """A batch whose rows lie on two devices, on a mesh of this kind of axis, or by `shard_batch`."""
    count = len(robot.states)
    rows = tuple(jnp.asarray(np.stack([robot.states[k % count][i] for k in range(8)])) for i in range(3))
    program = jax.jit(jax.vmap(robot.of(name)))
    if kind == "shard_batch":
        found = program(*jaxdyn.parallel.shard_batch(rows))
    else:
        mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType[kind],))
        with jax.sharding.set_mesh(mesh):
            found = program(*jax.device_put(rows, NamedSharding(mesh, PartitionSpec("rows"))))
    found = jax.tree.map(np.asarray, found)
    for k in range(8):  # four of each device
        same(name, jax.tree.map(lambda x, k=k: x[k], found), robot.single(name)[k % count], robot.tolerance(name))


def programs(robot: Robot, seed: int, devices: int, count: int) -> dict[str, Callable[[], None]]:
    """Some of 40 programs on one device, or 3 on two: every function alone, the rest drawn, so that all robots have all.

    Those that other programs know are always among them.
    """
    rng = random.Random(seed)
    names = [n for n in FUNCTIONS if n != "forward_dynamics_derivatives" or robot.chain.nv <= 40]
    massless = not np.any(robot.chain.inertia[:, 0])
    names = [n for n in names if not ((n in _SOLVES and robot.singular) or (n in _OF_MASS and massless))]
    found: dict[str, Callable[[], None]] = {}

    def add(title: str, check: Callable, *arguments: Any) -> None:
        found[title] = functools.partial(check, robot, *arguments)

    if devices == 2:
        for kind in ("Auto", "Explicit", "shard_batch"):
            two = ("inverse_dynamics", "forward_dynamics", "crba", "regressor", "step")
            name = rng.choice([n for n in two if n in names])
            add(f"{name} on two devices, {kind}", on_two_devices, name, kind)
        return found
    for name in names:
        add(f"{name} alone", alone, name)
    first = [n for n in names if n not in _SECOND]
    add("all together", together, first)
    for _ in range(6):
        pair = rng.sample(names, 2)
        add(f"{' and '.join(pair)}", together, pair)
    for name in rng.sample([n for n in _AT_REST if n in names], 3):
        add(f"{name} at rest", with_constants, name, rng.sample(("gravity_force", "crba", "potential_energy"), 1))
    for name in rng.sample(names, 4):
        add(f"{name} of {ROWS} states", batched, name)
    for name in rng.sample(first, 4):
        add(f"derivatives of {name}", differentiated, name)
    for name in rng.sample(names, 2):
        add(f"{name} eagerly", eagerly, name)
    for name in rng.sample(names, 2):
        add(f"{name} in float32", in_single_precision, name)
    kept = {f"{name} alone" for name in _KNOWN}
    others = [title for title in found if title not in kept]
    kept |= set(rng.sample(others, min(max(count - len(kept), 0), len(others))))
    return {title: check for title, check in found.items() if title in kept}
