"""Time scalings, paths, linear-quadratic problems, costs and constraints."""

import dataclasses

import jax
import jax.numpy as jnp

import jaxdyn
from helpers import random_chain

from .case import Case, normal
from .spatial import each, poses, positive

DEAR = "time_optimal_path", "motion_along", "inverse_kinematics", "policy_costs", "shortest_duration"
TIMES = jnp.linspace(0.0, 1.0, 5)


def limited(n: int = 3) -> jaxdyn.Chain:
    limits = jaxdyn.JointLimits(jnp.tile(jnp.asarray([-2.5, 2.5]), (n, 1)), jnp.full(n, 2.0), jnp.full(n, 200.0))
    return dataclasses.replace(random_chain(n, joints="revolute"), limits=limits)


def scaling_cases(arm: jaxdyn.Chain) -> dict[str, Case]:
    unit = lambda rng: (jnp.asarray(rng.uniform(0.05, 0.3)),)
    path = lambda points: jaxdyn.trajectory.spline_path(points)
    grid, six = jnp.linspace(0.0, 1.0, 7), limited(6)

    def timed(points, t):
        fast = jaxdyn.trajectory.time_optimal_path(arm, path(points), points=41)
        return fast.t, jaxdyn.trajectory.motion_along(path(points), fast, t)

    motions = {
        "joint_motion": Case(lambda a, b: jaxdyn.trajectory.joint_motion(arm, a, b, 1.2, TIMES), normal(3, 3)),
        "cartesian_motion": Case(
            lambda a, b: jaxdyn.trajectory.cartesian_motion(a, b, 1.2, TIMES), each(poses, poses), accuracy=1e6
        ),
        "screw_motion": Case(
            lambda a, b: jaxdyn.trajectory.screw_motion(a, b, 1.2, TIMES), each(poses, poses), accuracy=1e6
        ),
    }
    for case in ("cartesian_motion", "screw_motion"):  # between matrices that differences turn into no poses
        motions[case] = motions[case]._replace(smooth=False)
    return motions | {
        "cubic_scaling": Case(jaxdyn.trajectory.cubic_scaling, unit),
        "quintic_scaling": Case(jaxdyn.trajectory.quintic_scaling, unit),
        "trapezoidal_scaling": Case(jaxdyn.trajectory.trapezoidal_scaling, unit),
        "shortest_trapezoid": Case(jaxdyn.trajectory.shortest_trapezoid, positive(3, 3, 3), smooth=False),
        "shortest_duration": Case(
            lambda a, b: jaxdyn.trajectory.shortest_duration(arm, jaxdyn.trajectory.straight_path(a, b), samples=21),
            normal(3, 3),
            smooth=False,
        ),
        "straight_path": Case(lambda a, b: jaxdyn.trajectory.straight_path(a, b)(jnp.asarray(0.4)), normal(3, 3)),
        "spline_path": Case(lambda points: jax.vmap(path(points))(grid), normal((4, 3))),
        "path_dynamics": Case(lambda points: jaxdyn.trajectory.path_dynamics(arm, path(points), grid), normal((4, 3))),
        "time_optimal_path": Case(
            lambda points: timed(points, TIMES),
            normal((4, 3), scale=0.3),
            smooth=False,
            derivatives=False,
            accuracy=1e9,
        ),
        "motion_along": Case(
            lambda points, t: timed(points, t * TIMES)[1],
            each(normal((4, 3), scale=0.3), positive(())),
            False,
            accuracy=1e9,
        ),
        "position_limits": Case(lambda x: jaxdyn.trajectory.position_limits(arm, 0.1).lower + x, normal(3)),
        "velocity_limits": Case(lambda x: jaxdyn.trajectory.velocity_limits(arm, 0.9).limit + x, normal(3)),
        "torque_limits": Case(lambda x: jaxdyn.trajectory.torque_limits(arm, 0.9)[:, 0] + x, normal(3)),
        "coordinate_limits": Case(lambda x: jaxdyn.trajectory.coordinate_limits(arm)[:, 0] + x, normal(3)),
        "inverse_kinematics": Case(
            lambda q: jaxdyn.inverse_kinematics(six, jaxdyn.frame_pose(six, q), guess=q + 0.01, starts=2).q,
            normal(6, scale=0.7),
            smooth=False,
            accuracy=1e9,
        ),
    }


def quadratic_cases() -> dict[str, Case]:
    steps, n, m = 6, 4, 2

    def problem(a, b, root):
        """Stable steps and convex costs."""
        convex = root @ jnp.swapaxes(root, 1, 2) + jnp.eye(n + m)
        return jaxdyn.trajectory.linear_quadratic(
            0.4 * a, b, convex[:, :n, :n], convex[:, n:, n:], jnp.eye(n), S=convex[:, :n, n:], q=a[:, 0], r=b[:, 0]
        )

    given = normal((steps, n, n), (steps, n, m), (steps, n + m, n + m), n)
    box = jnp.full((steps, m), -0.3), jnp.full((steps, m), 0.3)
    exact = {"accuracy": 1e7}
    in_turn = {**exact, "derivatives": False}  # the recursion has no derivative backwards

    return {
        "linear_quadratic": Case(lambda a, b, c, _: problem(a, b, c), given),
        "riccati": Case(lambda a, b, c, _: jaxdyn.trajectory.riccati(problem(a, b, c)).gains, given, **in_turn),
        "solve_lq": Case(lambda a, b, c, x: jaxdyn.trajectory.solve_lq(problem(a, b, c), x).states, given, **in_turn),
        "solve_lq, with bounds": Case(
            lambda a, b, c, x: jaxdyn.trajectory.solve_lq(problem(a, b, c), x, box).controls, given, **in_turn
        ),
    }


