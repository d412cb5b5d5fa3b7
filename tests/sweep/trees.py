"""Random trees: 1 to 60 links, every type of joint, mimic joints, motors on several joints, axes off the origin."""

import dataclasses

import numpy as np

import jaxdyn
from helpers import TYPES, random_links

_KINDS = "revolute", "prismatic", "helical", "offset"


def random_tree(seed: int) -> jaxdyn.Chain:
    """A robot of its seed."""
    rng = np.random.default_rng(seed)
    # as many small robots as large ones in every range of twice the size
    size = int(np.exp(rng.uniform(0, np.log(61))))
    groups: list[tuple[int, int]] = []
    screws: list[np.ndarray] = []
    parents: list[int] = []
    # where the next link may hang: on the last joint's or on one above it, as Pinocchio needs subtrees without gaps
    ends = [-1]
    if rng.random() < 0.3:
        _add_group(6, -1, groups, screws, parents, ends)
        ends.remove(-1)
    for _ in range(size):
        if rng.random() < 0.3:
            del ends[rng.integers(1, len(ends) + 1) :]
        parent = ends[-1]
        if rng.random() < 0.1:
            _add_group(3, parent, groups, screws, parents, ends)
        else:
            screws.append(_screw(rng))
            parents.append(parent)
            ends.append(len(screws) - 1)
    n = len(screws)
    rotation, translation, inertia = random_links(n, groups, rng)
    chain = jaxdyn.make_chain(
        rotation=rotation,
        translation=translation,
        screw=screws,
        inertia=inertia,
        armature=rng.uniform(0, 0.1, n) * (rng.random() < 0.5),
        gravity=rng.normal(size=3) * 5,
        topology=jaxdyn.Topology(tuple(parents), compound_joints=[(link, TYPES[size]) for link, size in groups]),
    )
    ordinary = [i for i in range(n) if not any(link <= i < link + size for link, size in groups)]
    last_group = max((link for link, _ in groups), default=-1)
    if len(ordinary) > 1 and ordinary[-1] > last_group and rng.random() < 0.3:  # their columns stay where they are
        chain = _with_mimic(chain, ordinary, rng)
    if len(ordinary) > 1 and rng.random() < 0.2:
        chain = _with_motors(chain, ordinary, rng)
    return chain


def _add_group(size, parent, groups, screws, parents, ends) -> None:
    first = len(screws)
    groups.append((first, size))
    screws.extend(np.eye(6)[:size])
    parents.extend([parent, *range(first, first + size - 1)])
    ends.append(len(screws) - 1)


def _screw(rng: np.random.Generator) -> np.ndarray:
    axis = np.eye(3)[rng.integers(3)] if rng.random() < 0.5 else rng.normal(size=3)
    axis = axis / np.linalg.norm(axis)
    kind = _KINDS[rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])]
    if kind == "prismatic":
        return np.concatenate([np.zeros(3), axis])
    moment = {"helical": 0.15 * axis, "offset": np.cross(rng.normal(size=3), axis)}.get(kind, np.zeros(3))
    return np.concatenate([axis, moment])


def _with_mimic(chain: jaxdyn.Chain, ordinary: list[int], rng: np.random.Generator) -> jaxdyn.Chain:
    """The last ordinary joint moves as another one does."""
    follower, leader = ordinary[-1], int(rng.choice(ordinary[:-1]))
    matrix = np.eye(chain.n)
    matrix[follower, leader] = rng.normal()
    return jaxdyn.with_coupling(chain, np.delete(matrix, follower, 1), 0.1 * np.eye(chain.n)[follower])


def _with_motors(chain: jaxdyn.Chain, ordinary: list[int], rng: np.random.Generator) -> jaxdyn.Chain:
    """Two motors that turn with two joints each."""
    matrix = np.zeros((2, chain.n))
    matrix[:, ordinary[:2]] = rng.normal(size=(2, 2)) * 5
    motors = jaxdyn.Transmission(matrix, rng.uniform(0.001, 0.01, 2), jaxdyn.Friction())
    return dataclasses.replace(chain, transmission=motors)
