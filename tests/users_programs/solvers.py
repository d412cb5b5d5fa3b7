"""Functions that work on problems or logs and compile what they need by themselves, but for those that an example runs."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

import jaxdyn
from helpers import random_chain
from regression import known_arm

from .case import Case, call, normal
from .spatial import each, positive

DEAR = (
    "solve_by_collocation",
    "shift_guess",
    "diagnose_identification",
    "fit_friction",
    "choose_terms",
)
TERMS = {
    "Asymmetry": jaxdyn.identification.Asymmetry(0.1),
    "Coulomb": jaxdyn.identification.Coulomb(0.1),
    "Dahl": jaxdyn.identification.Dahl(0.01),
    "GearRipple": jaxdyn.identification.GearRipple((1.0, 2.0)),
    "LoadDependent": jaxdyn.identification.LoadDependent(0.1),
    "LoadedSlip": jaxdyn.identification.LoadedSlip(0.01),
    "LuGre": jaxdyn.identification.LuGre(0.01, 0.5, 0.1),
    "MaxwellSlip": jaxdyn.identification.MaxwellSlip(jnp.asarray([0.01, 0.02])),
    "Offset": jaxdyn.identification.Offset(),
    "Counterbalance": jaxdyn.identification.Counterbalance(0.8, 0.2, 1.6),
    "Cable": jaxdyn.identification.Cable(),
    "PowerViscous": jaxdyn.identification.PowerViscous(0.7),
    "Stribeck": jaxdyn.identification.Stribeck(0.2, 0.1),
    "TemperatureDependent": jaxdyn.identification.TemperatureDependent(25.0, 0.1),
    "Viscous": jaxdyn.identification.Viscous(),
}


def friction_cases() -> dict[str, Case]:
    found = {}
    for name, term in TERMS.items():
        along = lambda a, w, load, term=term: term.columns(
            a * jnp.sin(w * T), a * w * jnp.cos(w * T), load * jnp.cos(T)
        )
        found[f"{name}.columns"] = Case(along, each(positive((), ()), normal(())), smooth=False, accuracy=1e5)
    return found


T = jnp.tile(jnp.linspace(0.0, 3.0, 20)[:, None], 2)


def column_cases(arm: jaxdyn.Chain) -> dict[str, Case]:
    extra = {
        "Columns": (),
        "joint_springs": (jaxdyn.identification.joint_springs(arm),),
        "coupled_drive": (jaxdyn.identification.coupled_drive(2, 3),),
    }
    found = {}
    for name, columns in extra.items():
        matrix = functools.partial(jaxdyn.identification.Columns(extra=columns).matrix, arm)
        found[f"{name}, matrix" if name != "Columns" else "Columns.matrix"] = Case(matrix, normal(3, 3, 3))
    found["recursive_step"] = Case(
        lambda r, rows, tau, noise: jaxdyn.identification.recursive_values(
            jaxdyn.identification.recursive_step(jaxdyn.identification.recursive_start(r, 1.0), rows, tau, noise, 0.99)
        ),
        each(normal(4, (3, 4), 3), positive(3)),
        accuracy=1e6,
    )
    sines = jaxdyn.identification.excitation.FourierTrajectory(np.zeros(2), np.ones((2, 3)), np.ones((2, 3)), 4.0)
    times = lambda rng: (jnp.asarray(rng.uniform(0.1, 2.9, 6)),)
    found["excitation.FourierTrajectory"] = Case(lambda t: sines(t), times)
    return found


def solver_cases() -> dict[str, Case]:
    arm = jaxdyn.model.with_leaves(random_chain(2, joints="revolute"), {"friction.coulomb": jnp.zeros(2)})
    problem = jaxdyn.trajectory.OptimalControlProblem(
        arm,
        jnp.zeros(2),
        jnp.zeros(2),
        6,
        0.05,
        (jaxdyn.trajectory.TorqueCost(0.05),),
        (jaxdyn.trajectory.StateCost(jnp.asarray([0.2, -0.1]), jnp.zeros(2), 10.0, 3.0),),
    )

    def ahead():
        return jaxdyn.trajectory.shift_guess(
            problem, jaxdyn.trajectory.solve_by_shooting(problem, max_iterations=20)
        ).trajectory

    def nearest(goal):
        ring = lambda x: x @ x - 1.0
        return jaxdyn.trajectory.interior_point(
            lambda x: (x - goal) @ (x - goal), 0.5 * goal, equality=lambda x: ring(x)[None]
        ).x

    return {
        "solve_by_collocation": call(lambda: jaxdyn.trajectory.solve_by_collocation(problem).trajectory),
        "shift_guess": call(ahead),
        "interior_point": Case(nearest, positive(3), derivatives=False, accuracy=1e9),  # in forward mode alone
    }


@functools.cache
def logs() -> tuple:
    """An arm, a short log of it, and its samples."""
    arm = known_arm()
    motion = jaxdyn.identification.random_excitation(arm, 5.0, 4, seed=1)
    log = jaxdyn.identification.synthetic_log(arm, motion, 5.0, 200.0, 1e-5, 0.02)
    return arm, motion, log, jaxdyn.identification.preprocess(log)


def log_cases() -> dict[str, Case]:
    def with_friction(arm, motion, log, samples):
        terms = jaxdyn.identification.Viscous(), jaxdyn.identification.Coulomb(0.1)
        fit = jaxdyn.identification.fit_friction(
            arm, [samples], jaxdyn.identification.FrictionModel(terms), iterations=2
        )
        return fit.values, fit.nonlinear

    def chosen(arm, motion, log, samples):
        return jaxdyn.identification.choose_terms(arm, [log], jaxdyn.identification.Terms(choose=("springs",))).errors

    functions = {
        "fit_friction": with_friction,
        "choose_terms": chosen,
        "diagnose_identification": lambda arm, motion, log, _: len(
            jaxdyn.identification.diagnose_identification(
                jaxdyn.identify(arm, [log], terms=jaxdyn.identification.Terms(choose=()))
            )
        ),
        "excitation_design.excitation_quality": lambda arm, motion, log, samples: dataclasses.astuple(
            jaxdyn.identification.excitation_design.excitation_quality(arm, samples.q, samples.qd, samples.qdd)
        ),
        "estimate_delay": lambda arm, motion, log, _: jaxdyn.identification.estimate_delay(arm, log).seconds,
        "resimulate": lambda arm, motion, log, samples: jaxdyn.identification.resimulate(arm, samples).rms,
        "base.model_torque": lambda arm, motion, log, samples: jaxdyn.identification.base.model_torque(arm, samples),
        "compare_models": lambda arm, motion, log, _: [
            fit.rms for fit in jaxdyn.identification.compare_models(arm, arm, log).fits
        ],
    }
    return {name: call(lambda function=function: function(*logs())) for name, function in functions.items()}


def cases() -> dict[str, Case]:
    arm = random_chain(3)
    found = friction_cases() | column_cases(arm) | solver_cases() | log_cases()
    return {name: case._replace(dear=name in DEAR) for name, case in found.items()}
