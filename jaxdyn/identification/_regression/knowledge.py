"""Prior knowledge of a robot's parameters: from its model, or from the symmetry of its limbs."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .blocks import BlockFactors
from .columns import Columns, prior_parameters
from .mirror import mirrored_parameters, pseudo_inertia_of

THINNEST = 0.1  # of a body's own size, that a known body is taken to be thick in every direction
SMALLEST = 1e-8  # square of a radius of gyration [m^2]


@dataclasses.dataclass(frozen=True, eq=False)
class Knowledge:
    """The links and drives to identify, and the uncertainty of the others.

    Links and drives that are not identified have the parameters of the model: exactly, so that their torque is subtracted from
    the logs, or with a relative standard deviation s. In the latter case they are estimated too, from the logs and the model
    together, and all intervals include the uncertainty of the model. For a link with pseudo-inertia J (J0 in the model),

        -log p = |J0^-1/2 (J - J0) J0^-1/2|^2 / (8 s^2),

    the entropic divergence to second order, which depends on no frame: s is the standard deviation of the mass of a body that
    is scaled as a whole, in parts of its mass, 2 s that of its second moment along a principal axis, and sqrt(2) s that of its
    centre of mass, in radii of gyration. For a drive, s is that of each parameter over its own size; those of zero are exact.

    Attributes:
        links: names of the links to identify; all where None. What is fixed to a link belongs to it.
        joints: names of the joints whose drive terms to identify; all where None.
        deviation: s of the links and drives that are not identified: one for all, or by name of the link or joint, zero for
            those left out.
        mirrored: pairs of links of a left and a right limb (`mirrored_links`) of which one is the mirror image of the other,
            with the standard deviation `mirrored_deviation`.
        mirrored_deviation: s of one body about the image of the other, in parts of the model's two; pairs of links without
            mass in the model are left out.

    Source: the divergence is that of Lee, Wensing & Park 2020.
    """

    links: Sequence[str] | None = None
    joints: Sequence[str] | None = None
    deviation: float | Mapping[str, float] = 0.0
    mirrored: Sequence[tuple[str, str]] = ()
    mirrored_deviation: float = 0.05

    @property
    def is_partial(self) -> bool:
        """True if only a part of the robot is identified."""
        return self.links is not None or self.joints is not None

    def of(self, chain: Chain, columns: Columns) -> "Known":
        """The knowledge as arrays, for the columns of a regressor.

        Raises:
            IdentificationError: a link or joint that the chain does not have; nothing is left to identify; a deviation that is
                negative or not finite, or of a name that is not known; a body that is known to a deviation has no mass; links
                that do not mirror each other.
        """
        links, joints = _others("link", chain.link_names, self.links), _others("joint", chain.joint_names, self.joints)
        if len(links) == chain.n and len(joints) == chain.n:
            raise IdentificationError("nothing is left to identify: name a link or a joint")
        names = [*(chain.link_names[i] for i in links), *(chain.joint_names[j] for j in joints)]
        own, deviations = prior_parameters(chain, columns), self._deviations(names)
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

    def _deviations(self, known: Sequence[str]) -> Mapping[str, float]:
        """Relative standard deviation of every known link and joint."""
        given = self.deviation if isinstance(self.deviation, Mapping) else dict.fromkeys(known, self.deviation)
        for name, s in given.items():
            if name not in known:
                raise IdentificationError(
                    f"a deviation is given for {name!r}, which is not a link or joint that is known"
                )
            _check_deviation(s, f"of {name!r}", 0.0)
        return given

    def _pairs(self, chain: Chain, own: Float[np.ndarray, " p"]) -> Float[np.ndarray, "k p"]:
        """Rows for the mirrored links: zero if one is the image of the other."""
        rows = [np.zeros((0, len(own)))]
        for left, right in self.mirrored:
            _check_deviation(self.mirrored_deviation, "of mirrored links", np.finfo(float).tiny)
            image = mirrored_parameters(chain, left, right)
            i, j = (chain.link_names.index(name) for name in (left, right))
            mean = 0.5 * (own[10 * j : 10 * j + 10] + image @ own[10 * i : 10 * i + 10])
            if not mean.any():
                continue  # bodies that the model does not have, either
            inner = body_rows(right, mean, self.mirrored_deviation)
            at = np.array([*range(10 * j, 10 * j + 10), *range(10 * i, 10 * i + 10)])
            rows.append(_placed(np.hstack([inner, -inner @ image]), at, len(own)))
        return np.concatenate(rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """`Knowledge` of p parameters as arrays.

    Attributes:
        fixed: mask of the parameters known exactly.
        values: their values, zero elsewhere.
        rows: [P, y] with P x = y +- 1, independent knowledge in units of its standard deviation.
    """

    fixed: Bool[np.ndarray, " p"]
    values: Float[np.ndarray, " p"]
    rows: Float[np.ndarray, "k w"]

    @property
    def directions(self) -> Float[np.ndarray, "r p"]:
        """Orthonormal rows that span those of P: the known directions, regardless of their uncertainty."""
        p = self.rows[:, :-1]
        if not len(p):
            return p
        sizes = np.linalg.norm(p, axis=1, keepdims=True)
        _, values, vt = np.linalg.svd(p / np.where(sizes > 0, sizes, 1), full_matrices=False)
        return vt[values > 1e-12 * values.max()]

    def stated(self, width: int) -> Float[np.ndarray, "k w"] | None:
        """`rows` for factors of this width, whose further columns precede the torque; None if there are none."""
        if not len(self.rows):
            return None
        further = np.zeros((len(self.rows), width - self.rows.shape[1]))
        return np.hstack([self.rows[:, :-1], further, self.rows[:, -1:]])

    def taken_off(self, blocks: BlockFactors) -> BlockFactors:
        """The factors with the torque of the exactly known parameters subtracted."""
        if not self.fixed.any():
            return blocks
        at = np.flatnonzero(self.fixed)
        r = blocks.r.copy()
        r[..., -1] -= r[..., at] @ self.values[at]
        return dataclasses.replace(blocks, r=r)

    def filled_in(self, parameters: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """Parameters, further ones last, with the exactly known ones inserted."""
        out, p = np.array(parameters, float), len(self.fixed)
        out[:p] = np.where(self.fixed, self.values, out[:p])
        return out


def body_rows(name: str, pi: Float[np.ndarray, "10"], s: float) -> Float[np.ndarray, "10 10"]:
    """P with |P (x - pi)|^2 / 2 = |J0^-1/2 (J(x) - J0) J0^-1/2|^2 / (8 s^2), J0 the pseudo-inertia of the body pi.

    A body thinner than a tenth of its size counts as that thick.

    Raises:
        IdentificationError: the body has no mass.
    """
    if not (pi[0] > 0 and np.isfinite(pi).all()):
        raise IdentificationError(
            f"link {name!r} has no mass in the model, of which nothing can be known in parts of it: give it an inertial, or "
            "identify it"
        )
    pseudo = pseudo_inertia_of(pi)
    centre = pi[1:4] / pi[0]
    moments, axes = np.linalg.eigh(pseudo[:3, :3] / pi[0] - np.outer(centre, centre))
    size = (
        moments[-1] if moments[-1] > SMALLEST else max(float(centre @ centre), SMALLEST)
    )  # or a point mass's distance
    root = np.eye(4)
    root[:3, :3], root[:3, 3] = axes * np.sqrt(np.maximum(moments, THINNEST**2 * size)), centre
    inverse = np.linalg.inv(np.sqrt(pi[0]) * root)  # J0 = L L^T, for any such L
    upper = np.triu_indices(4)
    weight = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) / (2 * s)
    return np.stack([weight * (inverse @ pseudo_inertia_of(unit) @ inverse.T)[upper] for unit in np.eye(10)], axis=1)


def _others(kind: str, names: tuple[str, ...], chosen: Sequence[str] | None) -> list[int]:
    """Indices of the names that are not chosen."""
    chosen = names if chosen is None else tuple(chosen)
    for name in chosen:
        if name not in names:
            raise IdentificationError(f"there is no {kind} {name!r} to identify; there are {', '.join(names)}")
    return [k for k, name in enumerate(names) if name not in chosen]


def _placed(rows: Float[np.ndarray, "k m"], at: np.ndarray, p: int) -> Float[np.ndarray, "k p"]:
    out = np.zeros((len(rows), p))
    out[:, at] = rows
    return out


def _check_deviation(s: float, whose: str, least: float) -> None:
    if not (np.isfinite(s) and s >= least):
        raise IdentificationError(
            f"the relative standard deviation {whose} is {s:g}; it must be a positive number, such as 0.05"
        )
