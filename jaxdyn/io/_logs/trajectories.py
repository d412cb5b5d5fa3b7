"""Convert joint trajectory messages to joint states: one message per point."""

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
    """The points of a `trajectory_msgs/JointTrajectory` message, each with its stamp and receive time [ns].

    The time of a point is its `time_from_start` added to the stamp of the header. A header without a stamp means an
    immediate start; `time_from_start` is then added to the receive time.
    """

    points: tuple[tuple[int, int, Point], ...] = ()

    @classmethod
    def of(cls, stamp: int, received: int, message: Any) -> "Trajectory":
        """Create a trajectory from a message.

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
        """Stamp and receive time of the first point [ns]."""
        return self.points[0][:2] if self.points else None

    def add_to(self, states: JointStates, until: tuple[int, int] | None = None) -> None:
        """Add the points to joint states, except those replaced by the next trajectory, which starts at `until`."""
        for stamp, received, point in self.points:
            if until is None or (stamp, received) < until:
                states.add(stamp, received, point)
