"""Go on from a trained model, with data of one's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.errors import ConfigError, suggest
from clearformer.loading.folder import find, read_recipe
from clearformer.loading.open import open_model, refuse_prefix
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS, collect, examples
from clearformer.tasks.task import Plan, Request
from clearformer.tuning.methods import SAID, Method
from clearformer.verbs.train import Name, default_folder, refuse_with_resume, run, saved_recipe


def finetune(
    model: Name,
    pairs: Any = None,
    *,
    method: Method = "full",
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    **data: Any,
) -> dict[str, Any]:
    """Go on from a trained model, with its own vocabulary and a gentler rate; reports as `train` does.

    `data` is named as for `train`: a translator learns from other pairs=, a language model from another text=, a
    classifier from labels= or images=, a speech recogniser from recordings=. The method says what learns: "full",
    "lora", "prefix" or "head". All but the first save only what they learnt, and need `model` ever after.
    """
    start = find(model)
    if method not in SAID:
        raise ConfigError(f"there is no method `{method}`", suggest(method, SAID))
    if resume:
        refuse_with_resume({"pairs": pairs, **data})
        return run(Plan(saved_recipe(out, settings)), Path(str(out)), True, device)
    given = collect({"pairs": pairs, **data})
    if given is None:
        raise ConfigError("there is nothing to go on with", f"give {examples()}")
    task = TASKS.resolve(given.flag.task)
    request = Request(task.sources(given), None, settings, device, Recipe.parse, method)
    chosen = task.plan_finetune(request, start, read_recipe(start))
    base = open_model(start)
    refuse_prefix(base)
    folder = Path(out) if out else default_folder(chosen.recipe, start.name)
    return run(chosen, folder, False, device, base)
