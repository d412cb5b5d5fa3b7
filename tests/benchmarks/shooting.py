"""Benchmark of trajectory optimisation by shooting, compared with crocoddyl's BoxFDDP.

    python -m tests.benchmarks.shooting                 # on the CPU, with crocoddyl if installed
    python -m tests.benchmarks.shooting --gpu           # throughput on JAX's default device, float32

The task is a reach of a Panda in joint space, with 100 knots and Euler steps. Both libraries solve the same discretised problem
from the same guess, in turns in one process. crocoddyl runs on one thread; of the batch of reaches to nearby goals, it solves
the first ones, one after the other.

Processor time (of all threads) and wall-clock time are reported per iteration; for a batch, per problem and iteration. The
iterations in which a problem of a batch waits for others do not count.

The models are compared before anything is timed, because crocoddyl 3.2.1 ignores gravity if it was built against an older
Pinocchio than the one installed (observed with pin 4.1.0; pin 4.0.0 is correct).
"""

import argparse
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

KNOTS, DT = 100, 0.01
WEIGHTS = {"q": 1.0, "v": 0.3, "tau": 0.03, "end_q": 10.0, "end_v": 3.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="run only the batch, in float32, on JAX's default device")
    parser.add_argument(
        "--batch", type=int, default=None, help="number of problems in the batch; by default 256, or 4096 on a GPU"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--iterations", type=int, default=30, help="maximum number of iterations of each problem in the batch"
    )
    parser.add_argument(
        "--beside", type=int, default=16, help="number of problems of the batch that crocoddyl also solves"
    )
    options = parser.parse_args()
    import jax

    if not options.gpu:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
    wrong = 0
    if not options.gpu:
        wrong = single(options)
    batch(options)
    return wrong


def reach(robot, start, goal):
    """The optimal control problem of the reach."""
    import jax.numpy as jnp

    import jaxdyn

    rest, w = jnp.zeros(7), WEIGHTS
    return jaxdyn.trajectory.OptimalControlProblem(
        robot,
        start,
        rest,
        KNOTS,
        DT,
        running=(jaxdyn.trajectory.StateCost(goal, rest, w["q"], w["v"]), jaxdyn.trajectory.TorqueCost(w["tau"])),
        terminal=(jaxdyn.trajectory.StateCost(goal, rest, w["end_q"], w["end_v"]),),
        torque_limits=jaxdyn.trajectory.torque_limits(robot),
    )


def task():
    import jax.numpy as jnp

    import jaxdyn

    start = jnp.array([0, -0.4, 0, -2.0, 0, 1.6, 0.8])
    return jaxdyn.robots.panda(), start, jnp.array([0.6, 0.3, -0.4, -1.4, 0.3, 2.0, 0.2])


def crocoddyl_problem(robot, start, goal):
    """The same problem for crocoddyl, and the initial guess, a robot at rest."""
    import crocoddyl
    import numpy as np
    import pinocchio as pin

    import jaxdyn
    from peer_models import to_pinocchio

    model = to_pinocchio(robot)
    state = crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFull(state)
    reference = np.concatenate([np.array(goal), np.zeros(7)])

    def of_state(position, velocity):
        weights = np.array([position**2] * 7 + [velocity**2] * 7)
        residual = crocoddyl.ResidualModelState(state, reference, 7)
        return crocoddyl.CostModelResidual(state, crocoddyl.ActivationModelWeightedQuad(weights), residual)

    running, terminal = crocoddyl.CostModelSum(state), crocoddyl.CostModelSum(state)
    running.addCost("state", of_state(WEIGHTS["q"], WEIGHTS["v"]), 1.0)
    effort = crocoddyl.CostModelResidual(state, crocoddyl.ResidualModelControl(state))
    running.addCost("effort", effort, WEIGHTS["tau"] ** 2)
    terminal.addCost("state", of_state(WEIGHTS["end_q"], WEIGHTS["end_v"]), 1.0)
    limits = np.array(jaxdyn.trajectory.torque_limits(robot))

    def action(costs, dt):
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        model = crocoddyl.IntegratedActionModelEuler(dynamics, dt)
        model.u_lb, model.u_ub = limits[:, 0], limits[:, 1]
        return model

    x0 = np.concatenate([np.array(start), np.zeros(7)])
    problem = crocoddyl.ShootingProblem(x0, [action(running, DT)] * KNOTS, action(terminal, 0.0))
    problem.nthreads = 1
    holding = pin.rnea(model, model.createData(), x0[:7], np.zeros(7), np.zeros(7))
    return problem, [x0] * (KNOTS + 1), [holding] * KNOTS


def usable_crocoddyl_problem(robot, start, goal):
    """The result of `crocoddyl_problem`; None three times if crocoddyl is not installed or its dynamics differ."""
    import numpy as np

    try:
        problem, xs, us = crocoddyl_problem(robot, start, goal)
        step = problem.runningModels[0]
        data = step.createData()
        step.calc(data, xs[0], us[0])
        if np.abs(data.xnext - xs[0]).max() > 1e-9:
            raise RuntimeError(
                "its robot does not stand still under the torques that hold it (see this module's docstring)"
            )
    except (ImportError, RuntimeError) as error:
        print(f"crocoddyl left out: {error}")
        return None, None, None
    return problem, xs, us


