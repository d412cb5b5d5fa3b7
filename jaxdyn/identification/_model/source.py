"""`write_predictor`: a fitted model as source code for a controller."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp

from ...deployment import SourceFunction, write_source
from ...io._logs.motion import coordinate_names
from ...model._layout import turning_joints
from .torque_model import TorqueModel, in_float64


def write_predictor(model: TorqueModel, path: str | os.PathLike[str]) -> dict[str, Path]:
    """Write a model as C (path.c, path.h) and Python (path.py) code, for control loops without JAX or this library.

    The files define these functions, whose names in C are prefixed with the file name:

    - `start(q, memory)` computes the friction memory of a robot at rest at q, with relaxed friction.
    - `torque(memory, q, qd, qdd, tau, next)` computes the torques of one control cycle, with all terms of the model,
      and the memory for the next cycle.
    - `gravity(q, tau)` computes the torques that hold the robot still, from inverse dynamics, springs and further
      columns, without friction.
    - `at_temperature(memory, temperature, next)` sets the temperatures of the joints [°C]. It exists only if the model
      has `TemperatureDependent` friction.

    In C, `next` may be the same array as `memory`. In Python, the functions return their results, for example
    `tau, memory = torque(memory, q, qd, qdd)`. Positions, velocities, accelerations and torques are in SI units. The
    header of each file lists the joints in order.

    The torques equal those of `TorqueModel.torque` up to rounding. They are neither filtered nor delayed.
    `write_source` describes the properties of the code.

    Args:
        model: the fitted model.
        path: path of the files, without the suffix.

    Raises:
        DeploymentError: a user-defined term uses operations that `write_source` does not support.
        OutputError: a file cannot be written.

    Cost: one to two seconds. For seven joints, a call of the generated `torque` takes 1 us in C, and 10 to 20 us in
    Python.
    """
    with jax.enable_x64(True):
        double = in_float64(model)
        chain = double.chain
        memory = jax.eval_shape(double.start, jax.ShapeDtypeStruct((chain.nq,), jnp.float64)).shape
    q, qd = (chain.nq,), (chain.nv,)
    still = lambda q: double.load(q, jnp.zeros(qd), jnp.zeros(qd))
    functions = []
    if model.friction is not None and model.friction.needs_temperature:
        inputs = {"memory": memory, "temperature": qd}
        about = "The memory for joints at these temperatures [°C], which stay in effect until set again."
        functions = [SourceFunction("at_temperature", double.at_temperature, inputs, ("next",), about)]
    functions += [
        SourceFunction("start", double.start, {"q": q}, ("memory",), "Memory of a robot at rest at q."),
        SourceFunction(
            "torque",
            double.torque,
            {"memory": memory, "q": q, "qd": qd, "qdd": qd},
            ("tau", "next"),
            "Torques of one cycle, and the memory for the next one, which may be the same array.",
        ),
        SourceFunction("gravity", still, {"q": q}, ("tau",), "Torques that hold the robot still, without friction."),
    ]
    units = {
        name: ", rad and N m" if turn else ", m and N"
        for name, turn in zip(chain.joint_names, turning_joints(chain), strict=True)
    }
    rows = "\n".join(f"  {row}: {name}{units.get(name, '')}" for row, name in enumerate(coordinate_names(chain)))
    friction = "viscous, Coulomb and constant" if model.friction is None else ", ".join(model.terms)
    return write_source(path, functions, f"Torques of a robot. Friction: {friction}. Entries:\n{rows}")
