"""Draw the pictures of docs/mechanisms.md: `python docs/pictures/mechanisms.py [name ...]`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

import jaxdyn

XY, YZ, XZ = np.eye(3)[[0, 1]], np.eye(3)[[1, 2]], np.eye(3)[[0, 2]]


def seen_from(azimuth: float, elevation: float) -> np.ndarray:
    """Projection matrix of an orthographic view of a world with z up, from a direction [rad]."""
    sa, ca, se, ce = np.sin(azimuth), np.cos(azimuth), np.sin(elevation), np.cos(elevation)
    return np.array([[-sa, ca, 0], [-se * ca, -se * sa, ce]])


def draw(axes: Axes, chain: jaxdyn.Chain, q: np.ndarray, view: np.ndarray, labels: dict[int, str]) -> np.ndarray:
    """Draw links as lines, revolute joints as circles, prismatic joints as squares, and centres of mass as dots.

    Returns:
        the origins of the links, in coordinates of the picture.
    """
    poses = np.asarray(jaxdyn.forward_kinematics(chain, jnp.asarray(q)))
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose)
    parents = [base if p < 0 else poses[p] for p in chain.topology.parents]
    flat = lambda point: view @ point[:3]
    line = lambda a, b, **style: axes.plot(*np.transpose([flat(a), flat(b)]), solid_capstyle="round", **style)
    points = []
    for i, (parent, t) in enumerate(zip(parents, poses, strict=True)):
        placed = parent @ np.append(np.asarray(chain.translation[i]), 1)
        slides = not np.asarray(chain.screw[i, :3]).any()
        grounded = chain.topology.parents[i] < 0
        line(parent[:3, 3], placed, c="0.55" if grounded else "C0", lw=1.5 if grounded else 3, zorder=1)
        line(placed, t[:3, 3], c="C0", lw=3, zorder=1)
        axes.plot(*flat(placed), "s" if slides else "o", c="white", mec="0.2", ms=8, zorder=3)
        if grounded:
            axes.plot(*flat(base[:3, 3]), "^", c="0.55", ms=11, zorder=0)
        if i in labels:
            axes.annotate(labels[i], flat(placed), xytext=(8, -15), textcoords="offset points", fontsize=11, zorder=5)
        m, h = float(chain.inertia[i, 0]), np.asarray(chain.inertia[i, 1:4])
        if m > 0:
            axes.plot(*flat(t @ np.append(h / m, 1)), "o", c="C3", ms=4.5, zorder=4)
        points.append(flat(t[:3, 3]))
    for k, link in enumerate(chain.topology.frame_links):
        t = poses[link] if link >= 0 else base
        line(t[:3, 3], t @ np.asarray(chain.frame_poses[k])[:, 3], c="C0" if link >= 0 else "0.55", lw=3, zorder=1)
    return np.array(points)


def gravity_arrow(axes: Axes, chain: jaxdyn.Chain, view: np.ndarray) -> None:
    """Draw an arrow along gravity in the upper right corner."""
    along = view @ np.asarray(chain.gravity) / np.linalg.norm(np.asarray(chain.gravity))
    style = {"xycoords": "axes fraction", "ha": "center", "va": "center"}
    start = np.array([0.96, 0.97])
    axes.annotate(
        "", start + 0.2 * along, start, "axes fraction", "axes fraction", {"arrowstyle": "->", "color": "0.3"}
    )
    axes.annotate("g", start - np.array([0.045, 0.1]), color="0.3", **style)


def triad(axes: Axes, view: np.ndarray) -> None:
    """Draw the world axes as thin lines."""
    for axis, name in zip(0.45 * np.eye(3), "xyz", strict=True):
        end = view @ axis
        axes.plot([0, end[0]], [0, end[1]], c="0.75", lw=1, zorder=0)
        axes.annotate(name, 1.12 * end, color="0.6", fontsize=9, ha="center", va="center")


def gear(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
    """Draw the motor's gear wheel meshing with that of the joint."""
    for centre, radius in (((0, 0), 0.16), ((0.0, 0.22), 0.06)):
        axes.add_patch(Circle(centre, radius, fill=False, ec="0.4", lw=1.3))
    axes.annotate("motor", (0.1, 0.21), fontsize=9, color="0.3")


