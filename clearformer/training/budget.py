"""How far a run goes: to the first of these limits.

train.steps          optimiser steps
train.max_tokens     target tokens
train.max_seconds    seconds of training, validation and saving
train.patience       validations in a row without a better metric
"""

from math import inf

from clearformer.training.config import TrainConfig
from clearformer.training.progress import Progress


def is_spent(at: Progress, config: TrainConfig) -> bool:
    """Whether the budget of steps, tokens or seconds is used up."""
    return (
        at.step >= config.steps or at.tokens >= (config.max_tokens or inf) or at.seconds >= (config.max_seconds or inf)
    )


def is_stale(at: Progress, config: TrainConfig) -> bool:
    """Whether early stopping ends the run."""
    return bool(config.patience) and at.stale >= config.patience


def is_due(at: Progress, config: TrainConfig, *periods: int) -> bool:
    """Whether one of these periods, or the budget, ends with this step."""
    return is_spent(at, config) or any(at.step % period == 0 for period in periods)


def length(at: Progress, config: TrainConfig) -> float:
    """The number of steps in the run, extrapolated from its speed if tokens or seconds are limited."""
    by_tokens = at.step * config.max_tokens / at.tokens if config.max_tokens and at.tokens else inf
    by_seconds = at.step * config.max_seconds / at.seconds if config.max_seconds and at.seconds else inf
    return min(config.steps, by_tokens, by_seconds)
