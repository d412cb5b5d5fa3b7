"""Time integration: single steps and rollouts."""

from .._exports import publish as _publish
from .integrate import step as step
from .rollouts import (
    adaptive_rollout as adaptive_rollout,
    rollout as rollout,
)

_publish(__name__)
