"""The measured functions of jaxdyn, their arguments, and the form of their results."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

import jaxdyn

from .subjects import DT, STEPS, Subject


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A measured function, shown as one row of the tables.

    Attributes:
        name: name on the command line.
        label: name in the tables.
        function: function f(chain, *arguments) of one robot in one state.
        arguments: names of the state vectors that the function takes.
        form: form of the result, by which `comparison` converts it to the reference's layout.
    """

    name: str
    label: str
    function: Callable
    arguments: tuple[str, ...]
    form: str


def quantities(robot: Subject) -> dict[str, Quantity]:
    """All quantities that this version of jaxdyn provides, by name."""
    frame = robot.frame

    def roll(chain, q, v, controls):
        return jaxdyn.rollout(chain, q, v, controls, DT)

    def cost(controls, chain, q, v):
        positions, velocities = roll(chain, q, v, controls)
        return jnp.sum(positions[-1] ** 2) + jnp.sum(velocities[-1] ** 2)

    rows = [
        ("inverse_dynamics", "inverse dynamics", "inverse_dynamics", "q v a", "vector"),
        ("mass_matrix", "mass matrix (jacfwd)", "mass_matrix", "q", "matrix"),
        ("crba", "mass matrix (crba)", "crba", "q", "matrix"),
        ("mass_matrix_inverse", "inverse mass matrix", "mass_matrix_inverse", "q", "matrix"),
        ("coriolis_matrix", "Coriolis matrix", "coriolis_matrix", "q v", "coriolis"),
        ("gravity", "gravity", "gravity_force", "q", "vector"),
        ("frame_pose", "forward kinematics", lambda c, q: jaxdyn.frame_pose(c, q, frame), "q", "pose"),
        ("jacobian", "Jacobian", lambda c, q: jaxdyn.jacobian(c, q, frame), "q", "jacobian"),
        ("forward_dynamics", "forward dynamics", "forward_dynamics", "q v tau", "vector"),
        ("inverse_dynamics_derivatives", "d inverse dynamics", "inverse_dynamics_derivatives", "q v a", "matrices"),
        ("forward_dynamics_derivatives", "d forward dynamics", "forward_dynamics_derivatives", "q v tau", "matrices"),
        ("regressor", "regressor", "regressor", "q v a", "regressor"),
        ("step", "one step", lambda c, q, v, tau: jaxdyn.step(c, q, v, tau, DT), "q v tau", "state"),
        ("rollout", f"rollout of {STEPS} steps", roll, "q v controls", "states"),
        (
            "rollout_gradient",
            f"gradient of a rollout of {STEPS} steps",
            lambda c, q, v, controls: jax.grad(cost)(controls, c, q, v),
            "q v controls",
            "rows",
        ),
    ]
    found = {}
    for name, label, function, arguments, form in rows:
        function = (
            getattr(jaxdyn, function, getattr(jaxdyn.dynamics, function, None))
            if isinstance(function, str)
            else function
        )
        if function is not None:
            found[name] = Quantity(name, label, function, tuple(arguments.split()), form)
    return found


def arguments(robot: Subject, quantity: Quantity, state: dict, count: int | None = None) -> list[jax.Array]:
    """The first `count` rows of the state vectors that a quantity takes, in the robot's floating-point type."""
    return [jnp.asarray(state[name][:count], robot.chain.dtype) for name in quantity.arguments]
