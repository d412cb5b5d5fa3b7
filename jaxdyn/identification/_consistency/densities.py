"""Bounds on the size of links, derived from the kinematics, and on their density, with defaults for ordinary machines."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import with_bodies
from ...spatial._host import pseudo_inertia_of, second_moment
from .._regression.base_parameters import BaseParameters
from .consistent import ConsistentEstimate, ConsistentProblem, consistent_least_squares, parameter_bounds
from .constraints import DENSITIES, Constraints, bounding_ellipsoid, linear_inequalities, no_constraints

AROUND = 0.5  # lateral extent of a link, as a fraction of the larger of its lengths L and P (`link_bounds`)
LEAST_REACH = 0.1  # minimum lateral extent, as a fraction of the sum of the distances between consecutive joints
ROOM = 1.5  # factor by which the bounds exceed what the links of the given model require
ROUNDS = 8  # maximum number of rounds to enforce bounds on density
NEARLY = 1.02  # factor by which a density may exceed its bound during estimation
SLACK = 1.1  # factor by which a link may exceed a bound before it is reported


@dataclasses.dataclass(frozen=True, eq=False)
class LinkBounds:
    """Bounds on the size and density of each link.

    Attributes:
        centres: (n, 3) centres of the bounding ellipsoids, in the links' frames [m].
        semi_axes: (n, 3) semi-axes of the ellipsoids [m]; infinite for links without bounds on their size.
        rotations: (n, 3, 3) rotations whose columns are the ellipsoids' axes in the links' frames.
        least: (n,) lower bounds on the density of the solid ellipsoid with the link's mass and inertia [kg/m^3].
        most: (n,) upper bounds on the density of the same ellipsoid [kg/m^3].
    """

    centres: Float[np.ndarray, "n 3"]
    semi_axes: Float[np.ndarray, "n 3"]
    rotations: Float[np.ndarray, "n 3 3"]
    least: Float[np.ndarray, " n"]
    most: Float[np.ndarray, " n"]

    def constraints(self, names: tuple[str, ...]) -> Constraints:
        """Constraints that keep every link inside its ellipsoid (`bounding_ellipsoid`); `names` as in `Columns.names`."""
        out = no_constraints(len(names))
        for i, (c, s, r) in enumerate(zip(self.centres, self.semi_axes, self.rotations, strict=True)):
            if np.all(np.isfinite(s)):
                out = out + bounding_ellipsoid(names, i + 1, c, s, r)
        return out


def link_bounds(chain: Chain, densities: tuple[float, float] = DENSITIES) -> LinkBounds:
    """Bounds on the size and density of each link, widened if necessary to include the chain's links.

    The size of each link is bounded by an ellipsoid that follows from the distances between joints:

    - L is the distance from the link's joint to the farthest of the child links' joints and the link's named frames.
    - P is the distance between the link's joint and its parent's joint, plus the travel if the link's joint is
      prismatic.
    - S is the sum of P over all joints.

    The centre of the ellipsoid is halfway between the joint and the farthest point. The semi-axis along the line
    between these two points is L / 2 + w, and the other semi-axes are w = max(L / 2, P / 2, S / 10). This width leaves
    room for parts that lie off the line, such as motors.

    If the chain has inertias, the bounds are widened where necessary to include its links with a safety factor of 1.5.

    Args:
        chain: the robot; only links with inertia can widen the bounds.
        densities: lower and upper bounds on the density of each link [kg/m^3].

    Raises:
        IdentificationError: a bound is negative, or the lower bound is not below the upper bound.
    """
    least, most = densities
    if not 0 <= least < most:
        raise IdentificationError(
            f"the density bounds are {least:g} and {most:g} kg/m^3; they must satisfy 0 <= lower < upper"
        )
    n = chain.n
    translation, screw = np.asarray(chain.translation, float), np.asarray(chain.screw, float)
    limits = np.asarray(chain.limits.position, float)
    travel = np.where(np.isfinite(limits).all(axis=-1), np.ptp(np.where(np.isfinite(limits), limits, 0), axis=-1), 0.0)
    slides = np.linalg.norm(screw[:, :3], axis=1) == 0
    before = np.linalg.norm(translation, axis=1) + np.where(slides, travel, 0.0)
    farthest = np.zeros((n, 3))
    points = [(parent, translation[i]) for i, parent in enumerate(chain.topology.parents) if parent >= 0]
    points += [
        (link, pose[:3, 3])
        for link, pose in zip(chain.topology.frame_links, np.asarray(chain.frame_poses, float), strict=True)
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
    """Orthonormal axes as columns; the third points along `direction`."""
    size = np.linalg.norm(direction)
    if size == 0:
        return np.eye(3)
    q = np.linalg.qr(np.column_stack([direction / size, np.eye(3)]))[0]
    return np.column_stack([q[:, 1], q[:, 2], q[:, 0]])


def _holding(bounds: LinkBounds, inertia: Float[np.ndarray, "n 10"]) -> LinkBounds:
    """Widen the bounds where necessary to contain links with these inertias; massless links are ignored."""
    semi_axes, least, most = bounds.semi_axes.copy(), bounds.least.copy(), bounds.most.copy()
    for i, pi in enumerate(inertia):
        if pi[0] <= 0 or not np.isfinite(density := equivalent_density(pi)):
            continue
        least[i], most[i] = min(least[i], density / ROOM), max(most[i], density * ROOM)
        if np.all(np.isfinite(semi_axes[i])):
            semi_axes[i] *= max(1.0, ROOM * filled_share(bounds, i, pi))
    return dataclasses.replace(bounds, semi_axes=semi_axes, least=least, most=most)


def filled_share(bounds: LinkBounds, link: int, pi: Float[np.ndarray, "10"]) -> float:
    """RMS distance of a link's mass from its ellipsoid's centre, in units of the semi-axes; at most 1 if the link fits in."""
    second, h, m = second_moment(pi), pi[1:4], pi[0]
    c, r, s = bounds.centres[link], bounds.rotations[link], bounds.semi_axes[link]
    about = second - np.outer(c, h) - np.outer(h, c) + m * np.outer(c, c)
    return float(np.sqrt(max(np.trace(r @ np.diag(s**-2.0) @ r.T @ about) / m, 0.0)))


def equivalent_density(pi: Float[np.ndarray, "10"]) -> float:
    """Density of the solid ellipsoid with a link's mass and inertia [kg/m^3]; infinite for a flat or inconsistent link."""
    volume = _volume(pi)
    return float(pi[0] / volume) if volume > 0 else np.inf


