"""Contacts read from MJCF, by the rules of MuJoCo 4, or made from shapes and their material."""

import dataclasses
import os
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

from .._jax_compat import Tracer
from ..errors import ModelError, warn
from ..geometry.reading import VERTICES, floor, make_shapes, read as read_shapes, with_environment
from ..geometry.shapes import Shapes, with_pairs
from ..io.files import read_bytes
from ..io.loading import MJCF, format_of
from ..io.mjcf import BALL, HINGE, SLIDE, compile_mjcf, contact_filters, disabled, named, tree_of
from ..io.shapes import geoms
from ..model.chain import Chain, layout
from ..spatial.components import Values
from .contacts import Cone, Contacts, Rows, Softness
from .equalities import equalities_from_mujoco, refuse
from .places import TINY, kind_of
from .softness import normal_regularised, settings_of
from .weights import inverse_weights

_LEAST_FRICTION = 1e-5


def read(path: str | os.PathLike[str], chain: Chain, leave_out: bool = False) -> Contacts:
    """The contacts, joint limits and dry friction of a robot from its file, from which `chain` was loaded.

    For MJCF files, see `contacts_from_mujoco`. In a URDF file, the collision shapes that `geometry.read` finds touch each
    other and a floor at z = 0 of the base frame, with the material of `make_contacts`.

    Args:
        leave_out: leave out pairs of shapes that are not supported, with a warning, instead of raising an error.

    Raises:
        ModelError: as for `contacts_from_mujoco`, or `geometry.read` and `make_contacts`.
    """
    if format_of(read_bytes(path)) is MJCF:
        return contacts_from_mujoco(compile_mjcf(path=path), chain, leave_out)
    shapes = with_environment(chain, read_shapes(path, chain), [floor()])
    return make_contacts(chain, with_supported_pairs(shapes, path) if leave_out else shapes)


def with_supported_pairs(shapes: Shapes, path: str | os.PathLike[str]) -> Shapes:
    """The shapes of a file without the pairs that contacts do not support, and a warning if there are any."""
    known = [(a, b) for a, b in shapes.pairs if kind_of(shapes.kinds[a], shapes.kinds[b]) is not None]
    if odd := len(shapes.pairs) - len(known):
        fault = f"{odd} of {len(shapes.pairs)} pairs of shapes are not supported and pass through each other"
        warn(f"{os.fspath(path)}: {fault}")
    return with_pairs(shapes, known)


