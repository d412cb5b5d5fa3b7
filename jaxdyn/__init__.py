"""jaxdyn: differentiable rigid-body dynamics of robots on JAX, and identification of their inertial parameters.

Models, kinematics, dynamics, simulation, files and `identify` stand here; everything else in the namespaces `control`,
`deployment`, `dynamics`, `identification`, `io`, `mechanisms`, `model`, `parallel`, `report`, `simulation`, `spatial`,
`trajectory`, `view`, and `symbolic`, which is imported by itself.
"""

from . import (
    control as control,
    deployment as deployment,
    dynamics as dynamics,
    identification as identification,
    io as io,
    mechanisms as mechanisms,
    model as model,
    parallel as parallel,
    report as report,
    simulation as simulation,
    spatial as spatial,
    trajectory as trajectory,
    view as view,
)
from .dynamics import (
    aba as aba,
    bias_force as bias_force,
    centre_of_mass as centre_of_mass,
    centre_of_mass_jacobian as centre_of_mass_jacobian,
    centroidal_momentum as centroidal_momentum,
    centroidal_momentum_matrix as centroidal_momentum_matrix,
    christoffel_symbols as christoffel_symbols,
    coriolis_force as coriolis_force,
    coriolis_matrix as coriolis_matrix,
    crba as crba,
    forward_dynamics as forward_dynamics,
    forward_dynamics_derivatives as forward_dynamics_derivatives,
    forward_kinematics as forward_kinematics,
    frame_acceleration as frame_acceleration,
    frame_pose as frame_pose,
    friction_force as friction_force,
    gravity_force as gravity_force,
    inverse_dynamics as inverse_dynamics,
    inverse_dynamics_derivatives as inverse_dynamics_derivatives,
    jacobian as jacobian,
    jacobian_derivative as jacobian_derivative,
    kinetic_energy as kinetic_energy,
    mass_matrix as mass_matrix,
    mass_matrix_inverse as mass_matrix_inverse,
    mass_matrix_solve as mass_matrix_solve,
    potential_energy as potential_energy,
    regressor as regressor,
    resistive_force as resistive_force,
    spring_force as spring_force,
    total_energy as total_energy,
    total_mass as total_mass,
)
from .errors import (
    ControlError as ControlError,
    DeploymentError as DeploymentError,
    IdentificationError as IdentificationError,
    JaxdynError as JaxdynError,
    LogError as LogError,
    ModelError as ModelError,
    ModelWarning as ModelWarning,
    OutputError as OutputError,
    TrajectoryError as TrajectoryError,
)
from .identification import Identification as Identification, identify as identify
from .io import (
    Log as Log,
    from_mujoco as from_mujoco,
    load as load,
    load_model as load_model,
    read_log as read_log,
    save_model as save_model,
    save_urdf as save_urdf,
    write_mjcf as write_mjcf,
)
from .model import (
    Chain as Chain,
    Coupling as Coupling,
    Transmission as Transmission,
    difference as difference,
    from_dh as from_dh,
    from_screws as from_screws,
    inertial_parameters as inertial_parameters,
    integrate as integrate,
    make_chain as make_chain,
    neutral_configuration as neutral_configuration,
    random_configuration as random_configuration,
    robots as robots,
    textbook as textbook,
    with_coupling as with_coupling,
    with_inertial_parameters as with_inertial_parameters,
    with_transmission as with_transmission,
)
from .parallel import sharded_vmap as sharded_vmap
from .simulation import adaptive_rollout as adaptive_rollout, rollout as rollout, step as step
from .trajectory import inverse_kinematics as inverse_kinematics
