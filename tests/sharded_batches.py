"""A batch on two devices, however it came there, against the same batch on one; test_sharding.py runs it."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxdyn
from helpers import random_chain, random_mechanism, relative
from jaxdyn import geometry

ROWS = PartitionSpec("rows")


def functions(chain):
    """Of one state and torques, by name; the robot is closed over."""
    over = lambda function: functools.partial(function, chain)
    heights = np.random.default_rng(0).uniform(size=(6, 5))
    ball = geometry.make_shapes(chain, [geometry.sphere(chain.link_names[-1], 0.1)], pairs=[])
    shapes = geometry.with_environment(chain, ball, [geometry.height_field(heights, (2.0, 2.0))])
    return {
        "inverse dynamics": over(jaxdyn.inverse_dynamics),
        "forward dynamics": over(jaxdyn.forward_dynamics),
        "M": lambda q, v, a: jaxdyn.mass_matrix(chain, q),
        "C": lambda q, v, a: jaxdyn.coriolis_matrix(chain, q, v),
        "Y": over(jaxdyn.regressor),
        "forwards": lambda q, v, a: jax.jacfwd(over(jaxdyn.forward_dynamics), 1)(q, v, a),
        "backwards": lambda q, v, a: jax.grad(lambda *x: jnp.sum(jaxdyn.inverse_dynamics(chain, *x) ** 2), (1, 2))(
            q, v, a
        ),
        "distances": lambda q, v, a: geometry.distances(chain, shapes, q),  # whose kernels would search in a loop
        "step": lambda q, v, a: jaxdyn.step(chain, q, v, a, 0.01),
        "rollout": lambda q, v, a: jaxdyn.rollout(chain, q, v, jnp.stack([a] * 3), 0.01),
    }


def by_arrays(mesh, function, batch):
    with jax.sharding.set_mesh(mesh):
        return jax.jit(jax.vmap(function))(*jax.device_put(batch, NamedSharding(mesh, ROWS)))


def by_shard_map(mesh, function, batch):
    mapped = jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=ROWS, out_specs=ROWS, check_vma=False)
    return jax.jit(mapped)(*batch)


def within_mesh(mesh, function, batch):
    with jax.sharding.set_mesh(mesh):
        return by_shard_map(mesh, function, batch)


WAYS = {
    "within mesh": within_mesh,  # comes first: what other programs leave behind hides what fails here
    "automatic": by_arrays,
    "explicit": by_arrays,  # the mesh differs
    "shard_batch": lambda mesh, function, batch: jax.jit(jax.vmap(function))(*jaxdyn.parallel.shard_batch(batch)),
    "spread": lambda mesh, function, batch: jaxdyn.sharded_vmap(function)(*batch),
    "shard_map": by_shard_map,
    "pmap": lambda mesh, function, batch: jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]),
        jax.pmap(jax.vmap(function))(*(x.reshape(2, -1, *x.shape[1:]) for x in batch)),
    ),
}


def compare(chain, names, ways, count, tolerance=1e-12):
    rng = np.random.default_rng(0)
    q = np.stack([jaxdyn.random_configuration(chain, key) for key in jax.random.split(jax.random.key(0), count)])
    batch = tuple(map(jnp.asarray, (q, *rng.normal(size=(2, count, chain.nv)))))
    for name in names:
        function = functions(chain)[name]
        for way in ways:
            mesh = jax.make_mesh(
                (2,), ("rows",), axis_types=(AxisType.Explicit if way == "explicit" else AxisType.Auto,)
            )
            try:
                found = WAYS[way](mesh, function, batch)
                one = jax.jit(jax.vmap(function))(*batch)
                error = max(relative(x, y) for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(one), strict=True))
                print("ok" if error <= tolerance else "WRONG", way, name, count, error)
            except Exception as problem:
                print("FAILED", way, name, count, type(problem).__name__, str(problem)[:300].replace("\n", " "))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    assert jax.device_count() == 2
    chain = random_chain(4, joints="revolute") if sys.argv[1] == "arm" else random_mechanism(1)
    compare(
        chain, sys.argv[2].split(",") if sys.argv[2] else functions(chain), sys.argv[3].split(","), int(sys.argv[4])
    )
