"""Conversion of results to Pinocchio's layout, so that those of all libraries can be compared before they are timed.

In this layout, twists are (v, w), quaternions are (x, y, z, w), and joints are in Pinocchio's order. A continuous joint has one
coordinate; the suite's URDFs contain none. The conversion works on batches in NumPy and is never timed.
"""

import numpy as np

from .subjects import Subject

CHECKED = 64  # number of states of a batch that are compared
TOLERANCES = {"float64": 1e-9, "float32": 2e-3}
SOLVED = (
    "forward_dynamics",
    "mass_matrix_inverse",
    "forward_dynamics_derivatives",
    "step",
    "rollout",
    "rollout_gradient",
)
OF_SOLVED = {"float64": 1e-6, "float32": 5e-2}  # larger by the condition number of the mass matrix


class Layout:
    """Conversion from jaxdyn's layout to Pinocchio's, for one robot."""

    def __init__(self, robot: Subject, names: list[str] | None = None):
        topology = robot.chain.topology
        shift = 6 if robot.floating else 0
        names = list(topology.joint_names[shift:]) if names is None else names[1:] if robot.floating else names
        order = [topology.joint_names.index(name) for name in names]
        self.floating = robot.floating
        self.columns = np.array([*([3, 4, 5, 0, 1, 2] if shift else []), *order], int)
        self.positions = np.array([*([0, 1, 2, 4, 5, 6, 3] if shift else []), *(i + (shift > 0) for i in order)], int)
        self.links = np.array([*([5] if shift else []), *order], int)  # links with inertia

    def q(self, q):
        return np.asarray(q, float)[..., self.positions]

    def vector(self, x):
        return np.asarray(x, float)[..., self.columns]

    def matrix(self, x):
        return np.asarray(x, float)[..., self.columns, :][..., self.columns]

    def convert(self, form: str, result, state: dict) -> list[np.ndarray]:
        """jaxdyn's result as arrays in Pinocchio's layout; a Coriolis matrix C becomes C v, because C is not unique."""
        if form == "coriolis":
            return [np.einsum("...ij,...j->...i", np.asarray(result, float), state["v"])[..., self.columns]]
        if form == "jacobian":
            return [np.asarray(result, float)[..., [3, 4, 5, 0, 1, 2], :][..., self.columns]]
        if form == "regressor":
            blocks = np.asarray(result, float)
            blocks = blocks.reshape(*blocks.shape[:-1], -1, 10)[..., self.columns, :, :][..., self.links, :]
            return [blocks.reshape(*blocks.shape[:-2], -1)]
        if form == "matrices":
            return [self.matrix(x) for x in result[:3]]  # without derivatives with respect to parameters
        if form in ("state", "states"):
            return [self.q(result[0]), self.vector(result[1])]
        one = {
            "vector": self.vector,
            "matrix": self.matrix,
            "rows": self.vector,
            "pose": lambda x: np.asarray(x, float),
        }
        return [one[form](result)]


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference, relative to the largest entry of the reference, of several arrays; infinite if not finite."""
    worst = 0.0
    for x, y in zip(ours, theirs, strict=True):
        count = min(len(x), len(y))
        if not np.isfinite(x).all():
            return float("inf")
        worst = max(worst, float(np.abs(x[:count] - y[:count]).max() / max(np.abs(y[:count]).max(), 1e-300)))
    return worst


def tolerance(quantity: str, precision: str) -> float:
    return (OF_SOLVED if quantity in SOLVED else TOLERANCES)[precision]
