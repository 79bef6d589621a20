"""What bounds every choice: a model is for the task that its data is for, and memory must hold a part of a step."""

from collections.abc import Mapping
from typing import Any

from clearformer.errors import ConfigError
from clearformer.recipe import presets, task_of
from clearformer.registry import names

PART = {True: 8192, False: 4096}  # tokens a side that are computed at once, on CUDA and elsewhere: memory bounds them


def refuse_others(model: Mapping[str, Any], task: str, hint: str) -> None:
    """A model that is for another task than the data."""
    sizes = presets().get(str(model.get("preset")), {})
    kind = str(model.get("kind", sizes.get("kind", "transformer")))
    if kind in names("model") and (found := task_of("model", kind)) != task:
        raise ConfigError(f"{model.get('preset', kind)} is a model for {found}, not for {task}", hint)
