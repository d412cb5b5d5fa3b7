"""Time integration: single steps and rollouts."""

from ._adaptive import AdaptiveRollout as AdaptiveRollout, adaptive_rollout as adaptive_rollout
from ._integrate import step as step
from ._rollout import rollout as rollout