def problem_cases(arm: jaxdyn.Chain) -> dict[str, Case]:
    target = jaxdyn.frame_pose(arm, jnp.asarray([0.3, -0.4, 0.5]))
    knot = lambda q, v, tau: jaxdyn.trajectory.Knot(jnp.asarray(1), 0.1 * q[0], q, v, tau, 0.5 * tau, jnp.asarray(0.1))
    three = normal(3, 3, 3)
    balls = [jaxdyn.geometry.sphere("tool", 0.1), jaxdyn.geometry.sphere(arm.topology.base_name, 0.2)]
    shapes = jaxdyn.geometry.make_shapes(arm, balls, pairs=[(0, 1)])
    parts = {
        "StateCost": jaxdyn.trajectory.StateCost(jnp.zeros(3), jnp.zeros(3), 2.0, 0.5),
        "TorqueCost": jaxdyn.trajectory.TorqueCost(0.1),
        "TorqueRateCost": jaxdyn.trajectory.TorqueRateCost(0.1),
        "PoseCost": jaxdyn.trajectory.PoseCost(target),
        "PointCost": jaxdyn.trajectory.PointCost(target[:3, 3]),
        "CentreOfMassCost": jaxdyn.trajectory.CentreOfMassCost(target[:3, 3]),
        "ScalarCost": jaxdyn.trajectory.ScalarCost(
            lambda chain, k, data: data * jnp.sum(jnp.cos(k.q)), jnp.asarray(2.0)
        ),
        "UserCost": jaxdyn.trajectory.UserCost(lambda chain, k, data: data * jnp.cos(k.q), jnp.asarray(2.0)),
        "PositionLimits": jaxdyn.trajectory.PositionLimits(jnp.full(3, -1.0), jnp.ones(3)),
        "VelocityLimits": jaxdyn.trajectory.VelocityLimits(jnp.ones(3)),
        "StateConstraint": jaxdyn.trajectory.StateConstraint(jnp.zeros(3), jnp.zeros(3)),
        "PoseConstraint": jaxdyn.trajectory.PoseConstraint(target),
        "PointConstraint": jaxdyn.trajectory.PointConstraint(target[:3, 3]),
        "Clearance": jaxdyn.trajectory.Clearance(shapes, 0.1),
        "ClearanceCost": jaxdyn.trajectory.ClearanceCost(shapes, 3.0),
        "UserConstraint": jaxdyn.trajectory.UserConstraint(lambda chain, k, data: data * k.q, jnp.asarray(2.0)),
        "ContactWrenchCone": jaxdyn.trajectory.ContactWrenchCone("base", jnp.full(2, -0.1), jnp.full(2, 0.1), 0.5),
    }

    def valued(part):
        return Case(lambda *x: part.value(arm, knot(*x)), three, accuracy=1e6)

    found = {name: valued(part) for name, part in parts.items()}

    def problem(q, v):
        costs = parts["StateCost"], parts["TorqueCost"], parts["TorqueRateCost"]
        return jaxdyn.trajectory.OptimalControlProblem(arm, q, v, 4, 0.02, costs, (parts["PoseCost"],))

    def still(q, v):
        guess = jaxdyn.trajectory.stationary_guess(problem(q, v))
        return guess, jaxdyn.trajectory.total_cost(problem(q, v), guess)

    policy = lambda t, q, v: -3.0 * q - v
    some = jnp.asarray([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    found |= {
        "stationary_guess": Case(lambda q, v: jaxdyn.trajectory.stationary_guess(problem(q, v)), normal(3, 3)),
        "total_cost": Case(lambda q, v: still(q, v)[1], normal(3, 3)),
        "simulate_controls": Case(
            lambda q, v, tau: jaxdyn.trajectory.simulate_controls(problem(q, v), tau), normal(3, 3, (4, 3))
        ),
        "policy_trajectory": Case(
            lambda q, v: jaxdyn.trajectory.policy_trajectory(policy, problem(q, v)), normal(3, 3)
        ),
        "policy_costs": Case(
            lambda scale: jaxdyn.trajectory.policy_costs(
                jax.tree_util.Partial(lambda k, t, q, v: -k * q - v, scale), problem(some[0], some[1]), some, 0 * some
            ),
            positive(()),
        ),
    }
    return found


def cases() -> dict[str, Case]:
    arm = limited()
    found = scaling_cases(arm) | quadratic_cases() | problem_cases(arm)
    return {name: case._replace(dear=name in DEAR) for name, case in found.items()}
