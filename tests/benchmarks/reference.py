"""References with which all results are compared before they are timed: Pinocchio, or jaxdyn in float64.

Without Pinocchio, the reference is jaxdyn on the CPU in float64, after a check that its inverse and forward dynamics are
inverses of each other. This check is weaker, as the tables state, and requires 64-bit floats. The same reference is used for
chains of hundreds of joints, because Pinocchio's data contain four tensors of n^3 numbers, which take 32 GB for 1000 joints.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np

from .comparison import Layout
from .machine import memory_available
from .quantities import arguments, quantities
from .subjects import Subject, Unavailable


def reference(robot: Subject):
    """The reference for a robot: a `Pinocchio` or a `RoundTrip`."""
    if importlib.util.find_spec("pinocchio") is None or 4 * 8 * robot.nv**3 > memory_available() // 2:
        return RoundTrip(robot)
    from .peers.pinocchio_ import Pinocchio

    return Pinocchio(robot)


class RoundTrip:
    """The reference without Pinocchio: jaxdyn in float64 on the CPU."""

    name = "jaxdyn float64 on the CPU (without Pinocchio), after a round trip through inverse and forward dynamics"

    def __init__(self, robot: Subject):
        if not jax.config.read("jax_enable_x64"):
            raise Unavailable("without Pinocchio, results in float32 have no reference in float64")
        self.robot, self.layout = robot, Layout(robot)
        self.cpu = jax.devices("cpu")[0]
        self.quantities = quantities(robot)

    def torques(self, state: dict) -> np.ndarray:
        tau = self._run("inverse_dynamics", state)
        back = self._run("forward_dynamics", {**state, "tau": tau})
        error = np.abs(back - state["a"]).max() / np.abs(state["a"]).max()
        if not error < 1e-6:
            raise SystemExit(f"{self.robot.name}: forward dynamics does not undo inverse dynamics, by {error:.1e}")
        return tau

    def results(self, name: str, state: dict) -> list[np.ndarray]:
        return self.layout.convert(self.quantities[name].form, self._run(name, state), state)

    def _run(self, name: str, state: dict):
        quantity = self.quantities[name]
        with jax.default_device(self.cpu):
            arrays = [jax.device_put(x, self.cpu) for x in arguments(self.robot, quantity, state)]
            chain = jax.device_put(jax.tree.map(lambda x: jnp.asarray(x, float), self.robot.chain), self.cpu)
            program = jax.jit(jax.vmap(quantity.function, (None, *[0] * len(arrays))))
            return jax.device_get(program(chain, *arrays))
