"""Forward and inverse dynamics of robots that touch: accelerations, torques and contact forces."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import SymbolicZero
from ..dynamics.composite_body import carried_masses, mass_matrix_solve
from ..dynamics.derivatives import spread_derivatives, torque_entries
from ..dynamics.engine.kernel import uses_definitions
from ..dynamics.engine.lanes import is_zero, sparse_jvp
from ..dynamics.kinematics import forward_kinematics
from ..dynamics.newton_euler import bias_force, inverse_dynamics
from ..errors import ModelError
from ..geometry.distance import scene_of
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, layout
from ..model.compiled import compiled
from ..model.configuration import difference, integrate
from ..model.layouts import free_turning
from . import definition
from .contacts import Contacts, in_derivatives
from .equalities import EqualityRows, equality_rows, equality_torques, joined_joints
from .ground import points_of, without_surfaces
from .jacobians import constraint_jacobians
from .newton import (
    Joined,
    JointSettings,
    Problem,
    Solution,
    State,
    constraint_torques,
    curvature_inverse,
    place_forces,
    solve,
)
from .places import places_of, vertex_counts
from .softness import settings_of


class ContactDynamics(NamedTuple):
    """The result of `contact_dynamics`, which describes it."""

    qdd: Float[Array, " nv"]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]


class ContactForces(NamedTuple):
    """The result of `contact_forces`, which describes it."""

    gap: Float[Array, " k"]
    point: Float[Array, "k 3"]
    force: Float[Array, "k 3"]
    moment: Float[Array, "k 3"]


@compiled
def contact_dynamics(
    chain: Chain, contacts: Contacts, q: Position, qd: Velocity, tau: Force, start: Acceleration | None = None
) -> ContactDynamics:
    """Accelerations of a robot that touches, as MuJoCo computes them: the minimum of a convex function of qdd.

    With the accelerations qdd_0 = `forward_dynamics(chain, q, qd, tau)` without contacts, qdd minimises

        (qdd - qdd_0)^T M (qdd - qdd_0) / 2 + s(J qdd + c - r),

    where s is a convex function of each contact, joint limit and joint with dry friction, whose derivative is the constraint's
    force with the opposite sign, J qdd + c are the accelerations along the constraints, and r is a reference acceleration that
    pushes shapes apart (Todorov 2014; mujoco.readthedocs.io, Computation: Constraint model). Forces are thus soft: they depend
    on depth and velocity, and a robot at rest sinks by micrometres to millimetres. See docs/contact.md.

    Newton's method with a line search solves the problem to rounding errors; 1 to 3 steps suffice from the accelerations of the
    previous time step. Derivatives are exact, by the implicit function theorem: dqdd = H^-1 (dtau - d contact_inverse_dynamics)
    with H = M + J^T s'' J, with respect to all arguments and all leaves of the chain and the contacts except `start`.

    Friction and springs of the joints other than `contacts.dry_friction` are not included; see `resistive_force`.

    Args:
        start: accelerations from which the search starts, for example those of the previous step; zero by default.

    Returns:
        - qdd: joint accelerations [rad/s^2 or m/s^2].
        - iterations: number of Newton steps.
        - converged: whether further steps would be smaller than rounding errors. False after 50 steps, or after 16 in batches
          in a process with several CPU devices, whose loops cannot end early.

    Raises:
        ModelError: the chain has coupled joints or a transmission, or the contacts are those of another robot.
    """
    return ContactDynamics(*solution(chain, contacts, q, qd, tau, start, None)[:3])


@jax.custom_jvp
def solution(chain, contacts, q, qd, tau, start, damping):
    """`contact_dynamics`, and, if `damping` (nv,) is given, (M + damping)^-1 M (qdd + `free_turning`)."""
    begin = jnp.zeros_like(tau) if start is None else start
    if uses_definitions():
        qdd = definition.contact_dynamics(chain, contacts, q, qd, tau)
        damped = None if damping is None else _damped(chain, q, qd, qdd, damping)
        return Solution(qdd, jnp.zeros((), jnp.int32), jnp.ones((), bool), damped)
    force = tau - bias_force(chain, q, qd)
    return solve(*problem_of(chain, contacts, q, qd), force, begin.astype(force.dtype), damping)


def _damped(chain, q, qd, qdd, damping):
    change = qdd + free_turning(chain, qd)
    heavier = dataclasses.replace(chain, armature=chain.armature + damping)
    return change - mass_matrix_solve(heavier, q, damping * change)


def _solution_jvp(primals, tangents):
    chain, contacts, q, qd, tau, _, damping = primals
    found, smooth = solution(*primals), in_derivatives(contacts)
    of_robot, of_q, of_qd, of_tau = tangents[:2], *tangents[2:5]

    def unbalanced(chain, contacts, q, qd, tau):
        return tau - contact_inverse_dynamics(chain, contacts, q, qd, found.qdd)

    # in closed form by the state, which gradients need most
    closed = not (is_zero(of_q) and is_zero(of_qd)) and not uses_definitions()
    still = SymbolicZero(jax.typeof(q)), SymbolicZero(jax.typeof(qd))
    along = *of_robot, *(still if closed else (of_q, of_qd)), of_tau
    _, rate = sparse_jvp(unbalanced, (chain, smooth, q, qd, tau), along)
    if closed:
        position, velocity, inverse = torque_jacobians(chain, smooth, q, qd, found.qdd)
        if not is_zero(of_q):
            rate -= position @ jax.jvp(lambda x: difference(chain, q, x), (q,), (of_q,))[1]
        if not is_zero(of_qd):
            rate -= velocity @ of_qd
    else:
        inverse = _curvature_inverse(chain, smooth, q, qd, found.qdd)
    change = inverse @ rate
    none: Any = lambda x: np.zeros(x.shape, jax.dtypes.float0)
    damped = None
    if damping is not None:
        arguments = (chain, q, qd, found.qdd, damping)
        _, damped = sparse_jvp(_damped, arguments, (tangents[0], *tangents[2:4], change, tangents[-1]))
    return found, Solution(change, none(found.iterations), none(found.converged), damped)


solution.defjvp(_solution_jvp, symbolic_zeros=True)


@jax.custom_jvp
def _curvature_inverse(chain, contacts, q, qd, qdd):
    return curvature_inverse(*problem_of(chain, contacts, q, qd), qdd)


def _curvature_inverse_jvp(primals, tangents):
    inverse = _curvature_inverse(*primals)
    # for second derivatives; the kernel's elimination is not differentiated
    _, change = sparse_jvp(jax.jacfwd(contact_inverse_dynamics, argnums=4), primals, tangents)
    return inverse, -inverse @ change @ inverse


_curvature_inverse.defjvp(_curvature_inverse_jvp, symbolic_zeros=True)


@compiled
def contact_inverse_dynamics(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration) -> Force:
    """Joint torques that produce qdd in touch: tau = inverse_dynamics(chain, q, qd, qdd) - J^T f(J qdd + c - r), O(n + k).

    The forces f of contacts, limits and dry friction are known at given accelerations, so that nothing is solved. See
    `contact_dynamics`, of which this is the inverse, and MuJoCo's `mj_inverse`.

    Returns:
        Joint torques [N m or N]; for a free joint, the wrench (n, f) in body axes that must act besides, zero for a motion that
        obeys the dynamics.
    """
    if uses_definitions():
        return definition.contact_inverse_dynamics(chain, contacts, q, qd, qdd)
    tau = inverse_dynamics(chain, q, qd, qdd) - constraint_torques(*problem_of(chain, contacts, q, qd), qdd)
    return tau - equality_torques(chain, contacts, q, qd, qdd)


@compiled
def contact_forces(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration) -> ContactForces:
    """Gaps, points and forces of all places where shapes can touch, at given accelerations, O(n + k).

    There are one or more places for every pair in `contacts.shapes.pairs`; `contacts.place_names` lists them. On planes and
    height fields, there are 1 for a sphere, 2 for a capsule, 8 for a box and one for every vertex of a hull; on planes, also 1
    for an ellipsoid and 4 for a cylinder. Two spheres or capsules have 1. Corners of a box act on a plane if they are below its
    centre. Places on a height field act if the nearest point of the surface is within its border.

    Returns:
        - gap: signed distance of the surfaces at the place, negative in overlap [m]. Above a height field, one that is larger
          than the margin is an upper bound.
        - point: half way between the surfaces, in the world [m].
        - force: exerted on the second shape of the place by the first, in world axes; zero without contact [N].
        - moment: about the point, of torsional and rolling friction (condim 4 and 6), in world axes [N m].
    """
    found = place_forces(*problem_of(chain, contacts, q, qd), qdd)
    stacked = lambda parts: jnp.stack(parts, axis=-1)
    return ContactForces(
        found.gap,
        stacked(found.point) + stacked(found.centre)[None],
        stacked(found.force),
        stacked(found.moment),
    )


@compiled
def contact_wrenches(
    chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration
) -> Float[Array, "n 6"]:
    """Wrenches (n, f) of all contacts on every link, in the link's frame, at given accelerations [N m, N].

    They can be passed as `external_wrenches`: without limits and dry friction, `forward_dynamics` with them gives qdd.
    """
    forces = contact_forces(chain, contacts, q, qd, qdd)
    links = places_of(contacts.shapes.fixed, chain.n, vertex_counts(contacts.shapes)).links
    poses = forward_kinematics(chain, q)
    turned, origin = poses[:, :3, :3], poses[:, :3, 3]
    total = jnp.zeros((chain.n + 1, 6), forces.force.dtype)
    origin = jnp.concatenate([origin, jnp.zeros((1, 3), origin.dtype)])
    for side, sign in ((0, -1), (1, 1)):
        on = links[:, side]
        moment = forces.moment + jnp.cross(forces.point - origin[on], forces.force)
        total = total.at[on].add(sign * jnp.concatenate([moment, forces.force], axis=1))
    in_link = lambda x: jnp.einsum("nij,ni->nj", turned, x)
    return jnp.concatenate([in_link(total[:-1, :3]), in_link(total[:-1, 3:])], axis=1)


class ContactDynamicsDerivatives(NamedTuple):
    """The result of `contact_dynamics_derivatives`, which describes it."""

    q: Float[Array, "nv nv"]
    qd: Float[Array, "nv nv"]
    tau: Float[Array, "nv nv"]


@compiled
def contact_dynamics_derivatives(
    chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration
) -> ContactDynamicsDerivatives:
    """Jacobians of `contact_dynamics` at its result qdd, in closed form (see the module `jacobians`), O(n^2 + k).

    By the implicit function theorem, dqdd = H^-1 (dtau - d contact_inverse_dynamics) with H = M + J^T s'' J. Where a contact
    opens or begins to slide, the Jacobians jump.

    Returns:
        - q: d qdd / d q, with respect to small motions dq of `integrate(chain, q, dq)` [1/s^2].
        - qd: d qdd / d qd [1/s].
        - tau: d qdd / d tau, the inverse of H [1/(kg m^2)].
    """
    position, velocity, inverse = torque_jacobians(chain, in_derivatives(contacts), q, qd, qdd)
    return ContactDynamicsDerivatives(-inverse @ position, -inverse @ velocity, inverse)


def torque_jacobians(chain: Chain, contacts: Contacts, q: Array, qd: Array, qdd: Array) -> tuple[Array, ...]:
    """Jacobians of `contact_inverse_dynamics` by small motions and velocities, and the inverse of that by accelerations."""
    joints = layout(chain).curved
    found = constraint_jacobians(*problem_of(chain, contacts, q, qd), qdd, joints)
    of_links = torque_entries(chain, q, qd, qdd, None)
    entries = tuple(a - b for a, b in zip(of_links, found.entries, strict=True))
    position, velocity, _ = spread_derivatives(chain, entries, joints)
    if found.between:
        between = [y.reshape(chain.nv, chain.nv) for y in found.between]
        position, velocity = position - between[0], velocity - between[1]
    if contacts.equalities:
        moved = lambda dq, qd: equality_torques(chain, contacts, integrate(chain, q, dq), qd, qdd)
        changes = jax.jacfwd(moved, argnums=(0, 1))(jnp.zeros_like(qd), qd)
        position, velocity = position - changes[0], velocity - changes[1]
    # without the barrier, XLA would repeat the assembly of the matrices in the products
    return *jax.lax.optimization_barrier((position, velocity)), found.inverse


def problem_of(chain: Chain, contacts: Contacts, q: Position, qd: Velocity) -> tuple[Problem, State]:
    """What the kernels need of a robot and its contacts, and the state of the joints."""
    if chain.coupling is not None or chain.transmission is not None:
        raise ModelError("contacts support neither coupled joints nor a transmission")
    if contacts.weight.shape != (chain.nv,):
        raise ModelError(
            f"the contacts are those of a robot with {contacts.weight.shape[0]} velocities, not {chain.nv}"
        )
    scene, x = scene_of(chain, contacts.shapes, q)
    cast = lambda y: jnp.asarray(y, x.dtype)
    limits, rubbing, rows = contacts.limits, contacts.rubbing, contacts.rows

    def every(values: Array, joints: tuple[int, ...], otherwise: float) -> Array:
        whole = jnp.full((chain.n, *values.shape[1:]), otherwise, x.dtype)
        return whole.at[np.array(joints, int)].set(cast(values)) if joints else whole

    limited = np.zeros(chain.n)
    limited[list(rows.limited)] = 1
    # unused references are those of a constraint without force
    joints = JointSettings(
        every(rubbing.reference, rows.rubbing, 1.0),
        every(rubbing.impedance, rows.rubbing, 0.5),
        every(contacts.dry_friction, rows.rubbing, 0.0),
        every(limits.reference, rows.limited, 1.0),
        every(limits.impedance, rows.limited, 0.5),
        every(limits.margin, rows.limited, 0.0),
        jnp.where(limited[:, None] > 0, cast(chain.limits.position), 0),
        cast(limited),
        cast(contacts.weight),
        jnp.broadcast_to(cast(contacts.least_time), (chain.n,)),
    )
    parents = scene.chain.topology.parents
    masses = carried_masses(parents, scene.chain.inertia)
    settings, joined = settings_of(contacts, x.dtype), joined_joints(parents, contacts.equalities)
    vertices = vertex_counts(contacts.shapes)
    points = points_of(places_of(contacts.shapes.fixed, chain.n, vertices), scene, x, cast(contacts.reach))
    problem = Problem(without_surfaces(scene), masses, settings, joints, points, rows, joined, vertices)
    state = State(x, qd, free_turning(chain, qd))
    return problem, state._replace(joined=_joined(problem, equality_rows(chain, contacts, q, qd)))


def _joined(problem: Problem, held: EqualityRows) -> Joined | None:
    """What the kernels need of equality constraints; None if there are none."""
    if not len(held.offset):
        return None
    pattern = problem.pattern
    dense = held.jacobian.T @ (held.stiffness[:, None] * held.jacobian)
    entries = dense[pattern.first[: pattern.constant], pattern.second[: pattern.constant]]
    return Joined(entries, -(held.stiffness * held.offset) @ held.jacobian)
