"""Quantities of a state of a serial arm: energies, momenta, regressors, friction, frames."""

import functools

import jaxdyn
from helpers import public, random_chain

from .case import Case, normal

COUNTS = {  # vectors of n after the chain
    "aba": 3,
    "coriolis_force": 2,
    "velocity_products": 1,
    "decomposition": 2,
    "matrix_form": 3,
    "joint_wrenches": 3,
    "link_twists": 2,
    "link_accelerations": 3,
    "christoffel_symbols": 1,
    "mass_matrix_solve": 2,
    "mass_matrix_inverse": 1,
    "euler_lagrange_torque": 3,
    "kinetic_energy": 2,
    "potential_energy": 1,
    "total_energy": 2,
    "lagrangian": 2,
    "generalised_momentum": 2,
    "hamiltonian": 2,
    "hamiltonian_flow": 3,
    "momentum_drift": 2,
    "passivity_inverse_dynamics": 4,
    "kinetic_energy_regressor": 2,
    "momentum_regressor": 2,
    "passivity_regressor": 4,
    "passivity_regressor_product": 5,
    "potential_energy_regressor": 1,
    "drive_regressor": 2,
    "spring_regressor": 1,
    "friction_force": 1,
    "resistive_force": 2,
    "spring_energy": 1,
    "spring_force": 1,
}


def cases() -> dict[str, Case]:
    arm = random_chain(3)
    found = {name: Case(functools.partial(public(name), arm), normal(*[3] * count)) for name, count in COUNTS.items()}
    geared = jaxdyn.with_transmission(arm, gear_ratio=20.0)
    return found | {"motor_regressor": Case(functools.partial(public("motor_regressor"), geared), normal(3, 3))}
