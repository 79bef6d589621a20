"""A trained model by folder or bundled name, in one call."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from clearformer.checkpoint import RunFolder, load_tensors, load_weights
from clearformer.errors import CheckpointError, suggest
from clearformer.generation.translate import Translator
from clearformer.layers.linear import pack
from clearformer.prepare import load_tokenizers
from clearformer.recipe import Recipe
from clearformer.registry import resolve
from clearformer.training.precision import pick_device

DEFAULT = "en-fr-small"  # what `clearformer translate` uses without --model


def bundled() -> dict[str, Path]:
    """The models that ship inside the package, by name."""
    folder = Path(str(files("clearformer") / "bundled" / "models"))
    return {path.name: path for path in sorted(folder.iterdir())} if folder.exists() else {}


def find(model: str | Path) -> Path:
    """The run folder that a name means: a folder, or else a bundled model."""
    path = Path(model)
    if not path.exists():
        shipped = bundled()
        if str(model) not in shipped:
            hint = "name the --out folder of a training"
            raise CheckpointError(
                f"there is no model `{model}`", f"{hint}; or {suggest(str(model), shipped)}" if shipped else hint
            )
        path = shipped[str(model)]
    RunFolder(path).require()
    return path


def load(model: str | Path = DEFAULT, device: str = "cpu") -> Translator:
    """The best weights of a run, ready to translate."""
    run = RunFolder(find(model))
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} appears at the first validation",
            f"wait for it, or go on with the training: clearformer train --resume --out {run.path}",
        )
    source, target = load_tokenizers(run)
    for side, tokenizer, size in (
        ("source", source, recipe.model.source_vocab),
        ("target", target, recipe.model.target_vocab),
    ):
        if tokenizer.vocab_size != size:
            raise CheckpointError(
                f"{run.path}: the {side} tokenizer has {tokenizer.vocab_size:,} entries, the model {size:,}",
                "tokenizer.json is not the one this model was trained with",
            )
    network = build_model(recipe.model)
    weights, facts = load_tensors(run.model)
    if facts.get("tokenizers", own := [source.fingerprint(), target.fingerprint()]) != own:
        raise CheckpointError(
            f"{run.path}: the tokenizer is not the one this model was trained with", "copy the whole run folder again"
        )
    load_weights(network, weights, str(run.model))
    return Translator(pack(network.to(pick_device(device))), source, target, recipe.decode, run.path.name)


def build_model(config: Any) -> nn.Module:
    model: nn.Module = resolve("model", config.kind)(config)
    return model
