"""Helpers for tests: random robots and states, compiled functions, and derivatives by finite differences."""

import dataclasses
import functools
import importlib.util
import inspect
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import Coupling, Friction, Springs, Topology, Transmission
from jaxdyn.model.chain import with_leaves


def random_inertia(rng: np.random.Generator) -> np.ndarray:
    """The ten inertial parameters of a random body that consists of twelve point masses."""
    points, masses = rng.normal(size=(12, 3)) * 0.2 + rng.normal(size=3) * 0.2, rng.uniform(0.05, 0.4, 12)
    second = np.einsum("k,ki,kj->ij", masses, points, points)
    inertia = np.trace(second) * np.eye(3) - second
    first = masses @ points
    i = inertia
    return np.array([masses.sum(), *first, i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    """A uniformly random rotation."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.sign(np.linalg.det(q))


def random_chain(n: int, seed: int = 0, joints: str = "mixed") -> jaxdyn.Chain:
    """A random chain of n joints; `joints` is "revolute", "prismatic", "helical" or "mixed" (with some axes off the origin)."""
    rng = np.random.default_rng(seed)
    screws = []
    for i in range(n):
        axis = rng.normal(size=3)
        axis /= np.linalg.norm(axis)
        kind = ("revolute", "prismatic", "helical", "offset")[i % 4] if joints == "mixed" else joints
        moment = {"revolute": 0 * axis, "helical": 0.15 * axis, "offset": np.cross(rng.normal(size=3), axis)}.get(kind)
        screws.append([0, 0, 0, *axis] if kind == "prismatic" else [*axis, *moment])
    chain = jaxdyn.make_chain(
        topology=Topology.serial(n, tip_name="tool"),
        frames={"tool": (n - 1, [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])},
        rotation=[random_rotation(rng) for _ in range(n)],
        translation=rng.normal(size=(n, 3)) * 0.3,
        screw=screws,
        inertia=[random_inertia(rng) for _ in range(n)],
        armature=rng.uniform(0, 0.1, n),
        friction=Friction(rng.uniform(0, 0.5, n), rng.uniform(0, 0.5, n), 0.1, offset=rng.normal(size=n) * 0.1),
    )
    chain = dataclasses.replace(
        chain,
        springs=Springs(rng.uniform(0, 2.0, n), rng.normal(size=n) * 0.1),
        gravity=jnp.asarray(rng.normal(size=3) * 5),
    )
    return with_leaves(
        chain,
        {
            "friction.stribeck": jnp.asarray(rng.uniform(0, 0.3, n)),
            "friction.stribeck_velocity": jnp.asarray(rng.uniform(0.2, 1.0, n)),
        },
    )


TYPES = {3: "spherical", 6: "free"}


def random_links(n: int, groups: list[tuple[int, int]], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Rotations, translations and inertias of n links; `groups` holds (first link, size) of each quaternion joint."""
    rotation, translation = np.array([random_rotation(rng) for _ in range(n)]), rng.normal(size=(n, 3)) * 0.3
    inertia = np.array([random_inertia(rng) for _ in range(n)])
    for link, size in groups:
        rotation[link + 1 : link + size], translation[link + 1 : link + size] = np.eye(3), 0
        inertia[link : link + size - 1] = 0
        if size == 6:
            rotation[link], translation[link] = np.eye(3), 0
    return rotation, translation, inertia


def random_mechanism(seed: int = 0, free: bool = True, coupled: bool = True) -> jaxdyn.Chain:
    """A random tree with a spherical joint, other joints of every kind, rotors and, if `free`, a free joint.

    If `coupled`, the last joint mimics the joint before it, and a matrix of gear ratios couples four motors to the last four
    joints.
    """
    rng = np.random.default_rng(seed)
    serial = random_chain(5, seed)
    groups, screws, parents = [], [], []
    if free:
        groups.append((0, 6))
        screws += list(np.eye(6))
        parents += [-1, 0, 1, 2, 3, 4]
    groups.append((len(screws), 3))
    parents += [len(screws) - 1, len(screws), len(screws) + 1]
    screws += list(np.eye(6)[:3])
    ball = len(screws) - 1
    trunk = ball - 3  # the base, -1, if there is no free joint
    parents += [ball, ball + 1, trunk, ball + 3, ball + 3]
    screws += list(np.asarray(serial.screw))
    n = len(screws)
    rotation, translation, inertia = random_links(n, groups, rng)
    leaves = {
        name: rng.uniform(0.01, 0.1, n) for name in ("armature", "viscous", "coulomb", "coulomb_velocity", "stiffness")
    }
    leaves["coulomb_velocity"] += 0.3
    leaves["stiffness"][: ball + 1] = 0
    coupling, transmission = None, None
    if coupled:
        matrix = np.eye(n, n - 1)
        matrix[-1, -1] = -0.7
        offset = np.zeros(n)
        offset[-1] = 0.2
        ratios = np.hstack([np.zeros((4, n - 4)), rng.normal(size=(4, 4)) * 2])
        motors = rng.uniform(0.01, 0.05, (4, 4)) + np.array([[0], [0], [0], [0.5]])
        coupling, none = Coupling(matrix, offset), np.zeros(4)
        friction = Friction(*motors[1:], none, none + 0.1, none)
        transmission = Transmission(ratios, motors[0], friction)
    chain = jaxdyn.make_chain(
        rotation,
        translation,
        screws,
        inertia,
        topology=Topology(
            tuple(parents), tip_name="tool", compound_joints=[(link, TYPES[size]) for link, size in groups]
        ),
        gravity=rng.normal(size=3) * 5,
        frames={"tool": (n - 2, [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])},
        armature=leaves["armature"],
        friction=Friction(
            leaves["viscous"], leaves["coulomb"], leaves["coulomb_velocity"], offset=rng.normal(size=n) * 0.1
        ),
    )
    springs = Springs(leaves["stiffness"], rng.normal(size=n) * 0.1)
    return dataclasses.replace(chain, springs=springs, coupling=coupling, transmission=transmission)


def mechanism_state(chain: jaxdyn.Chain, seed: int = 0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random q, v and a of a mechanism, which may have quaternion joints."""
    _, v, a = random_state(chain.nv, seed)
    return jaxdyn.random_configuration(chain, jax.random.key(seed)), v, a


def linear_friction(chain: jaxdyn.Chain) -> jaxdyn.Chain:
    """The same robot without Stribeck friction and springs, so that torques are linear in the identified parameters."""
    none = jnp.zeros_like(chain.armature)
    return with_leaves(chain, {"friction.stribeck": none, "springs.stiffness": none})


def random_state(n: int, seed: int = 0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random q, qd and qdd of n ordinary joints."""
    rng = np.random.default_rng(seed + 1000)
    return tuple(jnp.asarray(rng.normal(size=n)) for _ in range(3))


def relative(x, y) -> float:
    """The largest absolute difference, divided by the largest absolute entry of the reference y."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    assert x.shape == y.shape, (x.shape, y.shape)
    return float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-300)) if y.size else 0.0


def directions(arguments, seed=6):
    """The names of the arguments' leaves, and a stack of random directions, each of which changes a single leaf."""
    leaves, structure = jax.tree.flatten(arguments)
    rng = np.random.default_rng(seed)
    stacked = [np.zeros((len(leaves), *leaf.shape)) for leaf in leaves]
    for k, leaf in enumerate(leaves):
        stacked[k][k] = rng.normal(size=leaf.shape)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(arguments)[0]]
    return names, jax.tree.unflatten(structure, [jnp.asarray(x) for x in stacked])


# compile, without optimisation, a function that runs only once
once = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def numbered(chain: jaxdyn.Chain) -> tuple[jaxdyn.Chain, dict[str, str]]:
    """The same robot with numbers instead of names, and the number of each name.

    Robots with the same structure then have equal topologies, so they share compiled programs.
    """
    topology = chain.topology
    numbers = {name: str(i) for i, name in enumerate([topology.base_name, *topology.link_names, *topology.frame_names])}
    renamed = dataclasses.replace(
        topology,
        joint_names=tuple(map(str, range(len(topology.joint_names)))),
        link_names=tuple(numbers[name] for name in topology.link_names),
        frame_names=tuple(numbers[name] for name in topology.frame_names),
        base_name=numbers[topology.base_name],
        tip_name=topology.tip_name and numbers[topology.tip_name],
        coordinate_names=topology.coordinate_names and tuple(map(str, range(len(topology.coordinate_names)))),
    )
    return dataclasses.replace(chain, topology=renamed), numbers


@functools.cache
def coverage_check():
    """The module `docs/check_coverage.py`, which lists the public names."""
    spec = importlib.util.spec_from_file_location(
        "check_coverage", Path(__file__).parents[1] / "docs" / "check_coverage.py"
    )
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    return check


def public(name: str):
    """The public object with this name, from any of the namespaces of `jaxdyn`."""
    for module in (jaxdyn, *(getattr(jaxdyn, x) for x in coverage_check().NAMESPACES)):
        found = getattr(module, name, None)
        if found is not None and not inspect.ismodule(found):
            return found
    raise AttributeError(f"no namespace of jaxdyn has {name}")


class Compiled:
    """Public functions, such as `compiled.inverse_dynamics`, compiled once for all robots with the same structure."""

    def __getattr__(self, name: str):
        function = eqx.filter_jit(public(name))

        def call(chain, *arguments, **named):
            chain, numbers = numbered(chain)
            number = lambda x: numbers.get(x, x) if isinstance(x, str) else x
            return function(chain, *map(number, arguments), **{key: number(x) for key, x in named.items()})

        setattr(self, name, call)
        return call


compiled = Compiled()


@functools.partial(once, static_argnums=0)
def derivatives(f, arguments, along, cotangent):
    """Values, and derivatives along all directions: forward, reverse (with the cotangent), and by central differences."""
    h = 2e-4

    def moved(t, s):
        return jax.jvp(f, jax.tree.map(lambda x, d: x + s * d, arguments, t), t)

    offsets = jnp.asarray([-2 * h, -h, 0, h, 2 * h])
    values, tangents = jax.vmap(lambda t: jax.vmap(lambda s: moved(t, s))(offsets))(along)
    differences = (values[:, 0] - 8 * values[:, 1] + 8 * values[:, 3] - values[:, 4]) / (12 * h)
    pulled = jax.vjp(f, *arguments)[1](cotangent)
    reverse = sum(
        jnp.sum((a * b[None]).reshape(a.shape[0], -1), axis=1)
        for a, b in zip(jax.tree.leaves(along), jax.tree.leaves(pulled), strict=True)
    )
    return values[:, 2], tangents[:, 2], reverse, differences
