"""Links of ordinary machines: bounds on size, from the kinematics, and on density."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import with_bodies
from ...spatial._host import second_moment
from .._regression.base_parameters import BaseParameters
from .consistent import ConsistentEstimate, ConsistentProblem, consistent_least_squares
from .constraints import DENSITIES, Constraints, bounding_ellipsoid, linear_inequalities, no_constraints

AROUND = 0.5  # fraction of the longer of a link's two distances between joints, as the extent across it
LEAST_REACH = 0.1  # of all these distances of the robot together
ROOM = 1.5  # margin of the given model's own links inside their bounds
ROUNDS = 8
NEARLY = 1.02  # tolerance within which a density meets its bound
SLACK = 1.1  # tolerance within which it is not reported


@dataclasses.dataclass(frozen=True, eq=False)
class LinkBounds:
    """Bounds on the size and density of each link.

    Attributes:
        centres: (n, 3) of the ellipsoids, in the links' frames [m].
        semi_axes: (n, 3) of the ellipsoids; infinite if the kinematics have no size [m].
        rotations: (n, 3, 3) the ellipsoids' axes in the links' frames.
        least: (n,) least density of the solid ellipsoid with the link's mass and inertia [kg/m^3].
        most: (n,) greatest one.
    """

    centres: Float[np.ndarray, "n 3"]
    semi_axes: Float[np.ndarray, "n 3"]
    rotations: Float[np.ndarray, "n 3 3"]
    least: Float[np.ndarray, " n"]
    most: Float[np.ndarray, " n"]

    def constraints(self, names: tuple[str, ...]) -> Constraints:
        """Every link lies within its ellipsoid (`bounding_ellipsoid`); `names` are those of all parameters."""
        out = no_constraints(len(names))
        for i, (c, s, r) in enumerate(zip(self.centres, self.semi_axes, self.rotations, strict=True)):
            if np.all(np.isfinite(s)):
                out = out + bounding_ellipsoid(names, i + 1, c, s, r)
        return out


def link_bounds(chain: Chain, densities: tuple[float, float] = DENSITIES) -> LinkBounds:
    """Bounds of each link by the distances between joints, widened to include the chain's own links.

    A link extends from its joint to those of its child links, L the farthest, and to its named frames; P is the
    distance of its joint from that of its parent, S the sum of P over the robot. The ellipsoid has its centre halfway to
    the farthest joint, the semi-axis L / 2 + w along that line and w across it, w = max(max(L, P) / 2, S / 10): parts
    of a link, such as motors, may be off the line between the joints. A prismatic joint adds its travel to P.

    If the chain has inertias, bounds that its own links violate are widened to 1.5 times the extent of those links.

    Args:
        chain: the robot; links without inertia are ignored.
        densities: least and greatest [kg/m^3].

    Raises:
        IdentificationError: densities are not positive and increasing.
    """
    least, most = densities
    if not 0 <= least < most:
        raise IdentificationError(f"densities of {least:g} to {most:g} kg/m^3 admit no link: give 0 <= least < most")
    n = chain.n
    translation, screw = np.asarray(chain.translation, float), np.asarray(chain.screw, float)
    limits = np.asarray(chain.limits.position, float)
    travel = np.where(np.isfinite(limits).all(axis=-1), np.ptp(np.where(np.isfinite(limits), limits, 0), axis=-1), 0.0)
    slides = np.linalg.norm(screw[:, :3], axis=1) == 0
    before = np.linalg.norm(translation, axis=1) + np.where(slides, travel, 0.0)
    farthest = np.zeros((n, 3))
    points = [(parent, translation[i]) for i, parent in enumerate(chain.topology.parents) if parent >= 0]
    points += [
        (link, np.asarray(pose, float)[:3, 3])
        for link, pose in zip(chain.topology.frame_links, chain.frame_poses, strict=True)
        if link >= 0
    ]
    for link, point in points:
        if np.linalg.norm(point) > np.linalg.norm(farthest[link]):
            farthest[link] = point
    length = np.linalg.norm(farthest, axis=1)
    width = np.maximum(AROUND * np.maximum(length, before), LEAST_REACH * before.sum())
    semi_axes = np.stack([width, width, length / 2 + width], axis=1)
    bodies = with_bodies(chain.topology)
    semi_axes[(width == 0) | ~bodies] = np.inf
    bounds = LinkBounds(
        farthest / 2,
        semi_axes,
        np.stack([_along(x) for x in farthest]),
        np.where(bodies, float(least), 0.0),
        np.where(bodies, float(most), np.inf),
    )
    return _holding(bounds, np.asarray(chain.inertia, float))


def _along(direction: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Orthonormal axes with the third along this direction."""
    size = np.linalg.norm(direction)
    if size == 0:
        return np.eye(3)
    q = np.linalg.qr(np.column_stack([direction / size, np.eye(3)]))[0]
    return np.column_stack([q[:, 1], q[:, 2], q[:, 0]])


