"""Contacts from compiled MuJoCo models."""

import warnings
from typing import Any

import numpy as np

from ..errors import ModelError
from ..geometry.reading import VERTICES, make_shapes
from ..io.mjcf import HINGE, SLIDE, disabled, tree_of
from ..io.shapes import geoms
from ..model.chain import Chain
from .contacts import Contacts, Rows, Softness
from .places import kind_of

_SMALLEST = 1e-15
_LEAST_FRICTION = 1e-5


def contacts_from_mujoco(model: Any, chain: Chain, leave_out: bool = False) -> Contacts:
    """The contacts, joint limits and dry friction of a compiled model (`mujoco.MjModel`), of which `chain` was made.

    Pairs of geoms and their parameters follow MuJoCo's rules: masks, excludes, parents, explicit pairs, priority, mixing, margin
    and gap (mujoco.readthedocs.io, Modeling: Contact). Planes touch spheres, capsules, boxes, cylinders and ellipsoids, and
    spheres and capsules touch each other.

    Args:
        leave_out: leave out pairs of other shapes, with a warning that lists them, instead of raising an error.

    Raises:
        ModelError: pairs of other shapes can touch, or the model has active equality constraints, which the chain lacks.
    """
    pairs = {} if disabled(model, "CONTACT", "CONSTRAINT") else _pairs(model)
    found, _ = geoms(model, collision=True)
    kind = lambda g: found[g].kind if g in found else "mesh"
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
    warnings.warn(f"{fault}; they are left out, so that these shapes pass through each other", stacklevel=3)


def _pairs(model: Any) -> dict[tuple[int, int], dict[str, Any]]:
    """The pairs of geoms, in the order of their types, that MuJoCo tests, with their parameters."""
    found = {}
    given = {(int(a), int(b)) for a, b in zip(model.pair_geom1, model.pair_geom2, strict=True)}
    bodies, weld = np.asarray(model.geom_bodyid), np.asarray(model.body_weldid)
    above = weld[np.asarray(model.body_parentid)[weld]]
    signatures = {int(s) for s in model.exclude_signature}
    filters = not disabled(model, "FILTERPARENT")
    of = lambda a, b: (a, b) if model.geom_type[a] <= model.geom_type[b] else (b, a)
    for a in range(model.ngeom):
        for b in range(a + 1, model.ngeom):
            bits = (model.geom_contype[a] & model.geom_conaffinity[b]) or (model.geom_contype[b] & model.geom_conaffinity[a])
            first, second = sorted((int(bodies[a]), int(bodies[b])))
            u, v = weld[first], weld[second]
            if not bits or u == v or (first << 16) + second in signatures or {(a, b), (b, a)} & given:
                continue
            if filters and u and v and (u == above[v] or v == above[u]):
                continue
            found[of(a, b)] = _mixed(model, a, b)
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
    mixes = [m if m >= _SMALLEST else 0.0 for m in mixes]
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
