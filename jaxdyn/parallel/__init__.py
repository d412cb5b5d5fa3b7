"""Batches: the same code on one device or on many, and batched functions compiled to a single GPU kernel."""

from ._kernel_vmap import kernel_vmap as kernel_vmap
from ._sharded import (
    local_rows as local_rows,
    shard_batch as shard_batch,
    sharded_sum as sharded_sum,
    sharded_vmap as sharded_vmap,
)
