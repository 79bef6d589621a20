"""Objectives: functions (model, batch) -> the summed loss and the number of its terms. One file per objective.

A shipped objective belongs to a task, which refers to it (tasks/). OBJECTIVES holds the objectives that users register;
each has an attribute `task`, the name of the task whose data it learns from.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from clearformer.objectives.cross_entropy import Loss
from clearformer.registry import Table

Objective = Callable[[nn.Module, Any], Loss]

OBJECTIVES: Table[type[Any]] = Table("objective", {})
"""Classes with a `Config`, constructed from [objective] and from the other tables of the recipe that `tables` lists."""