def _holding(bounds: LinkBounds, inertia: Float[np.ndarray, "n 10"]) -> LinkBounds:
    """Bounds that contain the links of a model, if it has any."""
    semi_axes, least, most = bounds.semi_axes.copy(), bounds.least.copy(), bounds.most.copy()
    for i, pi in enumerate(inertia):
        if pi[0] <= 0 or not np.isfinite(density := equivalent_density(pi)):
            continue
        least[i], most[i] = min(least[i], density / ROOM), max(most[i], density * ROOM)
        if np.all(np.isfinite(semi_axes[i])):
            semi_axes[i] *= max(1.0, ROOM * filled_share(bounds, i, pi))
    return dataclasses.replace(bounds, semi_axes=semi_axes, least=least, most=most)


def filled_share(bounds: LinkBounds, link: int, pi: Float[np.ndarray, "10"]) -> float:
    """Root mean square distance of a link's mass from the centre of its ellipsoid, in the ellipsoid's radii; at most 1."""
    second, h, m = second_moment(pi), pi[1:4], pi[0]
    c, r, s = bounds.centres[link], bounds.rotations[link], bounds.semi_axes[link]
    about = second - np.outer(c, h) - np.outer(h, c) + m * np.outer(c, c)
    return float(np.sqrt(max(np.trace(r @ np.diag(s**-2.0) @ r.T @ about) / m, 0.0)))


def equivalent_density(pi: Float[np.ndarray, "10"]) -> float:
    """Density of the solid ellipsoid of a link's mass and inertia [kg/m^3]; infinite if it is flat or inconsistent."""
    volume = _volume(pi)
    return float(pi[0] / volume) if volume > 0 else np.inf


def _pseudo_inertia(pi: Float[np.ndarray, "10"]) -> Float[np.ndarray, "4 4"]:
    """J = [S, h; h^T, m], linear in the ten parameters."""
    return np.block([[second_moment(pi), pi[1:4, None]], [pi[None, 1:4], np.array([[pi[0]]])]])


def _volume(pi: Float[np.ndarray, "10"]) -> float:
    """Of the solid ellipsoid with second moments m a^2 / 5: 4 pi / 3 a b c [m^3]."""
    m = pi[0]
    if not m > 0:
        return 0.0
    squares = 5 / m * np.linalg.eigvalsh(second_moment(pi) - np.outer(pi[1:4], pi[1:4]) / m)
    return float(4 / 3 * np.pi * np.sqrt(max(np.prod(squares), 0.0))) if squares.min() > 0 else 0.0


