"""Time integration: single steps and rollouts."""

from .integrate import step as step
from .rollout import (
    AdaptiveRollout as AdaptiveRollout,
    adaptive_rollout as adaptive_rollout,
    rollout as rollout,
)
