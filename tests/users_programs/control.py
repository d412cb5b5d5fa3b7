"""Controllers on an arm: joint space, task space, adaptation, and the observer of collisions."""

import functools

import jax.numpy as jnp

import jaxdyn
from helpers import public, random_chain

from .case import Case, normal
from .spatial import each, poses

LOOSE = {"accuracy": 1e8, "difference": 1e-4}  # six joints for six directions are rarely far from a singularity


def joint_cases() -> dict[str, Case]:
    arm = random_chain(3)
    reference = lambda q, v: jaxdyn.control.JointReference(q, v, 0.5 * v)
    observer = jaxdyn.control.MomentumObserver(20.0, 1.0)
    states = {1: normal(3), 2: normal(3, 3), 3: normal(3, 3, 3), 4: normal(3, 3, 3, 3)}

    def with_integral(q, v, q_d, v_d):
        integral = jaxdyn.control.ErrorIntegral(v).update(arm, q, reference(q_d, v_d), 1e-3, 2.0)
        return jaxdyn.control.computed_torque(arm, q, v, reference(q_d, v_d), 10.0, 5.0, integral, 1.0)

    def observed(q, v, tau, before):
        return observer.update(arm, observer.start(arm, before, v), q, v, tau, 1e-3)

    def controller(state, t, q, v):
        return -3.0 * q - v + state, state + 0.1 * q

    def rolled(q, v, state):
        return jaxdyn.control.controlled_rollout(arm, q, v, (controller, state), 1e-3, 4)

    found = {
        "computed_torque": Case(
            lambda q, v, q_d, v_d: jaxdyn.control.computed_torque(arm, q, v, reference(q_d, v_d), 10.0, 5.0), states[4]
        ),
        "ErrorIntegral.update": Case(with_integral, states[4]),
        "gravity_compensation": Case(lambda q, v: jaxdyn.control.gravity_compensation(arm, q, v, 0.3), states[2]),
        "pd_gravity_control": Case(
            lambda q, v, goal: jaxdyn.control.pd_gravity_control(arm, q, v, goal, 9.0, 2.0), states[3]
        ),
        "posture_torque": Case(lambda q, v, rest: jaxdyn.control.posture_torque(arm, q, v, rest, 9.0, 2.0), states[3]),
        "hold_configuration": Case(functools.partial(jaxdyn.control.hold_configuration, arm), states[1]),
        "controlled_rollout": Case(rolled, states[3]),
        "MomentumObserver.update": Case(observed, states[4]),
        "MomentumObserver.collision": Case(
            lambda r: observer.collision(jaxdyn.control.ObserverState(2 * r, r, r)), states[1], derivatives=False
        ),
        "collision_threshold": Case(jaxdyn.control.collision_threshold, normal((20, 3))),
    }
    frictional = jaxdyn.model.with_leaves(arm, {"friction.viscous": arm.friction.viscous + 0.1})
    drives = jaxdyn.control.DriveAdaptation(1.0, ("viscous", "coulomb"))
    for law in (
        jaxdyn.control.EuclideanAdaptation,
        jaxdyn.control.NaturalAdaptation,
        jaxdyn.control.LogCholeskyAdaptation,
    ):
        adaptive = jaxdyn.control.AdaptiveControl(2.0, 3.0, law(0.1, 0.01), drives)

        def adapted(q, v, q_d, v_d, adaptive=adaptive):
            ahead = adaptive.update(frictional, adaptive.start(frictional), q, v, reference(q_d, v_d), 1e-3)
            return ahead, adaptive.torque(frictional, ahead, q, v, reference(q_d, v_d))

        found[f"AdaptiveControl with {law.__name__}"] = Case(adapted, states[4], smooth=False, accuracy=1e6)
    return found


def task_cases() -> dict[str, Case]:
    arm = random_chain(6, joints="revolute")
    stiffness = jnp.diag(jnp.asarray([5.0, 6.0, 7.0, 90.0, 80.0, 70.0]))
    to_pose = lambda t: jaxdyn.control.hold_pose(t)
    state = each(normal(6, 6), poses)
    bound = lambda name: functools.partial(public(name), arm)
    return {
        "hold_pose": Case(jaxdyn.control.hold_pose, poses),
        "task_spring": Case(
            lambda t, goal: jaxdyn.control.task_spring(t, goal, stiffness), each(poses, poses), **LOOSE
        ),
        "task_space": Case(lambda q, v: bound("task_space")(q, v), normal(6, 6), **LOOSE, smooth=False),
        "operational_space_control": Case(
            lambda q, v, t: bound("operational_space_control")(q, v, to_pose(t), 30.0, 8.0).tau,
            state,
            **LOOSE,
            smooth=False,
        ),
        "impedance_control": Case(
            lambda q, v, t: bound("impedance_control")(q, v, to_pose(t), stiffness, 8.0).tau,
            state,
            **LOOSE,
            smooth=False,
        ),
        "impedance_energy": Case(
            lambda q, v, t: bound("impedance_energy")(q, v, to_pose(t), stiffness), state, **LOOSE, smooth=False
        ),
        "impedance_damping": Case(
            lambda x: jaxdyn.control.impedance_damping(x @ x.T + jnp.eye(6), stiffness), normal((6, 6)), **LOOSE
        ),
        "stiffness_control": Case(
            lambda q, v, t: bound("stiffness_control")(q, v, t, stiffness, 8.0, 0.5), state, **LOOSE, smooth=False
        ),
    }


def cases() -> dict[str, Case]:
    return joint_cases() | task_cases()
