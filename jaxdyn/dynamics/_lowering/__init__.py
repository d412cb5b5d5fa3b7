"""Compilation of functions of one robot and one state, for single states and batches."""

from .batch import (
    by_batch as by_batch,
    filled as filled,
    in_groups as in_groups,
    is_for_launches as is_for_launches,
    lane_shape as lane_shape,
    lanes_of_kernel as lanes_of_kernel,
    loop_by_batch as loop_by_batch,
    over_lanes as over_lanes,
    scan_links as scan_links,
    spread_over_lanes as spread_over_lanes,
    with_lanes as with_lanes,
)
from .kernel import in_kernel as in_kernel
from .platform import by_platform as by_platform
from .small_matrices import (
    SMALL as SMALL,
    by_row as by_row,
    mask_like as mask_like,
    matrix_times as matrix_times,
    product as product,
    row_times as row_times,
    size_of_products as size_of_products,
)
from .tangents import batch_first as batch_first, is_zero as is_zero, sparse_jvp as sparse_jvp
