"""Steps and Jacobians of a quadruped on the ground, compared with MuJoCo's in the same run.

The robot is an MJCF file, by default a quadruped with spherical feet. States come from a stance under random torques; both
programs start their searches at the accelerations of the previous step. MuJoCo is called from Python once per state.
"""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import contact
from jaxdyn.model import layouts

from ..session import Session
from ..timing import in_turn, waited

PART = "contacts"
LEG = """<body name="{n}_hip" pos="{x} {y} 0"><inertial pos="0 0 0" mass="0.5" diaginertia=".001 .001 .001"/>
<joint name="{n}_hip" axis="1 0 0" range="-.8 .8"/><body name="{n}_thigh">
<inertial pos="0 0 -.1" mass="0.8" diaginertia=".004 .004 .001"/><joint name="{n}_thigh" axis="0 1 0" range="-1.5 2.5"/>
<body name="{n}_shank" pos="0 0 -.2"><inertial pos="0 0 -.1" mass="0.2" diaginertia=".001 .001 .0001"/>
<joint name="{n}_shank" axis="0 1 0" range="-2.6 -.5"/><geom size=".02" pos="0 0 -.2" contype="0" conaffinity="1"/>
</body></body></body>"""
PLACES = {"FL": (0.19, 0.13), "FR": (0.19, -0.13), "RL": (-0.19, 0.13), "RR": (-0.19, -0.13)}
QUADRUPED = f"""<mujoco><option timestep="0.002" jacobian="dense"/><default><joint limited="true" damping=".05" armature=".005"
frictionloss=".2"/></default><worldbody><geom type="plane" size="5 5 .1" conaffinity="0"/><body name="trunk" pos="0 0 .34">
<freejoint/><inertial pos="0 0 0" mass="6" diaginertia=".04 .1 .11"/>
{"".join(LEG.format(n=n, x=x, y=y) for n, (x, y) in PLACES.items())}</body></worldbody></mujoco>"""


def run(session: Session) -> None:
    import mujoco

    for path in session.options.robots or [None]:
        row = {"part": PART, "robot": "quadruped" if path is None else Path(path).stem, "precision": session.precision}
        read: Any = mujoco.MjModel
        measure(session, row, read.from_xml_string(QUADRUPED) if path is None else read.from_xml_path(str(path)))


def measure(session: Session, row: dict, model: Any) -> None:
    """Add the times per state, and the largest difference of the accelerations from MuJoCo's."""
    chain = jaxdyn.io.from_mujoco(model)
    contacts = contact.contacts_from_mujoco(model, chain)
    count = session.options.batch
    qpos, qvel, force, last, expected = stance(model, count)
    dtype = jnp.dtype(session.precision)
    chain, contacts = jax.tree.map(lambda x: x.astype(dtype), (chain, contacts))
    as_type = lambda x: jnp.asarray(x, dtype)
    q, qd = jax.vmap(lambda a, b: layouts.from_mujoco_state(chain, a, b))(as_type(qpos), as_type(qvel))
    tau = jax.vmap(lambda a, b: layouts.from_mujoco_force(chain, a, b))(as_type(qpos), as_type(force))
    start = jax.vmap(lambda *x: layouts.from_mujoco_acceleration(chain, *x))(*map(as_type, (qpos, qvel, last)))
    solve = lambda q, qd, tau, start: contact.contact_dynamics(chain, contacts, q, qd, tau, start)
    dt = model.opt.timestep
    functions = {
        "accelerations": solve,
        "step": lambda q, qd, tau, start: contact.contact_step(
            chain, contacts, contact.ContactState(q, qd, start), tau, dt
        ),
        "Jacobians": lambda q, qd, tau, start: contact.contact_dynamics_derivatives(chain, contacts, q, qd, start),
        "Jacobians of steps": lambda q, qd, tau, start: contact.contact_step_derivatives(
            chain, contacts, contact.ContactState(q, qd, start), tau, dt
        ),
    }
    calls, compiled = by_mujoco(model, (qpos, qvel, force, last)), {}
    for label, function in functions.items():
        began = time.perf_counter()
        program = jax.jit(jax.vmap(function)).lower(q, qd, tau, start).compile()
        compiled[label] = time.perf_counter() - began
        calls[label] = waited(program, q, qd, tau, start)
    found = jax.jit(jax.vmap(lambda *x: layouts.to_mujoco_acceleration(chain, *x[:2], solve(*x).qdd)))(
        q, qd, tau, start
    )
    error = float((np.abs(found - expected).max(1) / (1 + np.abs(expected).max(1))).max())
    if error > (1e-8 if dtype == jnp.float64 else 1e-2):
        session.add(**row, library="jaxdyn", reason=f"accelerations differ from MuJoCo's by {error:.1e}", failed=True)
        return
    for label, seconds in in_turn(calls, session.options.budget, session.options.turns).items():
        quantity, library = (label.removeprefix("mj "), "MuJoCo") if label.startswith("mj ") else (label, "jaxdyn")
        ours = {"error": error, "compile_seconds": compiled[label]} if library == "jaxdyn" else {}
        states = count if library == "jaxdyn" else len(qpos[:: 1 if quantity == "step" else 16])
        session.add(**row, quantity=quantity, label=label, library=library, seconds=seconds / states, **ours)


def stance(model: Any, count: int) -> tuple[np.ndarray, ...]:
    """States (qpos, qvel), applied forces, accelerations of the step before, and those that MuJoCo computes."""
    import mujoco

    package: Any = mujoco
    data, rng, rows = package.MjData(model), np.random.default_rng(0), []
    home = model.qpos0.copy()
    home[7:] = np.tile([0.0, 0.7, -1.4], (model.nq - 7) // 3)
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 0, 200, 200
    while len(rows) < count:
        package.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = home, 0.3 * rng.normal(size=model.nv)
        push = 4 * rng.normal(size=model.nv - 6)
        for k in range(150):
            hold = 60 * (home[7:] - data.qpos[7:]) - 2 * data.qvel[6:] + push + rng.normal(size=model.nv - 6)
            data.qfrc_applied[6:], last = hold, data.qacc.copy()
            if k > 60 and k % 3 == 0:
                package.mj_forward(model, data)
                acting = data.qfrc_applied + data.qfrc_passive
                rows.append([x.copy() for x in (data.qpos, data.qvel, acting, last, data.qacc)])
            package.mj_step(model, data)
    model.opt.tolerance, model.opt.iterations, model.opt.ls_iterations = 1e-8, 100, 50
    return tuple(np.array(x) for x in zip(*rows[:count], strict=True))


def by_mujoco(model: Any, states: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Calls that make a step from every state, and compute the Jacobians of every sixteenth by differences."""
    import mujoco

    package: Any = mujoco
    data = package.MjData(model)
    a, b = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, model.nu))

    def each(function, every):
        def call():
            for qpos, qvel, force, last in zip(*(x[::every] for x in states), strict=True):
                data.qpos[:], data.qvel[:], data.qfrc_applied[:], data.qacc_warmstart[:] = qpos, qvel, force, last
                function()

        return call

    differences = lambda: package.mjd_transitionFD(model, data, 1e-6, False, a, b, None, None)
    return {"mj step": each(lambda: package.mj_step(model, data), 1), "mj Jacobians of steps": each(differences, 16)}
