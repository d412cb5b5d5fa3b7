"""Terms of the equations of motion and their derivatives; the most common terms are also exported by `jaxdyn`."""

from .._exports import publish as _publish
from .articulated_body import aba as aba, forward_dynamics as forward_dynamics
from .centroidal import (
    centre_of_mass as centre_of_mass,
    centre_of_mass_jacobian as centre_of_mass_jacobian,
    centroidal_momentum as centroidal_momentum,
    centroidal_momentum_bias as centroidal_momentum_bias,
    centroidal_momentum_matrix as centroidal_momentum_matrix,
    total_mass as total_mass,
    total_momentum as total_momentum,
)
from .composite_body import (
    crba as crba,
    mass_matrix as mass_matrix,
    mass_matrix_inverse as mass_matrix_inverse,
    mass_matrix_solve as mass_matrix_solve,
)
from .coordinates import link_wrenches as link_wrenches
from .coriolis import (
    christoffel_symbols as christoffel_symbols,
    coriolis_matrix as coriolis_matrix,
    decomposition as decomposition,
    matrix_form as matrix_form,
    velocity_products as velocity_products,
)
from .derivatives import (
    forward_dynamics_derivatives as forward_dynamics_derivatives,
    inverse_dynamics_derivatives as inverse_dynamics_derivatives,
)
from .eigenvalue_bounds import (
    certified_mass_matrix_bounds as certified_mass_matrix_bounds,
    mass_matrix_bounds as mass_matrix_bounds,
)
from .energy import (
    euler_lagrange_torque as euler_lagrange_torque,
    generalised_momentum as generalised_momentum,
    hamiltonian as hamiltonian,
    hamiltonian_flow as hamiltonian_flow,
    kinetic_energy as kinetic_energy,
    lagrangian as lagrangian,
    momentum_drift as momentum_drift,
    passivity_integral as passivity_integral,
    potential_energy as potential_energy,
    total_energy as total_energy,
)
from .friction import (
    friction_force as friction_force,
    resistive_force as resistive_force,
    spring_energy as spring_energy,
    spring_force as spring_force,
)
from .kinematics import (
    forward_kinematics as forward_kinematics,
    frame_acceleration as frame_acceleration,
    frame_pose as frame_pose,
    jacobian as jacobian,
    jacobian_derivative as jacobian_derivative,
    link_accelerations as link_accelerations,
    link_twists as link_twists,
)
from .newton_euler import (
    bias_force as bias_force,
    coriolis_force as coriolis_force,
    gravity_force as gravity_force,
    inverse_dynamics as inverse_dynamics,
    passivity_inverse_dynamics as passivity_inverse_dynamics,
)
from .operational_space_dynamics import (
    dynamically_consistent_inverse as dynamically_consistent_inverse,
    operational_space as operational_space,
    operational_space_bias as operational_space_bias,
    operational_space_inertia as operational_space_inertia,
)
from .regressors import (
    drive_regressor as drive_regressor,
    kinetic_energy_regressor as kinetic_energy_regressor,
    momentum_regressor as momentum_regressor,
    motor_regressor as motor_regressor,
    passivity_regressor as passivity_regressor,
    passivity_regressor_product as passivity_regressor_product,
    potential_energy_regressor as potential_energy_regressor,
    regressor as regressor,
    spring_regressor as spring_regressor,
)
from .wrenches import joint_wrenches as joint_wrenches

_publish(__name__)
