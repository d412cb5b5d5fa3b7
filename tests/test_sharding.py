"""Batches whose rows lie on two devices, by every way that JAX has: the numbers are those of one device."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxdyn
from data_paths import ROOT
from helpers import random_mechanism
from users_programs.environment import environment

ALL = "within mesh,automatic,explicit,shard_batch,spread,shard_map,pmap"


@pytest.mark.parametrize(
    ("robot", "names", "ways", "count"),
    [
        pytest.param("arm", "step,distances", "explicit,shard_batch", 130, marks=pytest.mark.ci),
        pytest.param("arm", "step", ALL, 130, marks=pytest.mark.nightly),
        pytest.param("arm", "", ALL, 130, marks=pytest.mark.nightly),
        pytest.param("mechanism", "M,step", "explicit", 6, marks=pytest.mark.nightly),
        pytest.param("mechanism", "", ALL, 6, marks=pytest.mark.nightly),
    ],
)
def test_the_numbers_are_those_of_one_device(robot, names, ways, count):
    flags = "--xla_force_host_platform_device_count=2"
    command = [sys.executable, str(ROOT / "tests" / "sharded_batches.py"), robot, names, ways, str(count)]
    variables = {**environment(), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = ended.stdout.splitlines()
    assert lines and all(line.startswith("ok") for line in lines), ended.stdout


@pytest.mark.ci
def test_configurations_on_an_explicit_mesh_of_one_device():
    chain = random_mechanism(0)
    q = np.stack([jaxdyn.random_configuration(chain, key) for key in jax.random.split(jax.random.key(0), 2)])
    dq = np.random.default_rng(0).normal(size=(2, chain.nv))

    def moved(q, dq):
        return jaxdyn.difference(chain, q1=jaxdyn.integrate(chain, q=q, dq=dq), q0=q)

    mesh = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Explicit,))
    with jax.sharding.set_mesh(mesh):
        found = jax.jit(jax.vmap(moved))(*jax.device_put((q, dq), NamedSharding(mesh, PartitionSpec("rows"))))
    np.testing.assert_allclose(found, dq, atol=1e-12)
    np.testing.assert_allclose(moved(jnp.asarray(q[0]), jnp.asarray(dq[0])), dq[0], atol=1e-12)
