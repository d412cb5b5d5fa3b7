"""Batched functions, distributed over any number of devices or compiled to a single GPU kernel."""

from .._exports import publish as _publish
from .kernels import kernel_vmap as kernel_vmap
from .sharded import (
    local_rows as local_rows,
    shard_batch as shard_batch,
    sharded_sum as sharded_sum,
    sharded_vmap as sharded_vmap,
)

_publish(__name__)
