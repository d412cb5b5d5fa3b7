"""Prior knowledge of a robot's parameters, from its model or from the symmetry of its limbs."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from ..errors import IdentificationError
from ..model.chain import Chain, layout, with_bodies
from ..spatial.inertia import inertial_parameters_from_pseudo_inertia, pseudo_inertia
from .columns import Columns, prior_parameters

MIRROR = np.diag([1.0, -1.0, 1.0])  # reflection in the x-z plane of the base
NEAR = 2e-3  # tolerance for the mirrored origins of two links, relative to the robot's extent
FAR = 5e-2  # pairs specified by the user are rejected beyond this relative distance
THINNEST = 0.1  # minimum thickness assumed for a known body in any direction, as a fraction of its size
SMALLEST = 1e-8  # square of a radius of gyration [m^2]


@dataclasses.dataclass(frozen=True, eq=False)
class Knowledge:
    """Selection of the links and drives to identify, and prior knowledge of all others.

    The parameters of links and drives that are not selected are taken from the model. They are either exact or have a
    relative standard deviation s. The torques due to exactly known parameters are subtracted from the measured torques.
    Parameters with a standard deviation are estimated from the logs and the model together, and all confidence
    intervals include the uncertainty of the model. For a link with pseudo-inertia J, which is J0 in the model, the
    prior probability density p is

        -log p = |J0^-1/2 (J - J0) J0^-1/2|^2 / (8 s^2).

    The right-hand side is the entropic divergence to second order and does not depend on the frame. It implies these
    standard deviations for a link:

    - mass: s times its value, if the density of the body is scaled uniformly;
    - second moment along a principal axis: 2 s times its value;
    - position of the centre of mass: sqrt(2) s radii of gyration.

    For a drive, s is the relative standard deviation of each parameter. Drive parameters that are zero in the model are
    exact.

    Attributes:
        links: names of the links to identify, including the bodies fixed to them; by default all links.
        joints: names of the joints whose drive terms are identified; by default all joints.
        deviation: relative standard deviation s of the links and drives that are not identified. Specify one number for
            all of them, or a mapping from names of links and joints to numbers; names that are missing have s = 0.
        mirrored: pairs of left and right links that are mirror images of each other, up to `mirrored_deviation`;
            `mirrored_links` finds them.
        mirrored_deviation: standard deviation s of the difference between one body and the mirror image of the other,
            relative to the mean of both bodies in the model. Pairs of links that have no mass in the model are ignored.

    Source: Lee, Wensing & Park 2020 for the divergence.
    """

    links: Sequence[str] | None = None
    joints: Sequence[str] | None = None
    deviation: float | Mapping[str, float] = 0.0
    mirrored: Sequence[tuple[str, str]] = ()
    mirrored_deviation: float = 0.05

    @property
    def is_partial(self) -> bool:
        """True if only some of the links or drives are identified."""
        return self.links is not None or self.joints is not None

    def of(self, chain: Chain, columns: Columns) -> "Known":
        """Convert the knowledge to arrays for the columns of a regressor.

        Raises:
            IdentificationError: a named link or joint does not exist, nothing is left to identify, or two links do not
                mirror each other. The error is also raised if a standard deviation is negative, not finite, or
                specified for an identified link or joint or for a body without mass.
        """
        links, joints = _others("link", chain.link_names, self.links), _others("joint", chain.joint_names, self.joints)
        if len(links) == chain.n and len(joints) == chain.n:
            raise IdentificationError("nothing is left to identify; name at least one link or joint")
        names = [*(chain.link_names[i] for i in links), *(chain.joint_names[j] for j in joints)]
        deviations = self.deviation if isinstance(self.deviation, Mapping) else dict.fromkeys(names, self.deviation)
        for name, s in deviations.items():
            if name not in names:
                raise IdentificationError(
                    f"a standard deviation is specified for {name!r}, which is identified or is not part of the robot"
                )
            _check_deviation(s, f"of {name!r}", 0.0)
        if columns.friction is not None and joints:
            raise IdentificationError(
                "a friction model is fitted at all joints: knowledge of some drives needs drive terms"
            )
        own = prior_parameters(chain, columns)
        fixed, rows = np.zeros(len(own), bool), []
        for i in links:
            at, s = np.arange(10 * i, 10 * i + 10), deviations.get(chain.link_names[i], 0.0)
            if s > 0 and own[at].any():
                rows.append(_placed(body_rows(chain.link_names[i], own[at], s), at, len(own)))
            else:
                fixed[at] = True
        for j in joints:
            at, s = np.flatnonzero(columns.of_joint(chain, j)), deviations.get(chain.joint_names[j], 0.0)
            loose = at[own[at] != 0] if s > 0 else at[:0]
            fixed[np.setdiff1d(at, loose)] = True
            rows.append(_placed(np.diag(1 / (max(s, 1e-300) * np.abs(own[loose]))), loose, len(own)))
        stated = np.concatenate([np.zeros((0, len(own))), *rows])
        pairs = self._pairs(chain, own)
        sides = np.concatenate([stated @ own, np.zeros(len(pairs))])
        return Known(fixed, np.where(fixed, own, 0.0), np.column_stack([np.concatenate([stated, pairs]), sides]))

    def _pairs(self, chain: Chain, own: Float[np.ndarray, " p"]) -> Float[np.ndarray, "k p"]:
        """Rows P for the mirrored links, with P @ parameters = 0 if the links of each pair are mirror images of each other."""
        rows = [np.zeros((0, len(own)))]
        for left, right in self.mirrored:
            _check_deviation(self.mirrored_deviation, "of mirrored links", np.finfo(float).tiny)
            image = mirrored_parameters(chain, left, right)
            i, j = (chain.link_names.index(name) for name in (left, right))
            mean = 0.5 * (own[10 * j : 10 * j + 10] + image @ own[10 * i : 10 * i + 10])
            if not mean.any():
                continue  # neither link has a body in the model
            inner = body_rows(right, mean, self.mirrored_deviation)
            at = np.array([*range(10 * j, 10 * j + 10), *range(10 * i, 10 * i + 10)])
            rows.append(_placed(np.hstack([inner, -inner @ image]), at, len(own)))
        return np.concatenate(rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """`Knowledge` of p parameters, as arrays.

    Attributes:
        fixed: mask of the exactly known parameters.
        values: values of the exactly known parameters, zero elsewhere.
        rows: rows [P, y] of independent conditions P x = y on the parameters x, scaled to a standard deviation of one.
    """

    fixed: Bool[np.ndarray, " p"]
    values: Float[np.ndarray, " p"]
    rows: Float[np.ndarray, "k w"]

    @property
    def directions(self) -> Float[np.ndarray, "r p"]:
        """Orthonormal basis of the row space of P, which contains the known directions regardless of their uncertainty."""
        p = self.rows[:, :-1]
        if not len(p):
            return p
        sizes = np.linalg.norm(p, axis=1, keepdims=True)
        _, values, vt = np.linalg.svd(p / np.where(sizes > 0, sizes, 1), full_matrices=False)
        return vt[values > 1e-12 * values.max()]

    def stated(self, width: int) -> Float[np.ndarray, "k w"] | None:
        """`rows`, padded to `width` columns with zeros before the last column; None if there are no rows."""
        if not len(self.rows):
            return None
        further = np.zeros((len(self.rows), width - self.rows.shape[1]))
        return np.hstack([self.rows[:, :-1], further, self.rows[:, -1:]])

    def taken_off(self, r: Float[np.ndarray, "k n w v"], first: int = 0) -> Float[np.ndarray, "k n w v"]:
        """Subtract the torque of the exactly known parameters from factors, whose columns begin at `first`."""
        at, r = np.flatnonzero(self.fixed), r.copy()
        r[..., -1] -= r[..., first + at] @ self.values[at]
        return r

    def filled_in(self, parameters: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """Insert the exactly known values into the parameters; additional parameters at the end do not change."""
        out, p = np.array(parameters, float), len(self.fixed)
        out[:p] = np.where(self.fixed, self.values, out[:p])
        return out


def body_rows(name: str, pi: Float[np.ndarray, "10"], s: float) -> Float[np.ndarray, "10 10"]:
    """Matrix P of a body's prior, with |P (x - pi)|^2 / 2 = |J0^-1/2 (J(x) - J0) J0^-1/2|^2 / (8 s^2).

    J(x) is the pseudo-inertia of the parameters x, and J0 = J(pi) that of the model's parameters pi. A body thinner
    than a tenth of its size is treated as if its thickness were a tenth of its size.

    Raises:
        IdentificationError: the body has no mass.
    """
    if not (pi[0] > 0 and np.isfinite(pi).all()):
        raise IdentificationError(
            f"link {name!r} has no mass in the model, so its parameters cannot have a relative standard deviation: "
            "add an inertial, or identify the link"
        )
    pseudo = pseudo_inertia(pi)
    centre = pi[1:4] / pi[0]
    moments, axes = np.linalg.eigh(pseudo[:3, :3] / pi[0] - np.outer(centre, centre))
    # of a point mass: the squared distance from the origin
    size = moments[-1] if moments[-1] > SMALLEST else max(float(centre @ centre), SMALLEST)
    root = np.eye(4)
    root[:3, :3], root[:3, 3] = axes * np.sqrt(np.maximum(moments, THINNEST**2 * size)), centre
    inverse = np.linalg.inv(np.sqrt(pi[0]) * root)  # inverse of any L with J0 = L L^T
    upper = np.triu_indices(4)
    weight = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) / (2 * s)
    return np.stack([weight * (inverse @ pseudo_inertia(unit) @ inverse.T)[upper] for unit in np.eye(10)], axis=1)


def _others(kind: str, names: tuple[str, ...], chosen: Sequence[str] | None) -> list[int]:
    """Indices of the names that are not among the chosen ones."""
    chosen = names if chosen is None else tuple(chosen)
    for name in chosen:
        if name not in names:
            raise IdentificationError(f"there is no {kind} {name!r} to identify; the {kind}s are {', '.join(names)}")
    return [k for k, name in enumerate(names) if name not in chosen]


def _placed(rows: Float[np.ndarray, "k m"], at: np.ndarray, p: int) -> Float[np.ndarray, "k p"]:
    out = np.zeros((len(rows), p))
    out[:, at] = rows
    return out


def _check_deviation(s: float, whose: str, least: float) -> None:
    if not (np.isfinite(s) and s >= least):
        raise IdentificationError(
            f"the relative standard deviation {whose} is {s:g}; it must be finite and "
            f"{'positive' if least else 'not negative'}, for example 0.05"
        )


# -- mirror


def mirrored_links(chain: Chain) -> tuple[tuple[str, str], ...]:
    """Find pairs (left, right) of links of left and right limbs from the kinematics.

    Two links form a pair if, with all joints at zero, their origins and joint axes are mirror images in the x-z plane
    of the base frame (x forward, y to the left, z up), and if their parents also mirror each other. Links in this plane
    and links without a unique counterpart are omitted.
    """
    turns, points, extent = _placements(chain)
    turning, sliding = np.split(np.asarray(chain.screw, float), 2, axis=1)
    axes = np.where(np.any(turning != 0, axis=1, keepdims=True), turning, sliding)
    axes = np.einsum("nij,nj->ni", turns, axes / np.maximum(np.linalg.norm(axes, axis=1, keepdims=True), 1e-12))
    apart = np.linalg.norm(points - (points @ MIRROR)[:, None], axis=2)
    alike = (apart <= NEAR * extent) & (np.abs(np.abs(axes @ MIRROR @ axes.T) - 1) < 1e-3)
    partner: dict[int, int | None] = {-1: -1}
    bodies, parents = with_bodies(chain.topology), chain.topology.parents
    for i in range(chain.n):
        same = [j for j in np.flatnonzero(alike[i]).tolist() if partner.get(parents[i]) == parents[j]]
        partner[i] = i if not bodies[i] or i in same else same[0] if len(same) == 1 else None
    sided = [(i, j) for i, j in partner.items() if j is not None and i != j and partner.get(j) == i]
    return tuple((chain.link_names[i], chain.link_names[j]) for i, j in sided if points[i][1] > points[j][1])


def mirrored_parameters(chain: Chain, left: str, right: str) -> Float[np.ndarray, "10 10"]:
    """Matrix T that maps the parameters of a body on the left link to those of its mirror image on the right link.

    Parameters are expressed in the frames of their links. With all joints at zero, these frames have the orientations
    R_l and R_r and the origins p_l and p_r. The reflection F in the x-z plane of the base maps a point x_l of the left
    link to x_r = Q x_l + d, with Q = R_r^T F R_l and d = R_r^T (F p_l - p_r). The pseudo-inertia of the mirror image is
    J_r = A J_l A^T with A = [Q, d; 0, 1].

    Raises:
        IdentificationError: the chain does not have one of the links, or the two links are not mirror images of each
            other.
    """
    for name in (left, right):
        if name not in chain.link_names:
            raise IdentificationError(f"there is no link {name!r}; the links are {', '.join(chain.link_names)}")
    turns, points, extent = _placements(chain)
    i, j = chain.link_names.index(left), chain.link_names.index(right)
    apart = MIRROR @ points[i] - points[j]
    if np.linalg.norm(apart) > FAR * extent:
        raise IdentificationError(
            f"links {left!r} and {right!r} do not mirror each other in the x-z plane of the base: with all joints at zero, the "
            f"mirrored origins are {np.linalg.norm(apart):.3g} m apart; mirrored_links finds the pairs of a symmetric robot"
        )
    change = np.eye(4)
    change[:3, :3], change[:3, 3] = turns[j].T @ MIRROR @ turns[i], turns[j].T @ apart
    moved = (change @ pseudo_inertia(unit) @ change.T for unit in np.eye(10))
    return np.stack([inertial_parameters_from_pseudo_inertia(x) for x in moved], axis=1)


def _placements(chain: Chain) -> tuple[Float[np.ndarray, "n 3 3"], Float[np.ndarray, "n 3"], float]:
    """Orientations and origins of all links in the base frame, with all joints at zero, and the robot's extent [m]."""
    turns, points = np.array(chain.rotation, float), np.array(chain.translation, float)
    for i, parent in enumerate(chain.topology.parents):
        if parent >= 0:
            points[i] = points[parent] + turns[parent] @ points[i]
            turns[i] = turns[parent] @ turns[i]
    for joint in layout(chain).curved:
        if joint.at_base:  # for a floating base, use its own frame
            body = joint.links.stop - 1
            root, origin = turns[body], points[body]
            turns, points = root.T @ turns, (points - origin) @ root
    return turns, points, max(float(np.linalg.norm(points - points[0], axis=1).max()), 1e-6)
