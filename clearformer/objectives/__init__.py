"""What is predicted: (model, batch) -> loss sum and count, one file an objective.

A shipped objective belongs to a task, which names it (tasks/). OBJECTIVES has the ones that users register, each with a
`task` that says whose data it learns from.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from clearformer.objectives.cross_entropy import Loss
from clearformer.registry import Table

Objective = Callable[[nn.Module, Any], Loss]

OBJECTIVES: Table[type[Any]] = Table("objective", {})
"""Classes with a `Config`, built with their own table of the recipe and with the tables that they name in `tables`."""
