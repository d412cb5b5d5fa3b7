"""Section with the links drawn as ellipsoids on the robot."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...identification._preprocessing.samples import Samples
from ...identification._regression.total_mass import TotalMass
from ...model._chain import Chain
from .._markup import DASH, Cell, Column, columns_table, element, escaped, faint, names_column, number, rounded
from .._pictures.ellipsoids import Ellipsoid, equivalent_ellipsoid, outstretched, projected
from .._pictures.stick_figure import line_ends, skeleton

_VIEWS = (  # rows: the picture's right and up directions
    ("from the front", np.array([[0.0, 1, 0], [0, 0, 1]])),
    ("from the side", np.array([[1.0, 0, 0], [0, 0, 1]])),
)
_UNIT = 1000.0  # picture units per metre


def bodies_section(chain: Chain, prior: Chain | None, samples: Samples, mass: TotalMass | None = None) -> str:
    """Section with two views of the robot and its links' ellipsoids in one posture of the run, and a table of masses and sizes.

    Args:
        chain: the identified robot.
        prior: the given model, if it has inertias; its ellipsoids are drawn as outlines.
        samples: the run.
        mass: total mass of a robot with a free base.
    """
    poses = outstretched(chain, samples)
    lines = line_ends(poses, skeleton(chain))
    found, given = (
        [equivalent_ellipsoid(pi) for pi in np.asarray(c.inertia)] if c else [None] * chain.n for c in (chain, prior)
    )
    solid, outline = (
        [(i, e.moved(poses[i])) for i, e in enumerate(bodies) if e is not None and e.consistent]
        for bodies in (found, given)
    )
    lacking = [link for link, e in zip(chain.link_names, found, strict=True) if e is not None and not e.consistent]
    figures = "".join(
        element(
            "figure", element("figcaption", element("b", name.capitalize())) + _svg(view, name, solid, outline, lines)
        )
        for name, view in _VIEWS
    )
    legend = (
        element("span", "", "key solid")
        + "identified"
        + (element("span", "", "key outline") + "given model" if prior else "")
    )
    text = (
        element("h2", "Bodies", id="bodies")
        + faint(
            "Each link is drawn as the solid ellipsoid of uniform density with the same mass, centre of mass and inertia. "
            "The robot is shown in a posture of the run, with links numbered from the base. "
            f"Legend: {legend}. An ellipsoid far larger than its link, or far away from it, indicates parameters that the "
            "motion does not determine. Machines typically have average densities of 500 to 5000 kg/m³, including cavities. "
            "Drag a picture to rotate it."
        )
        + element("div", figures, "grid")
    )
    if lacking:
        text += element(
            "p",
            f"Not drawn, because {'its inertia is' if len(lacking) == 1 else 'their inertias are'} physically inconsistent: "
            f"{escaped(', '.join(lacking))}.",
        )
    if mass is not None:
        text += element("p", f"Total mass: {escaped(str(mass))}.")
    centres = [DASH if e is None else ", ".join(number(float(round(1000 * x)), 6) for x in e.centre) for e in found]
    columns = [
        Column("", [*(str(i + 1) for i in range(chain.n)), ""]),
        names_column("link", (*chain.link_names, "all moving links")),
        _masses("mass [kg]", found),
        Column("density [kg/m³]", [*map(_density, found), ""]),
        Column("centre of mass [mm]", [*centres, ""]),
        Column("semi-axes [mm]", [*map(_axes, found), ""]),
    ]
    if prior:
        columns += [
            _masses("given mass [kg]", given, "edge"),
            Column("given density [kg/m³]", [*map(_density, given), ""]),
        ]
    return text + columns_table(columns)


def _masses(heading: str, bodies: Sequence[Ellipsoid | None], kind: str = "") -> Column:
    """The mass of each link, and the total in the last row."""
    total = sum(e.mass for e in bodies if e is not None)
    cells: list[Cell] = [DASH if e is None else number(e.mass, 3) for e in bodies]
    return Column(heading, [*cells, (number(total, 4), f"yes {kind}".strip())], kind)


def _density(e: Ellipsoid | None) -> str:
    if e is None or not e.consistent:
        return DASH if e is None else "inconsistent"
    return rounded(e.density) if e.density < 1e6 else number(e.density, 2)


def _axes(e: Ellipsoid | None) -> str:
    if e is None:
        return DASH
    return ", ".join(f"{1000 * a:.0f}" for a in e.semi_axes[::-1]) if e.consistent else "inconsistent"


def _svg(
    view: np.ndarray,
    name: str,
    solid: Sequence[tuple[int, Ellipsoid]],
    outline: Sequence[tuple[int, Ellipsoid]],
    lines: Float[np.ndarray, "k 2 3"],
) -> str:
    """SVG in millimetres, with z upwards; data attributes contain what page.js needs to rotate the picture."""
    centre = np.concatenate(lines).mean(axis=0)
    # equal space in all directions, because the picture can be rotated; ellipsoids beyond 5 times the arm's size are clipped
    arm = max(float(np.linalg.norm(np.concatenate(lines) - centre, axis=1).max()), 1e-3)
    sizes = [float(np.linalg.norm(e.centre - centre) + e.semi_axes[-1]) for _, e in (*solid, *outline)]
    reach = max(arm, min(max(sizes, default=0.0), 5 * arm))
    reach *= 1.05 * _UNIT
    shapes = "".join(_ellipse(e, view, centre, "body") for _, e in solid)
    shapes += "".join(_ellipse(e, view, centre, "prior") for _, e in outline)
    for line in lines:
        (x1, y1), (x2, y2) = (_flat(view, p - centre) for p in line)
        shapes += element("line", "", "bone", x1=x1, y1=y1, x2=x2, y2=y2, data_p=_list(line - centre))
    for line in lines:
        x, y = _flat(view, line[0] - centre)
        shapes += element("circle", "", "joint", cx=x, cy=y, r=f"{reach / 70:.1f}", data_p=_list(line[0] - centre))
    for i, e in solid:
        x, y = _flat(view, e.centre - centre)
        size = f"{reach / 13:.0f}"
        shapes += element("text", str(i + 1), "", x=x, y=y, font_size=size, data_p=_list(e.centre - centre))
    box = f"{-reach:.0f} {-reach:.0f} {2 * reach:.0f} {2 * reach:.0f}"
    label = f"Ellipsoids of the links {name}"
    return (
        f'<svg class="bodies" viewBox="{box}" role="img" aria-label="{label}" data-view="{_list(view)}">{shapes}</svg>'
    )


def _ellipse(e: Ellipsoid, view: np.ndarray, centre: np.ndarray, kind: str) -> str:
    shifted = Ellipsoid(e.mass, e.centre - centre, e.shape)
    at, (a, b), angle = projected(shifted, view)
    turn = f"translate({_UNIT * at[0]:.1f} {-_UNIT * at[1]:.1f}) rotate({-np.degrees(angle):.2f})"
    return element(
        "ellipse",
        "",
        kind,
        rx=f"{_UNIT * a:.1f}",
        ry=f"{_UNIT * b:.1f}",
        transform=turn,
        data_p=_list(shifted.centre),
        data_a=_list(e.shape, 6),
    )


def _flat(view: np.ndarray, p: np.ndarray) -> tuple[str, str]:
    u = _UNIT * (view @ p)
    return f"{float(u[0]):.1f}", f"{float(-u[1]):.1f}"


def _list(x: np.ndarray, digits: int = 4) -> str:
    return " ".join(f"{v:.{digits}g}" for v in np.asarray(x).reshape(-1))
