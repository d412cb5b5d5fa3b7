"""brax: smooth dynamics of the generalized pipeline, for arms."""

from ..subjects import Subject, Unavailable
from . import Entry
from .mjx_ import mujoco_model
from .mujoco_layout import MujocoLayout


def build(robot: Subject, state: dict, precision: str) -> dict[str, Entry]:
    if robot.floating:
        raise Unavailable("its generalized pipeline is measured on arms only")
    from brax import kinematics
    from brax.generalized import dynamics, mass
    from brax.generalized.base import State
    from brax.io import mjcf

    model = mujoco_model(robot)
    there = mjcf.load_model(model)
    layout = MujocoLayout(robot, [model.joint(i).name for i in range(model.njnt)], state)
    given = layout.arguments()
    q, v, a, tau = (given[name] for name in ("q", "v", "a", "tau"))

    def at(q, v):
        x, xd = kinematics.forward(there, q, v)
        return dynamics.transform_com(there, State.init(q, v, x, xd))

    def inverse(q, v, a):
        here = at(q, v)
        return mass.matrix(there, here) @ a + dynamics.inverse(there, here)

    def forward(q, v, tau):
        here = mass.matrix_inv(there, at(q, v), 0)
        return here.mass_mx_inv @ dynamics.forward(there, here, tau)

    return {
        "inverse_dynamics": Entry(inverse, (q, v, a), layout.vector, "M a + inverse"),
        "crba": Entry(lambda q: mass.matrix(there, at(q, 0 * q)), (q,), layout.matrix),
        "forward_dynamics": Entry(forward, (q, v, tau), layout.acceleration, "M^-1 forward"),
    }
