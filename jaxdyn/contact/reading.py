"""Contacts read from MJCF, by the rules of MuJoCo 4, or made from shapes and their material."""

import os
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.composite_body import mass_matrix_inverse
from ..dynamics.kinematics import forward_kinematics, link_twists
from ..errors import ModelError, warn
from ..geometry.reading import VERTICES, make_shapes
from ..geometry.shapes import Shapes
from ..io.files import read_bytes
from ..io.loading import MJCF, format_of
from ..io.mjcf import HINGE, SLIDE, compile_mjcf, contact_filters, disabled, tree_of
from ..io.shapes import geoms
from ..model.chain import Chain, layout
from ..model.configuration import neutral_configuration
from ..spatial.components import Values
from .contacts import Cone, Contacts, Rows, Softness
from .places import TINY, kind_of

_LEAST_FRICTION = 1e-5


def read(path: str | os.PathLike[str], chain: Chain, leave_out: bool = False) -> Contacts:
    """The contacts, joint limits and dry friction in an MJCF file, of which `chain` was loaded; see `contacts_from_mujoco`.

    Raises:
        ModelError: the file is no MJCF file: for a URDF, use `make_contacts`; or as for `contacts_from_mujoco`.
    """
    if format_of(read_bytes(path)) is not MJCF:
        raise ModelError(
            "contacts are read from MJCF files", "for a URDF, use make_contacts(chain, shapes)", place=path
        )
    return contacts_from_mujoco(compile_mjcf(path=path), chain, leave_out)


def contacts_from_mujoco(model: Any, chain: Chain, leave_out: bool = False) -> Contacts:
    """The contacts, joint limits and dry friction of a compiled model (`mujoco.MjModel`), of which `chain` was made.

    Pairs of geoms and their parameters follow MuJoCo's rules: masks, excludes, parents, explicit pairs, priority, mixing and
    margin (mujoco.readthedocs.io, Modeling: Contact). Planes touch spheres, capsules, boxes, cylinders, ellipsoids and meshes,
    height fields touch spheres, capsules, boxes and meshes, and spheres and capsules touch each other. A mesh becomes a convex
    hull of at most 64 vertices, as in `geometry.make_shapes`. Forces on height fields and hulls are those of MuJoCo only where
    it makes contacts at the same points (see docs/contact.md).

    Args:
        leave_out: leave out pairs of other shapes, with a warning that lists them, instead of raising an error.

    Raises:
        ModelError: pairs of other shapes can touch, or MuJoCo is older than version 4.
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
    free = disabled(model, "LIMIT", "CONSTRAINT")
    dofs = np.array([link.dof for link in tree_of(model).links])
    limited = [
        i
        for i, d in enumerate(dofs)
        if not free and model.jnt_limited[j := model.dof_jntid[d]] and model.jnt_type[j] in (SLIDE, HINGE)
    ]
    joints = [model.dof_jntid[dofs[i]] for i in limited]
    limits = Softness(model.jnt_solref[joints], model.jnt_solimp[joints], model.jnt_margin[joints])
    rubs = not disabled(model, "FRICTIONLOSS", "CONSTRAINT")
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


def inverse_weights(chain: Chain) -> tuple[Float[Array, "n 2"], Float[Array, " nv"]]:
    """Inverse inertias of links (translation of the centre of mass [1/kg], rotation [1/(kg m^2)]) and of velocities.

    These are MuJoCo's `invweight0`, at the neutral configuration: a third of the traces of both blocks of J M^-1 J^T, and the
    diagonal of M^-1, averaged over the three rotations and the three translations of a quaternion joint.
    """
    q = neutral_configuration(chain)
    inverse = mass_matrix_inverse(chain, q)
    poses = forward_kinematics(chain, q)
    mass, first = chain.inertia[:, 0], chain.inertia[:, 1:4]
    centre = first / jnp.where(mass > 0, mass, 1)[:, None]
    point = jnp.einsum("nij,nj->ni", poses[:, :3, :3], centre) + poses[:, :3, 3]
    twists = jax.jacfwd(lambda v: link_twists(chain, q, v, "space"))(jnp.zeros(chain.nv, q.dtype))
    linear = twists[:, 3:] + jnp.cross(twists[:, :3], point[:, :, None], axis=1)
    third = lambda j: jnp.einsum("nki,ij,nkj->n", j, inverse, j) / 3
    diagonal = jnp.diag(inverse)
    for joint in layout(chain).curved:
        for start in range(joint.columns.start, joint.columns.stop, 3):
            part = slice(start, start + 3)
            diagonal = diagonal.at[part].set(diagonal[part].mean())
    return jnp.stack([third(linear), third(twists[:, :3])], axis=1), diagonal


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