def _volume(pi: Float[np.ndarray, "10"]) -> float:
    """Volume 4 pi / 3 a b c of the solid ellipsoid with the second moments m a^2 / 5, m b^2 / 5, m c^2 / 5 [m^3]."""
    m = pi[0]
    if not m > 0:
        return 0.0
    squares = 5 / m * np.linalg.eigvalsh(second_moment(pi) - np.outer(pi[1:4], pi[1:4]) / m)
    return float(4 / 3 * np.pi * np.sqrt(max(np.prod(squares), 0.0))) if squares.min() > 0 else 0.0


def consistent_within(problem: ConsistentProblem, base: BaseParameters, bounds: LinkBounds) -> ConsistentEstimate:
    """Solve a physically consistent estimation problem with bounds on the size and density of links.

    Bounds on size are linear in the parameters (`LinkBounds.constraints`). Bounds on density are nonlinear, and are
    enforced in several rounds of convex estimation:

    - If a link was too dense in one round, it must be at least as thick, in the next round, as a ball with its mass and
      the maximum density. The matrix J(pi) - m diag(e^2, e^2, e^2, 0) must be positive definite, where J is the
      pseudo-inertia, m the mass, and e the RMS extent of the ball along an axis. A linear change of parameters turns
      this condition into that of the original problem.
    - If a link was not dense enough, its density bound is expressed as an upper bound on log det J - 6 log m, which
      decreases with density. This bound is linearised about the parameters of the previous round.

    If the density bounds conflict with the other constraints, the rounds end with the last feasible estimate. Some of
    its links may then violate their bounds; `unusual_links` names these links.

    Args:
        problem: result of `consistent_problem`.
        base: the base parameters.
        bounds: result of `link_bounds`.

    Raises:
        IdentificationError: the constraints cannot be satisfied.
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
        except IdentificationError:  # density bounds conflict with the constraints
            break
    return found


def _thickened(
    problem: ConsistentProblem, base: BaseParameters, known: Constraints, thickness: Float[np.ndarray, " n"]
) -> ConsistentEstimate:
    """Physically consistent estimate with an RMS extent of at least `thickness` [m] of each link in every direction."""
    change = np.eye(len(problem.prior))
    for i, least in enumerate(thickness):
        change[10 * i + np.array([4, 6, 9]), 10 * i] = 2 * least**2
    moved = dataclasses.replace(
        problem,
        matrix=problem.matrix @ change,
        constraints=dataclasses.replace(known, equal=known.equal @ change, least=known.least @ change),
    )
    found = consistent_least_squares(moved, dataclasses.replace(base, matrix=base.matrix @ change))
    bounds = parameter_bounds(dataclasses.replace(problem, constraints=known))
    return dataclasses.replace(found, parameters=change @ found.parameters, bounds=bounds)


def _heavier(p: int, link: int, pi: Float[np.ndarray, "10"], least: float) -> Constraints:
    """Lower bound on a link's density, log det J - 6 log m <= log(9 / (16 pi^2 125 least^2)), linearised at `pi`."""
    m, pseudo = pi[0], pseudo_inertia_of(pi)
    inverse = np.linalg.inv(pseudo)
    above = np.linalg.slogdet(pseudo)[1] - 6 * np.log(m) - np.log(9 / (16 * np.pi**2 * 125 * least**2))
    row = np.zeros(p)
    row[10 * link : 10 * link + 10] = [np.sum(pseudo_inertia_of(unit) * inverse) for unit in np.eye(10)]
    row[10 * link] -= 6 / m
    return linear_inequalities(-row[None], np.array([2.0 + above]))


def unusual_links(
    chain: Chain, densities: tuple[float, float] = DENSITIES, model: Chain | None = None
) -> tuple[str, ...]:
    """Describe each link that is too dense, not dense enough or too large for the kinematics, in one sentence per link.

    Args:
        chain: the robot; links without mass are ignored.
        densities: lower and upper bounds on the density of each link [kg/m^3].
        model: robot whose inertias widen the bounds (`link_bounds`); by default the bounds follow from the kinematics
            of `chain` alone.

    Raises:
        IdentificationError: a bound is negative, or the lower bound is not below the upper bound.
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
            out.append(f"link {name!r} has a mass of {pi[0]:.3g} kg and a density of {density:.2g} kg/m^3")
        elif share > SLACK:
            out.append(
                f"link {name!r} has a mass of {pi[0]:.3g} kg that extends {share:.2g} times as far as the distances between "
                "joints suggest"
            )
    return tuple(out)
