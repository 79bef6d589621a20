"""Objectives: (model, batch) -> sum of the loss, and the number of terms in it. One file per objective.

A shipped objective belongs to a task and is set there (tasks/). OBJECTIVES holds the objectives that users register;
the attribute `task` of each is the name of the task whose data it learns from.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from clearformer.objectives.cross_entropy import Loss
from clearformer.registry import Table

Objective = Callable[[nn.Module, Any], Loss]

OBJECTIVES: Table[type[Any]] = Table("objective", {})
"""Classes with a `Config`, constructed from [objective] and from the other tables of the recipe that `tables` lists."""
