"""Conversion of states to MuJoCo's layout, and of results from it, for batches in NumPy; frax uses the same layout."""

import numpy as np

from ..comparison import Layout
from ..subjects import Subject


class MujocoLayout:
    """Conversion between jaxdyn's layout and MuJoCo's, in which a free joint's linear velocity is first and in world axes.

    The suite's robots have at most one free joint, that of the root.
    """

    def __init__(self, robot: Subject, names: list[str], state: dict):
        """Create the conversion from the names of the library's joints, in its order and without the free joint."""
        self.floating = robot.floating
        self.state = state
        order = [robot.chain.topology.joint_names.index(name) for name in names]
        start = [3, 4, 5, 0, 1, 2] if robot.floating else []
        self.columns = np.array([*start, *order], int)
        self.positions = np.array([*(range(7) if robot.floating else []), *(i + robot.floating for i in order)], int)
        self.reference = Layout(robot)
        if robot.floating:
            w, x, y, z = np.moveaxis(state["q"][:, 3:7], -1, 0)
            rows = [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
            self.rotation = np.moveaxis(np.array(rows), -1, 0)

    def arguments(self) -> dict[str, np.ndarray]:
        """q, v, a and tau in MuJoCo's layout."""
        s = self.state
        given = {"q": s["q"][:, self.positions], "v": self._world(s["v"]), "tau": self._world(s["tau"])}
        return given | {"a": self._world(self._turning(s["a"], 1))}

    def vector(self, x) -> list[np.ndarray]:
        """Convert torques to Pinocchio's layout."""
        return [self.reference.vector(self._body(np.asarray(x, float)))]

    def acceleration(self, x) -> list[np.ndarray]:
        """Convert accelerations dv/dt to Pinocchio's layout."""
        return [self.reference.vector(self._turning(self._body(np.asarray(x, float)), -1))]

    def matrix(self, x) -> list[np.ndarray]:
        """Convert mass matrices to Pinocchio's layout."""
        x = np.asarray(x, float)
        once = np.stack([self._body(x[:, :, j]) for j in range(x.shape[2])], axis=2)
        twice = np.stack([self._body(once[:, i]) for i in range(x.shape[1])], axis=1)
        return [self.reference.matrix(twice)]

    def _turning(self, a, sign: int):
        if not self.floating:
            return a
        a, v = a.copy(), self.state["v"][: len(a)]
        a[:, 3:6] += sign * np.cross(v[:, :3], v[:, 3:6])
        return a

    def _world(self, x):
        x = x.copy()
        if self.floating:
            x[:, 3:6] = np.einsum("kij,kj->ki", self.rotation[: len(x)], x[:, 3:6])
        return x[:, self.columns]

    def _body(self, x):
        ours = np.empty_like(x)
        ours[:, self.columns] = x
        if self.floating:
            ours[:, 3:6] = np.einsum("kji,kj->ki", self.rotation[: len(x)], ours[:, 3:6])
        return ours
