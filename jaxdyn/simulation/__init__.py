"""Time integration: steps and rollouts."""

from .adaptive import AdaptiveRollout as AdaptiveRollout, adaptive_rollout as adaptive_rollout
from .integrate import step as step
from .rollout import rollout as rollout