def solved_by_crocoddyl(problem, xs, us, most=100):
    """Solve with crocoddyl; return (solver, wall-clock time [s], processor time [s])."""
    import crocoddyl

    solver = crocoddyl.SolverBoxFDDP(problem)
    solver.th_stop = 1e-12
    guess = [x.copy() for x in xs], [u.copy() for u in us]
    return solver, *timed(lambda: solver.solve(*guess, most, False))[1:]


def timed(call):
    """Call a function; return (result, wall-clock time [s], processor time [s])."""
    clock, work = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - clock, time.process_time() - work


def single(options) -> int:
    import jax

    import jaxdyn

    problem = reach(*task())
    solve = jax.jit(jaxdyn.trajectory.solve_by_shooting)
    ours = lambda: jax.block_until_ready(solve(problem))
    solution, seconds, _ = timed(ours)
    print(f"compiled and run once in {seconds:.1f} s")
    theirs_problem, xs, us = usable_crocoddyl_problem(*task())
    times: dict[str, list] = {"jaxdyn": [], "crocoddyl": []}
    for _ in range(options.turns):
        times["jaxdyn"].append(timed(ours)[1:])
        if theirs_problem is not None:
            solver, *spent = solved_by_crocoddyl(theirs_problem, xs, us)
            times["crocoddyl"].append(spent)
    per = {"jaxdyn": int(solution.iterations) + 1}  # the last iteration only detects convergence
    print(f"jaxdyn: {solution.message}, cost {float(solution.cost):.12f}, {int(solution.iterations)} iterations")
    if theirs_problem is not None:
        per["crocoddyl"] = solver.iter + 1  # `iter` counts from zero
        print(f"crocoddyl: cost {solver.cost:.12f}, {solver.iter} iterations")
    for name, count in per.items():
        clock, work = (1e3 * min(t[i] for t in times[name]) / count for i in range(2))
        print(f"{name:10s} {clock:7.2f} ms per iteration by the clock, {work:7.2f} ms of the processor")
    return int(int(solution.status) != jaxdyn.trajectory.Status.CONVERGED)


def batch(options) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import jaxdyn

    count = options.batch or (4096 if options.gpu else 256)
    robot, start, goal = task()
    goals = goal[None] + jnp.asarray(np.random.default_rng(0).uniform(-0.3, 0.3, (count, 7)), goal.dtype)
    solve = lambda goal: jaxdyn.trajectory.solve_by_shooting(
        reach(robot, start, goal), max_iterations=options.iterations
    )
    run = jax.jit(jax.vmap(solve))
    call = lambda: jax.block_until_ready(run(goals))
    solutions, seconds, _ = timed(call)
    print(f"batch of {count}: compiled and run once in {seconds:.1f} s")
    iterations = np.asarray(solutions.iterations) + 1
    solved = int((np.asarray(solutions.status) == jaxdyn.trajectory.Status.CONVERGED).sum())
    print(f"{solved} of {count} solved, {iterations.mean():.1f} iterations on average, {iterations.max()} at most")
    ours, theirs, clock = [], [], []
    for _ in range(max(1, options.turns)):  # in turns, because the speed of the machine varies
        _, seconds, work = timed(call)
        clock.append(seconds)
        ours.append((1e3 * work / iterations.sum(), 1e3 * work / count))
        if not options.gpu:
            theirs.append(crocoddyl_batch(robot, start, goals[: options.beside], options.iterations))
    print(f"{count / min(clock):.0f} problems per second by the clock on {jax.devices()[0].device_kind}")
    median = lambda pairs: np.median(np.asarray(pairs), axis=0)
    print(f"milliseconds of the processor, medians of {len(ours)} turns:")
    print("jaxdyn     {:7.2f} a problem and iteration {:7.2f} a problem".format(*median(ours)))
    if theirs and None not in theirs:
        ratios = [np.asarray(b) / np.asarray(a) for a, b in zip(ours, theirs, strict=True)]
        print("crocoddyl  {:7.2f} a problem and iteration {:7.2f} a problem".format(*median(theirs)))
        print("throughput a core: {:.2f} x crocoddyl's iterations, {:.2f} x its problems".format(*median(ratios)))
        print("in each turn:", ", ".join(f"{r[0]:.2f}" for r in ratios))
    lengths = np.asarray(solutions.history["length"])
    taken = lengths[np.isfinite(lengths)]
    tried = np.where(taken > 0, 1 - np.log2(np.where(taken > 0, taken, 1)), 10)
    print(f"{tried.mean():.1f} step lengths tried an iteration on average")


def crocoddyl_batch(robot, start, goals, most) -> tuple[float, float] | None:
    """Processor time per problem and iteration, and per problem [ms]; problems are solved one after the other."""
    work, iterations = 0.0, 0
    for goal in goals:
        problem, xs, us = usable_crocoddyl_problem(robot, start, goal)
        if problem is None:
            return None
        solver, _, spent = solved_by_crocoddyl(problem, xs, us, most)
        work, iterations = work + spent, iterations + solver.iter + 1
    return 1e3 * work / iterations, 1e3 * work / len(goals)


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
    sys.exit(main())