def spring(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
    """Draw the motor's angle as a dashed line, and a spring between it and the link."""
    motor, link = 0.15, 0.75
    axes.plot([0, 0.7 * np.sin(motor)], [0, -0.7 * np.cos(motor)], "--", c="0.4")
    axes.annotate("q2 (motor)", (0.05, -0.62), fontsize=10, color="0.3", ha="right")
    axes.annotate("q1 (link)", (0.42, -0.3), fontsize=10)
    angle = np.linspace(motor, link, 41)
    radius = 0.45 + 0.04 * np.interp(np.arange(41) % 8, [0, 2, 6, 8], [0, 1, -1, 0])
    axes.plot(radius * np.sin(angle), -radius * np.cos(angle), c="C2", lw=1.3)


def belt(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
    """Draw a belt around both joints."""
    along = points[1] / np.linalg.norm(points[1])
    across = 0.09 * np.array([-along[1], along[0]])
    for side in (across, -across):
        axes.plot(*np.transpose([side, points[1] + side]), c="C2", lw=1.2)
    for centre in ((0, 0), points[1]):
        axes.add_patch(Circle(centre, 0.09, fill=False, ec="C2", lw=1.2))


def shadow(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
    """Draw the projection of the reach onto the horizontal plane, and the height above it."""
    q1, q2, r = picture.q
    foot = picture.view @ [r * np.cos(q2) * np.cos(q1), r * np.cos(q2) * np.sin(q1), 0]
    axes.plot(*np.transpose([[0, 0], foot, points[2]]), "--", c="0.6", lw=1, zorder=0)
    axes.annotate("r", 0.75 * points[2] + np.array([-0.08, 0.04]), fontsize=11)


def pin(link: int, length: float, other: int) -> Callable[[Axes, "Picture", np.ndarray], None]:
    """Draw a link of this length up to the pin that closes the loop, and a line to the pin on the other link."""

    def extra(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
        pose = np.asarray(jaxdyn.forward_kinematics(picture.chain(), jnp.asarray(picture.q))[link])
        end = picture.view @ (pose[:3, 3] + length * pose[:3, 0])
        for start in (points[link], points[other]):
            axes.plot(*np.transpose([start, end]), c="C0", lw=3, zorder=1)
        axes.plot(*end, "o", c="C2", mec="0.2", ms=8, zorder=3)
        axes.annotate("pin", end, xytext=(8, -13), textcoords="offset points", fontsize=9, color="C2")

    return extra


def torso_and_soles(axes: Axes, picture: "Picture", points: np.ndarray) -> None:
    """Draw the torso above the pelvis, and the edges of the feet."""
    chain, q = picture.chain(), jnp.asarray(picture.q)
    at = lambda frame, x: picture.view @ np.asarray(jaxdyn.frame_pose(chain, q, frame) @ jnp.asarray([*x, 1.0]))[:3]
    body = [at("pelvis", x) for x in ((0, -0.12, 0), (0, -0.12, 0.5), (0, 0.12, 0.5), (0, 0.12, 0))]
    axes.fill(*np.transpose(body), fc="C0", alpha=0.15)
    axes.plot(*np.transpose([*body, body[0]]), c="C0", lw=2)
    for side in ("left", "right"):
        sole = [at(f"{side}_sole", (x, y, 0)) for x, y in ((-0.08, -0.06), (0.14, -0.06), (0.14, 0.06), (-0.08, 0.06))]
        axes.fill(*np.transpose(sole), fc="0.55" if side == "left" else "C0", alpha=0.5, zorder=0)


class Picture(NamedTuple):
    """A robot in a configuration, its view, the labels of its joints, and additional elements to draw."""

    chain: Callable[[], jaxdyn.Chain]
    q: tuple[float, ...]
    view: np.ndarray
    labels: dict[int, str]
    extra: Callable[[Axes, "Picture", np.ndarray], None] | None = None


BOOK = jaxdyn.textbook
TWO, THREE = {0: "q1", 1: "q2"}, {0: "q1", 1: "q2", 2: "q3"}
SIDE = seen_from(-1.0, 0.3)
PICTURES = {
    "planar_2r": Picture(lambda: BOOK.planar_2r_point_masses(), (0.5, 0.7), XY, TWO),
    "planar_elbow": Picture(lambda: BOOK.planar_elbow(), (0.5, 0.7), XY, TWO),
    "cartesian": Picture(lambda: BOOK.cartesian_two_link(), (0.8, 1.0), XZ, TWO),
    "geared_link": Picture(lambda: BOOK.single_link(com_distance=0.7, link_inertia=0.6), (0.75,), YZ, {0: "q"}, gear),
    "elastic_link": Picture(lambda: BOOK.single_link(com_distance=0.7, link_inertia=0.6), (0.75,), YZ, {}, spring),
    "remote_elbow": Picture(lambda: BOOK.remotely_driven_elbow(), (0.5, 1.2), XY, {0: "p1", 1: "p2"}, belt),
    "five_bar": Picture(
        lambda: jaxdyn.mechanisms.linkages.five_bar()[0], (0.5, 2.0, -1.5, 1.5), XY, {1: "q1, q2"}, pin(2, 1.0, 3)
    ),
    "spherical_rrp": Picture(lambda: BOOK.spherical_rrp(), (0.4, 0.5, 1.2), SIDE, {1: "q1, q2"}, shadow),
    "pendulum_3dof": Picture(lambda: BOOK.pendulum_3dof(), (0.5, 0.5, -0.8), SIDE, {1: "q1, q2", 2: "q3"}),
    "biped": Picture(
        lambda: BOOK.biped(),
        (-0.05, -0.35, 0.5, -0.15, 0.05, 0.05, -0.8, 0.7, 0.1, -0.05),
        seen_from(-1.1, 0.25),
        {},
        torso_and_soles,
    ),
    "four_bar": Picture(
        lambda: jaxdyn.mechanisms.linkages.four_bar()[0], (2.0, -1.7, 0.3, 1.7), XY, {2: "t1, t2"}, pin(3, 0.5, 1)
    ),
}


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        picture = PICTURES[name]
        chain = picture.chain()
        figure = Figure(figsize=(3.6, 2.8), layout="constrained")
        axes = figure.subplots()
        points = draw(axes, chain, np.array(picture.q), picture.view, picture.labels)
        if picture.extra is not None:
            picture.extra(axes, picture, points)
        if picture.view is SIDE:
            triad(axes, picture.view)
        gravity_arrow(axes, chain, picture.view)
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(x=0.22, y=0.12)
        axes.axis("off")
        figure.savefig(Path(__file__).with_name(f"{name}.png"), dpi=100)
        print(name)


if __name__ == "__main__":
    main()