def contacts_from_mujoco(model: Any, chain: Chain, leave_out: bool = False) -> Contacts:
    """The contacts, joint limits and dry friction of a compiled model (`mujoco.MjModel`), of which `chain` was made.

    Pairs of geoms and their parameters follow MuJoCo's rules: masks, excludes, parents, explicit pairs, priority, mixing and
    margin (mujoco.readthedocs.io, Modeling: Contact). Planes touch spheres, capsules, boxes, cylinders, ellipsoids and meshes,
    height fields touch spheres, capsules, boxes and meshes, and spheres and capsules touch each other. A mesh becomes a convex
    hull of at most 64 vertices, as in `geometry.make_shapes`. Forces on height fields and hulls are those of MuJoCo only where
    it makes contacts at the same points (see docs/contact.md).

    Args:
        leave_out: leave out what is not supported, with warnings that list it, instead of raising an error.

    Raises:
        ModelError: pairs of other shapes can touch; there are limits of ball joints, limits or dry friction of tendons, or
            equality constraints other than connect, weld, joint and fixed tendon; or MuJoCo is older than version 4.
    """
    import mujoco

    if int(mujoco.__version__.split(".")[0]) < 4:
        fault = f"contacts are read by the rules of MuJoCo 4 for margins, but {mujoco.__version__} is installed"
        raise ModelError(fault, 'pip install "mujoco>=4"')
    pairs = {} if disabled(model, "CONTACT", "CONSTRAINT") else _pairs(model)
    found, _ = geoms(model, collision=True)
    kind = lambda g: found[g].kind.replace("mesh", "hull") if g in found else "other shape"
    odd = {pair: (kind(pair[0]), kind(pair[1])) for pair in pairs if kind_of(kind(pair[0]), kind(pair[1])) is None}
    if odd:
        _refuse(model, odd, leave_out)
        pairs = {pair: parameters for pair, parameters in pairs.items() if pair not in odd}
    used = sorted({g for pair in pairs for g in pair})
    index = {g: k for k, g in enumerate(used)}
    shapes = make_shapes(
        chain, [found[g] for g in used], vertices=VERTICES, pairs=[(index[a], index[b]) for a, b in pairs]
    )
    of_pairs = list(pairs.values())
    column = lambda key, width: np.array([x[key] for x in of_pairs], float).reshape(len(of_pairs), *width)
    softness = Softness(column("solref", (2,)), column("solimp", (5,)), column("margin", ()))
    free, rubs = disabled(model, "LIMIT", "CONSTRAINT"), not disabled(model, "FRICTIONLOSS", "CONSTRAINT")
    balls = model.jnt_limited.astype(bool) & (model.jnt_type == BALL) & (not free)
    refuse(leave_out, "limits of ball joints", named(model.joint, balls))
    tight = (model.tendon_limited.astype(bool) & (not free)) | ((model.tendon_frictionloss > 0) & rubs)
    refuse(leave_out, "limits and dry friction of tendons", named(model.tendon, tight))
    dofs = np.array([link.dof for link in tree_of(model).links])
    limited = [
        i
        for i, d in enumerate(dofs)
        if not free and model.jnt_limited[j := model.dof_jntid[d]] and model.jnt_type[j] in (SLIDE, HINGE)
    ]
    joints = [model.dof_jntid[dofs[i]] for i in limited]
    limits = Softness(model.jnt_solref[joints], model.jnt_solimp[joints], model.jnt_margin[joints])
    rubbing = [i for i, d in enumerate(dofs) if rubs and model.dof_frictionloss[d] > 0]
    own = dofs[rubbing]
    rubbed = Softness(model.dof_solref[own], model.dof_solimp[own], np.zeros(len(own)))
    cone = "elliptic" if int(model.opt.cone) == 1 else "pyramidal"
    rows = Rows(tuple(int(x["condim"]) for x in of_pairs), cone, tuple(limited), tuple(rubbing))
    return Contacts(
        shapes,
        softness,
        column("friction", (5,)),
        column("friction_reference", (2,)),
        limits,
        model.dof_frictionloss[own],
        rubbed,
        model.body_invweight0[model.geom_bodyid[used]].reshape(-1, 2),
        model.dof_invweight0[dofs],
        float(model.opt.impratio),
        0.0 if disabled(model, "REFSAFE") else 2 * model.opt.timestep,
        rows,
        equalities_from_mujoco(model, chain, leave_out),
    )


