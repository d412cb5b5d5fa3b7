"""Programs to compile for a GPU: functions of a robot and a batch of states, optimal control, and sharded batches."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import jaxdyn
from jaxdyn.parallel import sharded_sum

BATCH, STEPS, PROBLEMS = 65536, 1000, 4096


class Program(NamedTuple):
    """A function of arrays, the shapes of its arguments, and, for several devices, which arguments are sharded.

    Attributes:
        loop: True to count only one iteration of the most expensive loop whose length is unknown.
    """

    function: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    sharded: tuple[bool, ...] | None = None
    loop: bool = False


def cast(robot: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, dtype), robot)


def of_robot(robot: jaxdyn.Chain, dtype: Any, over: Callable, mesh: Any = None) -> dict[str, Program]:
    """Functions of a batch of states, with the robot's parameters compiled as constants."""
    robot, dt = cast(robot, dtype), dtype(1e-3)
    three = [(BATCH, robot.nq), (BATCH, robot.nv), (BATCH, robot.nv)]
    policy = lambda t, q, qd: -qd

    def swing(q, qd, gain):
        pd = lambda t, q, qd: -gain[0] * q - gain[1] * qd
        end = jaxdyn.rollout(robot, q, qd, pd, dt, STEPS, every=STEPS)
        return jnp.sum(end[0][-1] ** 2) + jnp.sum(end[1][-1] ** 2)

    of_state = {
        "inverse dynamics": lambda *x: jaxdyn.inverse_dynamics(robot, *x),
        "forward dynamics": lambda *x: jaxdyn.forward_dynamics(robot, *x),
        "mass matrix, composite bodies": lambda q, *_: jaxdyn.crba(robot, q),
        "mass matrix, differentiation": lambda q, *_: jaxdyn.mass_matrix(robot, q),
        "regressor": lambda *x: jaxdyn.regressor(robot, *x),
        "derivatives of inverse dynamics": lambda *x: jaxdyn.inverse_dynamics_derivatives(robot, *x),
        "derivatives of forward dynamics": lambda *x: jaxdyn.forward_dynamics_derivatives(robot, *x),
        "step": lambda *x: jaxdyn.step(robot, *x, dt),
        f"rollout, {STEPS} steps": lambda q, qd, _: jaxdyn.rollout(robot, q, qd, policy, dt, STEPS, every=STEPS),
    }
    found = {name: Program(over(f), three) for name, f in of_state.items()}
    if robot.nq == robot.nv:
        batched = over(swing, (0, 0, None))
        gradient = jax.grad(lambda *x: jnp.sum(batched(*x)), (0, 1, 2))
        found[f"gradient of a rollout, {STEPS} steps"] = Program(gradient, [*three[:2], (2, robot.nv)])
    return found


def of_solver(robot: jaxdyn.Chain, dtype: Any, over: Callable, mesh: Any = None) -> dict[str, Program]:
    """A shooting iteration, Riccati recursions, and rollouts under policies that `kernel_vmap` does not support."""
    from .shooting import KNOTS, reach

    robot, dt, n = cast(robot, dtype), dtype(1e-3), robot.nv

    def solve(start, goal):
        return jaxdyn.trajectory.solve_by_shooting(reach(robot, start, goal), max_iterations=30)

    def quadratic(dynamics, cost, end):
        return jaxdyn.trajectory.LinearQuadratic(dynamics, cost, end)

    def scheduled(t, q, qd):  # gains selected by an index that depends on the state: not supported by kernels
        gains = jnp.asarray([1, 2, 3, 4], dtype)
        return -gains[jnp.clip(q[0], 0, 3).astype(int)] * q - qd

    def ordered(t, q, qd):  # sorting: not supported by kernels
        return -jnp.sort(q) - qd

    roll = lambda policy: lambda q, qd: jaxdyn.rollout(robot, q, qd, policy, dt, STEPS, every=STEPS)
    two = [(BATCH, n)] * 2
    size = (PROBLEMS, KNOTS)
    lq = [(*size, 2 * n, 3 * n + 1), (*size, 3 * n, 3 * n + 1), (PROBLEMS, 2 * n, 2 * n + 1)]
    trajectory = jaxdyn.trajectory
    return {
        "shooting, an iteration": Program(over(solve), [(PROBLEMS, n)] * 2, loop=True),
        "Riccati recursion": Program(jax.vmap(lambda *x: trajectory.riccati(quadratic(*x))), lq),
        "rollout under a policy that sorts": Program(over(roll(ordered)), two),
        "rollout under a policy with scheduled gains": Program(over(roll(scheduled)), two),
    }


def on_devices(robot: jaxdyn.Chain, dtype: Any, over: Callable, mesh: Any = None) -> dict[str, Program]:
    """Functions of batches that are sharded over several devices, each of which evaluates `over` for its own rows."""
    robot, dt = cast(robot, dtype), dtype(1e-3)
    rows, gains = (BATCH, robot.nv), (2, robot.nv)

    def roll(gain, q, qd):
        pd = lambda t, q, qd: -gain[0] * q - gain[1] * qd
        q, qd = jaxdyn.rollout(robot, q, qd, pd, dt, STEPS, every=STEPS)
        return q[-1], qd[-1]

    def normal(q, qd, qdd, tau):
        y = jaxdyn.regressor(robot, q, qd, qdd)
        return y.T @ y, y.T @ tau

    def shards(function, in_axes=0):
        split, everywhere = PartitionSpec(mesh.axis_names), PartitionSpec()
        specs = split if in_axes == 0 else tuple(split if x == 0 else everywhere for x in in_axes)
        return jax.shard_map(over(function, in_axes), mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)

    rollouts = shards(roll, (None, 0, 0))
    gradient = jax.grad(lambda *x: sum(jnp.sum(y**2) for y in rollouts(*x)))
    of_state = {
        "inverse dynamics": jaxdyn.inverse_dynamics,
        "forward dynamics": jaxdyn.forward_dynamics,
        "derivatives of forward dynamics": jaxdyn.forward_dynamics_derivatives,
    }
    found = {
        name: Program(shards(functools.partial(f, robot)), [rows] * 3, (True,) * 3) for name, f in of_state.items()
    }
    return found | {
        f"rollout, {STEPS} steps": Program(rollouts, [gains, rows, rows], (False, True, True)),
        f"gradient of a rollout for gains, {STEPS} steps": Program(gradient, [gains, rows, rows], (False, True, True)),
        "normal matrix of an identification": Program(sharded_sum(normal, mesh=mesh), [rows] * 4, (True,) * 4),
    }


SETS = {"robot": of_robot, "solver": of_solver, "devices": on_devices}
