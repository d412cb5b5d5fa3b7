"""Robots that touch: contacts, joint limits and dry friction as MuJoCo has them, with exact derivatives."""

from .._exports import publish as _publish
from .contacts import (
    Connect as Connect,
    Contacts as Contacts,
    Follow as Follow,
    Rows as Rows,
    Softness as Softness,
    Weld as Weld,
    smoothed as smoothed,
)
from .dynamics import (
    ContactDynamics as ContactDynamics,
    ContactDynamicsDerivatives as ContactDynamicsDerivatives,
    ContactForces as ContactForces,
    contact_dynamics as contact_dynamics,
    contact_dynamics_derivatives as contact_dynamics_derivatives,
    contact_forces as contact_forces,
    contact_inverse_dynamics as contact_inverse_dynamics,
    contact_wrenches as contact_wrenches,
)
from .equalities import (
    connect as connect,
    equality_forces as equality_forces,
    follow as follow,
    weld as weld,
)
from .reading import (
    contacts_from_mujoco as contacts_from_mujoco,
    make_contacts as make_contacts,
    read as read,
    with_stiffness as with_stiffness,
)
from .servos import (
    Servos as Servos,
    ServoTorques as ServoTorques,
    servo_torques as servo_torques,
    servos_from_mujoco as servos_from_mujoco,
)
from .stepping import (
    ContactState as ContactState,
    ContactStepDerivatives as ContactStepDerivatives,
    contact_rollout as contact_rollout,
    contact_step as contact_step,
    contact_step_derivatives as contact_step_derivatives,
)

_publish(__name__)