def make_contacts(
    chain: Chain,
    shapes: Shapes,
    *,
    friction: Values = (1.0, 0.005, 0.0001),
    dimension: int = 3,
    reference: Values = (0.02, 1.0),
    impedance: Values = (0.9, 0.95, 0.001, 0.5, 2.0),
    margin: float = 0.0,
    cone: Cone = "pyramidal",
    limits: bool = True,
    dry_friction: bool = True,
) -> Contacts:
    """Contacts of all `shapes.pairs` with one material, and limits and dry friction of the joints; for robots from URDFs.

    The default material is MuJoCo's. Change the values of single pairs by `equinox.tree_at`. For the floor, add
    `geometry.floor()` to the shapes by `geometry.with_environment`, and for uneven ground `geometry.height_field(...)`. The
    pairs that can touch are those of `contacts_from_mujoco`.

    Args:
        friction: coefficients of sliding [1], torsion [m] and rolling [m].
        dimension: of the force at each place, MuJoCo's condim: 1 (no friction), 3 (sliding), 4 (and torsion), 6 (and rolling).
        reference: MuJoCo's solref (see `Softness`).
        impedance: MuJoCo's solimp.
        margin: gap at which forces begin [m].
        cone: "pyramidal" or "elliptic" friction cones.
        limits: whether finite position limits of revolute and prismatic joints are constraints.
        dry_friction: whether the Coulomb friction of joints is a constraint, which holds them still, instead of a smooth curve.

    Raises:
        ModelError: a pair of shapes is not supported, or `dimension` or `cone` is none of these.
    """
    if dimension not in (1, 3, 4, 6) or cone not in get_args(Cone):
        raise ModelError(f"dimension={dimension}, cone={cone!r}", 'pass 1, 3, 4 or 6, and "pyramidal" or "elliptic"')
    if odd := [(a, b) for a, b in shapes.pairs if kind_of(shapes.kinds[a], shapes.kinds[b]) is None]:
        names = ", ".join(f"{shapes.names[a]} with {shapes.names[b]}" for a, b in odd[:3])
        fault = f"contacts of {len(odd)} pairs of shapes are not supported, such as {names}"
        raise ModelError(fault, "leave these pairs out by geometry.with_pairs, or use spheres and capsules")
    count, nv = len(shapes.pairs), chain.nv
    slide, twist, roll = np.broadcast_to(np.asarray(friction, float), (3,))
    soft = lambda k, margin=0.0: Softness(
        np.tile(np.asarray(reference, float), (k, 1)), np.tile(np.asarray(impedance, float), (k, 1)), np.full(k, margin)
    )
    single = [joint for joint in layout(chain).joints if not joint.curved]
    velocities = [k for joint in single for k in range(joint.columns.start, joint.columns.stop)]
    bounds = np.asarray(chain.limits.position)
    limited = tuple(k for k in velocities if limits and np.isfinite(bounds[k]).all())
    coulomb = np.broadcast_to(np.asarray(chain.friction.coulomb), (nv,))
    rubbing = tuple(k for k in velocities if dry_friction and coulomb[k] > 0)
    of_links, of_velocities = inverse_weights(chain)
    weights = jnp.concatenate([of_links, jnp.zeros((1, 2), of_links.dtype)])[np.array(shapes.links, int)]
    return Contacts(
        shapes,
        soft(count, margin),
        np.tile([slide, slide, twist, roll, roll], (count, 1)),
        np.zeros((count, 2)),
        soft(len(limited)),
        coulomb[list(rubbing)],
        soft(len(rubbing)),
        weights,
        of_velocities,
        1.0,
        0.0,
        Rows((dimension,) * count, cone, limited, rubbing),
    )


def with_stiffness(contacts: Contacts, stiffness: Values, damping: Values, impedance: float = 0.9) -> Contacts:
    """Contacts with a stiffness [N/m] and a damping [N s/m] of the normal force, for all pairs, or one value for each.

    A contact at rest exerts N = stiffness depth, and one that moves at a constant rate N = stiffness depth - damping d gap/dt.
    An acceleration away from the ground reduces N by the acceleration times D, d / (1 - d) times the inertia at the contact,
    with the constant impedance d. Stiff contacts of light bodies need small steps.

    Args:
        impedance: d; for friction that creeps less, larger than 0.9.

    Raises:
        ModelError: stiffness or impedance is not positive, the damping is negative, or the impedance is not less than 1.
    """
    known = lambda x: np.asarray(x) if not isinstance(x, Tracer) else np.ones(())
    if (known(stiffness) <= 0).any() or (known(damping) < 0).any() or not 0 < impedance < 1:
        fault = f"stiffness={stiffness}, damping={damping}, impedance={impedance}"
        raise ModelError(fault, "pass stiffness > 0, damping >= 0, and 0 < impedance < 1")
    soft, dtype = contacts.softness, contacts.softness.reference.dtype
    low = jnp.asarray(impedance, dtype)
    constant = jnp.broadcast_to(jnp.array([impedance, impedance, 0.001, 0.5, 2.0], dtype), soft.impedance.shape)
    hard = dataclasses.replace(contacts, softness=dataclasses.replace(soft, impedance=constant))
    at = settings_of(hard, dtype)
    inverse = normal_regularised(low, at._replace(friction=at.friction.T), contacts.rows)
    if contacts.rows.cone == "pyramidal":  # of two edges for each tangent, or one without friction
        inverse = inverse / jnp.maximum(2 * (at.dimension - 1), 1)
    k, b = (jnp.asarray(x, dtype) * inverse for x in (stiffness, damping))
    # a direct reference, which MuJoCo divides by d^2 and d
    reference = -jnp.stack([k * low, b * low], axis=1)
    return dataclasses.replace(hard, softness=dataclasses.replace(hard.softness, reference=reference))


