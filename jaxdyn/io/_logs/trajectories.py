"""Joint trajectory messages as joint states: one message per point."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import LogError
from .joint_states import JointStates


class Point(NamedTuple):
    """A point of a trajectory with the fields of a joint state."""

    name: Sequence[str]
    position: Sequence[float]
    velocity: Sequence[float]
    effort: Sequence[float]


class Trajectory(NamedTuple):
    """A message of type `trajectory_msgs/JointTrajectory`: each point with its stamp and time of reception [ns].

    The time of a point is the header's stamp + `time_from_start`, or the time of reception + `time_from_start` if the
    header has no stamp, which means an immediate start.
    """

    points: tuple[tuple[int, int, Point], ...] = ()

    @classmethod
    def of(cls, stamp: int, received: int, message: Any) -> "Trajectory":
        """The trajectory in a message.

        Raises:
            LogError: a point has no positions.
        """
        points = []
        for point in message.points:
            after = point.time_from_start.sec * 10**9 + point.time_from_start.nanosec
            if not len(point.positions):
                raise LogError("a trajectory has a point without positions")
            state = Point(message.joint_names, point.positions, point.velocities, point.effort)
            points.append((stamp + after if stamp else 0, received + after, state))
        return cls(tuple(points))

    @property
    def start(self) -> tuple[int, int] | None:
        """Stamp and time of reception of the first point [ns]."""
        return self.points[0][:2] if self.points else None

    def add_to(self, states: JointStates, until: tuple[int, int] | None = None) -> None:
        """Add the points before `until`, the start of the next trajectory, which replaces the remaining points."""
        for stamp, received, point in self.points:
            if until is None or (stamp, received) < until:
                states.add(stamp, received, point)
