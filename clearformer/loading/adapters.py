"""Load a model with several LoRA adapters that were trained on it, to be used in the same batch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from clearformer.checkpoint import RunFolder, fingerprint, load_weights
from clearformer.errors import CheckpointError
from clearformer.handles.handle import Handle
from clearformer.interop.huggingface.folder import read_template
from clearformer.loading.folder import check_fit, find, read_run
from clearformer.loading.open import handle_of, located, open_model
from clearformer.tasks.task import Pretrained
from clearformer.tuning.adapters import add_lora, of_lora
from clearformer.tuning.freeze import freeze
from clearformer.tuning.row_adapters import mix_adapters


def open_with_adapters(
    model: str | Path, folders: Mapping[str, str | Path], device: str = "cpu"
) -> tuple[Handle, dict[str, Handle]]:
    """Return the handle of a model, and a handle for the run folder of each adapter, all of the same network.

    What the network computes for a row depends on `rows_choose` (layers/row_choice.py): adapters are numbered from 1
    in the order of `folders`. Tokenizers and [decode] are those of each adapter's run.
    """
    base = open_model(model, device)
    base_fingerprint = fingerprint(base.network)
    added = {name: add_adapter(base, name, find(folder), base_fingerprint) for name, folder in folders.items()}
    mix_adapters(base.network)
    return handle_of(base), {name: handle_of(one) for name, one in added.items()}


def add_adapter(base: Pretrained, name: str, path: Path, base_fingerprint: str) -> Pretrained:
    """Add the adapter of a run folder to a network."""
    recipe, weights, tokenizers = read_run(RunFolder(path))
    if recipe.tuning is None or recipe.tuning.method != "lora" or recipe.tuning.new:
        raise CheckpointError(
            f"{path} is not a LoRA adapter of {base.name}",
            "give the folder of a run of `finetune --method lora`, or serve it as a model of its own: --model",
        )
    tuning = located(recipe.tuning, path)
    if tuning.fingerprint is not None and tuning.fingerprint != base_fingerprint:
        raise CheckpointError(
            f"{path} is an adapter of another model: {tuning.base}", f"serve it with that model: --model {tuning.base}"
        )
    check_fit(tokenizers, recipe, path)
    device = next(base.network.parameters()).device
    add_lora(base.network, tuning.lora, name)
    trained = freeze(base.network, of_lora(name))
    renamed = {key.replace(".lora_default.", f".lora_{name}."): tensor for key, tensor in weights.items()}
    load_weights(base.network, renamed, str(RunFolder(path).model), trained)
    base.network.to(device)
    return replace(base, name=name, path=path, recipe=recipe, tokenizers=tokenizers, template=read_template(path))
