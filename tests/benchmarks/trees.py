"""Floating trees beside Pinocchio, in one run: `python -m tests.benchmarks.trees robot.urdf [...] [--batch N]`.

Inverse and forward dynamics of a whole batch without Python in either loop, and what compilation takes. Results are compared
with Pinocchio's before they are timed.
"""

import argparse
import os
import platform
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
# XLA keeps such a program on about one core a device: two devices share a batch between them as two threads do
jax.config.update("jax_num_cpu_devices", 2)

import pinocchio as pin  # noqa: E402

import jaxdyn  # noqa: E402
from jaxdyn.model.tree import walk_of  # noqa: E402
from tests.benchmarks.__main__ import in_turn, waited  # noqa: E402


def compiled(function, *arguments):
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.perf_counter() - start


def measure(path: str, batch: int) -> None:
    chain = jaxdyn.load(path, floating_base="root_joint", ignore_mimic=True, allow_nonphysical=True)
    model = pin.buildModelFromUrdf(path, pin.JointModelFreeFlyer())
    names = list(model.names)[1:]
    circles = [
        name for name, joint in zip(names, list(model.joints)[1:], strict=True) if (joint.nq, joint.nv) == (2, 1)
    ]
    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(lambda key: jaxdyn.random_configuration(chain, key))(keys)
    v, a = jax.random.normal(jax.random.key(1), (2, batch, chain.nv))
    there = jax.vmap(lambda x, y: jaxdyn.layouts.to_pinocchio_state(chain, x, y, names, circles))
    vectors = jax.vmap(lambda x: jaxdyn.layouts.to_pinocchio_vector(chain, x, names))
    pq, pv = (np.asfortranarray(np.asarray(x).T) for x in there(q, v))
    pa = np.asfortranarray(np.asarray(vectors(a)).T)

    over = (None, 0, 0, 0)
    inverse, inverse_seconds = compiled(jax.vmap(jaxdyn.inverse_dynamics, over), chain, q, v, a)
    forward, forward_seconds = compiled(jax.vmap(jaxdyn.forward_dynamics, over), chain, q, v, a)
    _, single_seconds = compiled(jaxdyn.inverse_dynamics, chain, q[0], v[0], a[0])
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    halves = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    spread = (jax.device_put(chain, everywhere), *(jax.device_put(x, halves) for x in (q, v, a)))
    inverse_on_two = jax.jit(jax.vmap(jaxdyn.inverse_dynamics, over))
    forward_on_two = jax.jit(jax.vmap(jaxdyn.forward_dynamics, over))
    spread_torque = inverse_on_two(*spread)
    pool = pin.ModelPool(model, 2)
    torque = inverse(chain, q, v, a)
    reference = pin.rneaInParallel(2, pool, pq, pv, pa)
    both = (torque, spread_torque)
    error = max(np.abs(np.asarray(vectors(x)).T - reference).max() for x in both) / np.abs(reference).max()
    if not error < 1e-11:
        raise SystemExit(f"{path}: differs from Pinocchio by {error:.1e}")
    pt = np.asfortranarray(reference)
    calls = {
        "jaxdyn inverse dynamics": waited(inverse, chain, q, v, a),
        "jaxdyn, batch on 2 devices": waited(inverse_on_two, *spread),
        "rneaInParallel, 1 thread": lambda: pin.rneaInParallel(1, pool, pq, pv, pa),
        "rneaInParallel, 2 threads": lambda: pin.rneaInParallel(2, pool, pq, pv, pa),
        "jaxdyn forward dynamics": waited(forward, chain, q, v, torque),
        "jaxdyn forward, 2 devices": waited(forward_on_two, *spread[:3], spread_torque),
        "abaInParallel, 1 thread": lambda: pin.abaInParallel(1, pool, pq, pv, pt),
        "abaInParallel, 2 threads": lambda: pin.abaInParallel(2, pool, pq, pv, pt),
    }
    walk = walk_of(chain.topology.parents)
    print(f"\n{os.path.basename(path)}: {chain.nv} velocities, {walk.registers} registers, max rel. error {error:.1e}")
    print(
        f"compiled in {inverse_seconds:.2f} s (inverse dynamics), {single_seconds:.2f} s (of one robot), "
        f"{forward_seconds:.2f} s (forward dynamics)"
    )
    for name, t in in_turn(calls, 5).items():
        print(f"{name:28s}{1e6 * t / batch:9.3f} us an evaluation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urdf", nargs="+")
    parser.add_argument("--batch", type=int, default=1024)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}")
    print(f"jax {jax.__version__}, Pinocchio {pin.__version__}, float64, batch {options.batch}")
    for path in options.urdf:
        measure(path, options.batch)


if __name__ == "__main__":
    main()