def consistent_within(problem: ConsistentProblem, base: BaseParameters, bounds: LinkBounds) -> ConsistentEstimate:
    """The consistent estimate with links of the size and density of ordinary machines.

    Sizes are linear in the parameters (`LinkBounds.constraints`). Densities are not, and are enforced in rounds of
    convex estimation. A link that is too dense in one round must in the next be at least as thick as a ball of its
    mass at the greatest density: J(pi) - m diag(e^2, e^2, e^2, 0) positive definite, with parameters linear in the
    original ones. For a link that is too light, log det J - 6 log m, which decreases with density, is bounded
    linearly about the previous round's parameters.
    Density bounds that conflict with the other constraints are dropped (`unusual_links` names the links).

    Args:
        problem: from `consistent_problem`.
        base: the base parameters.
        bounds: from `link_bounds`.

    Raises:
        IdentificationError: the constraints cannot be met.
    """
    p, n = len(problem.prior), problem.links
    names = tuple(f"m{i // 10 + 1}" if i % 10 == 0 and i < 10 * n else "" for i in range(p))
    known = problem.constraints + bounds.constraints(names)
    thickness = np.zeros(n)
    light: dict[int, Constraints] = {}
    found = _thickened(problem, base, known, thickness)
    for _ in range(ROUNDS):
        done = True
        for i, pi in enumerate(found.parameters[: 10 * n].reshape(n, 10)):
            density = equivalent_density(pi)
            if density > NEARLY * bounds.most[i]:
                ball = (3 * pi[0] / (4 * np.pi * bounds.most[i])) ** (1 / 3) / np.sqrt(5)
                thickness[i], done = max(1.02 * ball, 1.1 * thickness[i]), False
            elif density < bounds.least[i] / NEARLY:
                light[i], done = _heavier(p, i, pi, 1.01 * bounds.least[i]), False
        if done:
            break
        try:
            found = _thickened(problem, base, sum(light.values(), known), thickness)
        except IdentificationError:  # the torques require such links; the other constraints are kept
            break
    return found


def _thickened(
    problem: ConsistentProblem, base: BaseParameters, known: Constraints, thickness: Float[np.ndarray, " n"]
) -> ConsistentEstimate:
    """The consistent estimate among links of at least these radii of gyration: pi = T pi', with pi' any consistent link."""
    change = np.eye(len(problem.prior))
    for i, least in enumerate(thickness):
        change[10 * i + np.array([4, 6, 9]), 10 * i] = 2 * least**2
    moved = dataclasses.replace(
        problem,
        matrix=problem.matrix @ change,
        constraints=dataclasses.replace(known, equal=known.equal @ change, least=known.least @ change),
    )
    found = consistent_least_squares(moved, dataclasses.replace(base, matrix=base.matrix @ change))
    return dataclasses.replace(found, parameters=change @ found.parameters)


def _heavier(p: int, link: int, pi: Float[np.ndarray, "10"], least: float) -> Constraints:
    """Density bound, log det J - 6 log m <= log(9 / (16 pi^2 125 least^2)), linearised about given parameters."""
    m, pseudo = pi[0], _pseudo_inertia(pi)
    inverse = np.linalg.inv(pseudo)
    above = np.linalg.slogdet(pseudo)[1] - 6 * np.log(m) - np.log(9 / (16 * np.pi**2 * 125 * least**2))
    row = np.zeros(p)
    row[10 * link : 10 * link + 10] = [np.sum(_pseudo_inertia(unit) * inverse) for unit in np.eye(10)]
    row[10 * link] -= 6 / m
    return linear_inequalities(-row[None], np.array([2.0 + above]))


def unusual_links(
    chain: Chain, densities: tuple[float, float] = DENSITIES, model: Chain | None = None
) -> tuple[str, ...]:
    """Links that are too dense, too light or too large for the kinematics, described in one sentence each.

    Args:
        chain: the robot; links without mass are ignored.
        densities: least and greatest [kg/m^3].
        model: robot that defines the bounds (`link_bounds`); None: no bounds on size.
    """
    bare = dataclasses.replace(chain, inertia=0 * chain.inertia)
    bounds = link_bounds(bare if model is None else model, densities)
    out = []
    for i, (name, pi) in enumerate(zip(chain.link_names, np.asarray(chain.inertia, float), strict=True)):
        density = equivalent_density(pi)
        if pi[0] <= 0 or not np.isfinite(density):
            continue
        share = filled_share(bounds, i, pi) if np.all(np.isfinite(bounds.semi_axes[i])) else 0.0
        if density > SLACK * bounds.most[i] or density < bounds.least[i] / SLACK:
            out.append(f"link {name!r} has {pi[0]:.3g} kg at {density:.2g} kg/m^3")
        elif share > SLACK:
            out.append(
                f"link {name!r} has {pi[0]:.3g} kg that lie {share:.2g} times as far out as its joints leave room for"
            )
    return tuple(out)
