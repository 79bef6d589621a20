"""merge: add a LoRA adapter, which is a LoRA run or a peft adapter folder, to the weights of its base model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from clearformer.checkpoint import CALIBRATION, RunFolder, weights_of, write_text
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.convert import converter_for, converter_of
from clearformer.interop.huggingface.peft import CONFIG, import_adapter, read_config
from clearformer.loading.folder import download_hint, find, is_foreign
from clearformer.loading.open import open_model
from clearformer.loading.write import describe_run, new_folder, require_empty, write_run
from clearformer.tasks.task import Pretrained
from clearformer.tuning import adapters


def merge(adapter: str | Path, out: str | Path, base: str | Path | None = None) -> dict[str, Any]:
    """Write a run folder with the merged weights, and return a dictionary with run, kind, parameters and base.

    The path of the base model is recorded in the adapter; `base` overrides it for a peft adapter.
    """
    adapter, out = Path(adapter), Path(out)
    require_empty(out)
    if RunFolder(adapter).exists:
        merged, base = open_tuned_run(adapter)
    else:
        merged, base = open_peft_adapter(adapter, base)
    with new_folder(out) as draft:
        write_run(draft, merged.recipe, weights_of(merged.network), merged.tokenizers, merged.template, merged.classes)
        if (adapter / CALIBRATION).exists():  # the merged model has the same logits
            write_text(draft / CALIBRATION, (adapter / CALIBRATION).read_text(encoding="utf-8"))
    return describe_run(out, merged.recipe, merged.network) | {"base": str(base)}


def open_tuned_run(run: Path) -> tuple[Pretrained, str]:
    """Open a LoRA run, which merges its adapter. Returns the model, without [tuning], and its base model's path."""
    opened = open_model(run)
    tuning = opened.recipe.tuning
    if tuning is None or tuning.method != "lora":
        how = "trained in full" if tuning is None else f"fine-tuned with --method {tuning.method}"
        raise CheckpointError(
            f"{run} was {how}: it has no LoRA adapter to merge", "give a run of clearformer finetune --method lora"
        )
    return replace(opened, recipe=opened.recipe.with_tables(tuning=None)), str(tuning.base)


def open_peft_adapter(adapter: Path, base: str | Path | None) -> tuple[Pretrained, Path]:
    """Merge a peft adapter into its base model. Returns the merged model and the folder of the base model."""
    if not adapter.exists():
        hint = "give a run of clearformer finetune --method lora, or a peft adapter folder"
        raise CheckpointError(f"there is no adapter {adapter}", download_hint(adapter) or hint)
    if not (adapter / CONFIG).exists():
        raise CheckpointError(
            f"{adapter} is not an adapter: it has no {CONFIG}",
            "give a run of clearformer finetune --method lora, or a peft adapter folder",
        )
    folder = base_of(adapter) if base is None else find(base)
    opened = open_model(folder)
    converter = converter_of(folder) if is_foreign(folder) else converter_for(opened.config)
    import_adapter(adapter, opened.network, converter.tensor_rows(opened.config))
    adapters.merge(opened.network)
    return opened, folder


def base_of(adapter: Path) -> Path:
    """Find the folder of an adapter's base model. The recorded path may be relative to the adapter."""
    name = read_config(adapter).get("base_model_name_or_path")
    for path in (Path(str(name)), adapter / str(name)) if name else ():
        if path.is_dir():
            return find(path)
    raise CheckpointError(
        f"{adapter}: its base model `{name}` does not exist here", "give its folder with --base FOLDER"
    )
