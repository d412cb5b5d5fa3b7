"""What a robot and its surroundings occupy: convex shapes on links, their signed distances, and clearances."""

from .._exports import publish as _publish
from .approaches import Approach as Approach, closest_approaches as closest_approaches
from .distance import ClosestPoints as ClosestPoints, closest_points as closest_points, distances as distances
from .pairs import Disabled as Disabled, choose_pairs as choose_pairs, pair_table as pair_table, read_srdf as read_srdf
from .reading import (
    capsule as capsule,
    floor as floor,
    height_field as height_field,
    make_shapes as make_shapes,
    read as read,
    sphere as sphere,
    with_environment as with_environment,
)
from .shapes import Fixed as Fixed, LeftOut as LeftOut, Shapes as Shapes, with_pairs as with_pairs

_publish(__name__)
