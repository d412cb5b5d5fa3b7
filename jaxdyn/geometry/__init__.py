"""What a robot and its surroundings occupy: convex shapes on links, their signed distances, and clearances."""

from .._exports import publish as _publish
from .distance import ClosestPoints as ClosestPoints, closest_points as closest_points, distances as distances
from .shapes import Fixed as Fixed, LeftOut as LeftOut, Shapes as Shapes, with_pairs as with_pairs

_publish(__name__)
