"""finetune: continue training a model on other data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from clearformer.data.objects.staging import staged
from clearformer.errors import ConfigError, suggest
from clearformer.interop.huggingface.convert import require_exportable
from clearformer.loading.folder import find, read_recipe
from clearformer.loading.open import open_model, refuse_prefix
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS, collect, examples
from clearformer.tasks.given_objects import sources_of
from clearformer.tasks.task import Plan, Request
from clearformer.training.loggers import Callback
from clearformer.tuning.methods import METHOD_NAMES, Method
from clearformer.verbs.choices import Settings, all_settings
from clearformer.verbs.restart import require_out
from clearformer.verbs.train import (
    Name,
    balanced,
    default_folder,
    describe_batch,
    refuse_with_resume,
    saved_recipe,
    start,
)


@staged()
def finetune(
    model: Name,
    pairs: Any = None,
    *,
    method: Method = "full",
    out: Name | None = None,
    settings: Settings = (),
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    precision: str | None = None,
    balance: bool = False,
    exportable: bool = False,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **data: Any,
) -> dict[str, Any]:
    """Fine-tune a trained model with a lower learning rate, and return the report of the run, as `train` does.

    The data keywords are the same as for `train`, and take paths or Python objects: pairs= for a translator, text= for
    a language model, labels= or images= for a classifier, recordings= for a speech recogniser. The vocabulary of the
    model is used unchanged. The method selects the weights to train: "full", "lora", "prefix" or "head". All but "full"
    save only these weights, so the run needs `model` at inference. `settings`, `steps`, `epochs`, `lr`, `batch_size`,
    `seed`, `precision`, `balance`, `exportable` and `callbacks` are the same as for `train`.
    """
    settings = all_settings(
        settings, steps=steps, epochs=epochs, lr=lr, batch_size=batch_size, seed=seed, precision=precision
    )
    where = find(model)
    if method not in METHOD_NAMES:
        raise ConfigError(f"there is no fine-tuning method `{method}`", suggest(method, METHOD_NAMES))
    if resume:
        refuse_with_resume({"pairs": pairs, **data, "balance": balance or None, "exportable": exportable or None})
        chosen = Plan(saved_recipe(out, settings))
        return start(chosen, Path(str(out)), True, device, callbacks=callbacks).finish()
    given = collect({"pairs": pairs, **data})
    if given is None:
        raise ConfigError("no data to fine-tune on", f"give {examples()}")
    task = TASKS.resolve(given.flag.task)
    request = Request(sources_of(task, given), None, settings, device, Recipe.parse, method, exportable)
    chosen = task.plan_finetune(request, where, read_recipe(where))
    describe_batch(chosen.recipe, batch_size)
    chosen = balanced(chosen) if balance else chosen
    if exportable:
        if method == "prefix":
            raise ConfigError("transformers has no model with a prefix", "choose another method, such as --method lora")
        require_exportable(chosen.recipe.model)
    require_out(cast(Recipe, chosen.recipe), out)
    base = open_model(where, is_mapped=True)
    refuse_prefix(base)
    folder = Path(out) if out else default_folder(chosen.recipe, where.name)
    return start(chosen, folder, False, device, base, callbacks).finish()
