"""What bounds every choice: the task of the data, the memory that holds a part of a step, the steps asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.errors import ConfigError
from clearformer.recipe import override, presets, task_of
from clearformer.registry import names

PART = {True: 8192, False: 4096}  # tokens a side that are computed at once, on CUDA and elsewhere: memory bounds them


def refuse_others(model: Mapping[str, Any], task: str, hint: str) -> None:
    """A model that is for another task than the data; a name that nothing has is for the recipe to refuse."""
    sizes = presets().get(str(model.get("preset")), {})
    kind = str(model.get("kind", sizes.get("kind")))
    if kind in names("model") and (found := task_of("model", kind)) != task:
        raise ConfigError(f"{model.get('preset', kind)} is a model for {found}, not for {task}", hint)


def steps_asked(settings: Sequence[str], chosen: int) -> int:
    """The steps that settings ask for, else those chosen: what a warm-up is a share of."""
    return int(override({"train": {"steps": chosen}}, settings)["train"]["steps"])


def in_words(passes: float) -> str:
    return f"about {passes:,.0f} passes" if passes >= 2 else f"about {passes:.2f} passes"
