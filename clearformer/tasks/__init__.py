"""What a training is for: the data it reads, the scores it is judged by, and the test at its end.

    task = begin(recipe, run)             the objective says which task it is for
    task.prepare(base)                    files -> tokenizers and tokenised splits in the run folder, once
    recipe = task.open()                  read them back; the recipe with the sizes that the data decides
    task.steps(world)                     what the training loop feeds on
    task.validation(device)               (model, step) -> scores, now and then
    task.test(device)                     scores of the best weights, at the end

The loop, checkpoints and run folders are the same for all of them.
"""

from typing import Any, Protocol

import torch
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.errors import ConfigError, suggest
from clearformer.recipe import Recipe, task_of
from clearformer.registry import resolve
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.loop import Validate


class Task(Protocol):
    metrics: tuple[str, ...]
    """What `validation` gives; the first decides which weights are best, unless the recipe names another."""
    unit: str
    """What a loss is a mean over, and what speed is told in: "tokens" that are predicted, or "examples" judged."""
    facts: dict[str, Any]
    """What travels with the weights, for whoever loads them. Known once the task is open, as `recipe` is."""
    recipe: Recipe

    def __init__(self, recipe: Recipe, run: RunFolder) -> None: ...
    def prepare(self, base: Any) -> None: ...
    def open(self) -> Recipe: ...
    def describe(self, world: World) -> str: ...
    def steps(self, world: World) -> Steps: ...
    def validation(self, device: torch.device) -> Validate: ...
    def test(self, device: torch.device) -> dict[str, Any]: ...


def begin(recipe: Recipe, run: RunFolder) -> Task:
    """The task of a recipe, at work in a run folder."""
    task: Task = resolve("task", task_of("objective", recipe.objective.kind))(recipe, run)
    metric = recipe.train.metric
    if metric is not None and metric not in task.metrics:
        raise ConfigError(f"[train] metric = `{metric}` is not validated", suggest(metric, task.metrics))
    return task


def tell_loss(objective: Any, model: nn.Module, batches: Any, device: torch.device) -> float:
    """The mean of an objective over batches, by sums and counts."""
    total, count = 0.0, 0
    for batch in batches:
        loss, n = objective(model, batch.to(device))
        total, count = total + float(loss), count + n
    return total / count
