"""Distances of all pairs of shapes on a robot, compared with Pinocchio's loop over coal in the same run.

Pinocchio has the same spheres, capsules and boxes, and the same pairs. Its loop in C++ places the shapes and computes distances
and closest points, called from Python once per state. The gradient is that of a sum of smooth penalties of all distances.
"""

import importlib.metadata
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import geometry

from ..session import Session
from ..timing import in_turn, waited

PART = "distances"
LOOP = 400  # states in one call of coal's loop
PANDA = "cmeel.prefix/share/example-robot-data/robots/panda_description/urdf/panda_collision.urdf"


def run(session: Session) -> None:
    for path in session.options.robots or [_panda()]:
        row = {"part": PART, "robot": Path(path).stem, "precision": session.precision}
        try:
            measure(session, row, path)
        except ImportError as why:
            session.add(**row, library="Pinocchio", reason=str(why))


def measure(session: Session, row: dict, path: str) -> None:
    """Add the times per state of one robot's distances, and the largest difference from those of coal."""
    chain = jaxdyn.load(path)
    shapes = geometry.read(path, chain)
    dtype = jnp.dtype(session.precision)
    chain, shapes = jax.tree.map(lambda x: x.astype(dtype), (chain, shapes))
    draw = lambda key: jaxdyn.random_configuration(chain, key)
    q = jax.vmap(draw)(jax.random.split(jax.random.key(0), session.options.batch)).astype(dtype)
    penalty = lambda q: jnp.sum(jnp.exp(-20 * geometry.distances(chain, shapes, q)))
    functions = {
        "distances": lambda q: geometry.distances(chain, shapes, q),
        "closest points": lambda q: geometry.closest_points(chain, shapes, q),
        "penalty": penalty,
        "penalty and gradient": jax.value_and_grad(penalty),
    }
    truth, loop = by_coal(chain, shapes, np.asarray(q[:LOOP], float))
    calls, compiled = {"coal": loop}, {}
    for label, function in functions.items():
        start = time.perf_counter()
        program = jax.jit(jax.vmap(function)).lower(q).compile()
        compiled[label] = time.perf_counter() - start
        calls[label] = waited(program, q)
    ours = np.asarray(jax.jit(jax.vmap(functions["distances"]))(q[:LOOP]), float)
    error = float(np.abs(ours - truth)[truth > 0].max())  # in overlap, coal's depths are not always the least
    # coal finds distances from cylinders by iterations, to its default tolerance of 1e-6
    allowed = 1e-9 if dtype == jnp.float64 and "cylinder" not in shapes.kinds else 1e-5
    if error > allowed:
        session.add(
            **row, library="jaxdyn", reason=f"distances differ from those of coal by {error:.1e} m", failed=True
        )
        return
    for label, seconds in in_turn(calls, session.options.budget, session.options.turns).items():
        by_us = label != "coal"
        count = len(q) if by_us else LOOP
        found = {"error": error, "compile_seconds": compiled[label]} if by_us else {}
        library = "jaxdyn" if by_us else "Pinocchio"
        session.add(
            **row,
            quantity=label,
            label=label,
            library=library,
            seconds=seconds / count,
            pairs=len(shapes.pairs),
            **found,
        )


def by_coal(chain: jaxdyn.Chain, shapes: geometry.Shapes, q: np.ndarray):
    """Distances by coal for all rows of q, and a call that computes them and drops the results."""
    import coal
    import pinocchio as pin

    placed = lambda pose: pin.SE3(np.asarray(pose, float)[:3, :3], np.asarray(pose, float)[:3, 3])
    model, joints = pin.Model(), []
    poses = np.tile(np.eye(4), (chain.n, 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = chain.rotation, chain.translation
    free = 6 if chain.topology.is_floating else 0
    for i, screw in enumerate(np.asarray(chain.screw, float)):
        if i < free:
            joints.append(
                joints[0] if joints else model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "free")
            )
            continue
        turns = screw[:3].any()
        joint = pin.JointModelRevoluteUnaligned(screw[:3]) if turns else pin.JointModelPrismaticUnaligned(screw[3:])
        parent = chain.topology.parents[i]
        joints.append(model.addJoint(joints[parent] if parent >= 0 else 0, joint, placed(poses[i]), f"joint {i}"))
    bodies = pin.GeometryModel()
    for k, (kind, link) in enumerate(zip(shapes.kinds, shapes.links, strict=True)):
        size, radius = np.asarray(shapes.size[k], float), float(shapes.radius[k])
        if kind not in ("sphere", "capsule", "box", "cylinder"):
            raise ImportError(f"this comparison has no {kind}")
        shape = coal.Box(*(2 * size)) if kind == "box" else coal.Sphere(radius)
        shape = coal.Capsule(radius, 2 * size[2]) if kind == "capsule" else shape
        shape = coal.Cylinder(size[0], 2 * size[2]) if kind == "cylinder" else shape
        bodies.addGeometryObject(
            pin.GeometryObject(f"shape {k}", joints[link] if link >= 0 else 0, placed(shapes.pose[k]), shape)
        )
    for a, b in shapes.pairs:
        bodies.addCollisionPair(pin.CollisionPair(a, b))
    data, results = model.createData(), bodies.createData()
    rows = np.concatenate([q[:, :3], q[:, 4:7], q[:, 3:4], q[:, 7:]], axis=1) if free else q
    if chain.coupling is not None:
        rows = q @ np.asarray(chain.coupling.matrix, float).T + np.asarray(chain.coupling.offset, float)

    def distances(row):
        pin.computeDistances(model, data, bodies, results, row)
        return [result.min_distance for result in results.distanceResults]

    def loop():
        for row in rows:
            pin.computeDistances(model, data, bodies, results, row)

    return np.array([distances(row) for row in rows]), loop


def _panda() -> str:
    package = importlib.metadata.distribution("example-robot-data")
    return str(package.locate_file(PANDA))