def _refuse(model: Any, odd: dict[tuple[int, int], tuple[str, str]], leave_out: bool) -> None:
    """Raise an error, or warn, about pairs of shapes that are not supported."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for pair, kinds in odd.items():
        counts.setdefault(" and ".join(sorted(kinds)), []).append(pair)
    name = lambda g: model.geom(g).name or f"geom {g} of body {model.body(model.geom_bodyid[g]).name or 'world'}"
    parts = [f"{len(x)} of {kinds}, such as {name(x[0][0])} with {name(x[0][1])}" for kinds, x in counts.items()]
    fault = f"contacts of {len(odd)} pairs of shapes are not supported: {'; '.join(parts)}"
    if not leave_out:
        raise ModelError(fault, "pass leave_out=True to leave them out, or exclude them in the model")
    warn(f"{fault}; they are left out, so that these shapes pass through each other")


def _pairs(model: Any) -> dict[tuple[int, int], dict[str, Any]]:
    """The pairs of geoms, in the order of their types, that MuJoCo tests, with their parameters."""
    filters = contact_filters(model, np.arange(model.ngeom))
    tested = ~(filters.same | filters.parent | filters.excluded | filters.masked)
    tested[model.pair_geom1, model.pair_geom2] = tested[model.pair_geom2, model.pair_geom1] = False
    of = lambda a, b: (a, b) if model.geom_type[a] <= model.geom_type[b] else (b, a)
    found = {of(a, b): _mixed(model, a, b) for a, b in np.argwhere(np.triu(tested, 1)).tolist()}
    for k, (a, b) in enumerate(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)):
        found[of(a, b)] = {
            "condim": model.pair_dim[k],
            "solref": model.pair_solref[k],
            "solimp": model.pair_solimp[k],
            "friction": np.maximum(model.pair_friction[k], _LEAST_FRICTION),
            "friction_reference": model.pair_solreffriction[k],
            "margin": model.pair_margin[k],
        }
    return found


def _mixed(model: Any, a: int, b: int) -> dict[str, Any]:
    """Parameters of the contact of two geoms (mujoco.readthedocs.io, Modeling: Contact parameters)."""
    most = max(model.geom_priority[a], model.geom_priority[b])
    chosen = [g for g in (a, b) if model.geom_priority[g] == most]
    refs = [model.geom_solref[g] for g in chosen]
    mixes = [max(float(model.geom_solmix[g]), 0.0) for g in chosen]
    mixes = [m if m >= TINY else 0.0 for m in mixes]
    total = sum(mixes)
    shares = [m / total if total > 0 else 1 / len(chosen) for m in mixes]
    blend = lambda values: sum(s * np.asarray(v) for s, v in zip(shares, values, strict=True))
    reference = blend(refs) if all(r[0] > 0 for r in refs) else np.min(refs, axis=0)
    slide, twist, roll = np.maximum(np.max([model.geom_friction[g] for g in chosen], axis=0), _LEAST_FRICTION)
    return {
        "condim": max(model.geom_condim[g] for g in chosen),
        "solref": reference,
        "solimp": blend([model.geom_solimp[g] for g in chosen]),
        "friction": np.array([slide, slide, twist, roll, roll]),
        "friction_reference": np.zeros(2),
        "margin": model.geom_margin[a] + model.geom_margin[b],
    }
