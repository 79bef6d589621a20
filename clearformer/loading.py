"""A trained model by folder or bundled name, in one call."""

from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from clearformer.checkpoint import RunFolder, load_tensors, load_weights
from clearformer.errors import CheckpointError, suggest
from clearformer.generation.language import LanguageModel
from clearformer.generation.translate import Translator
from clearformer.layers.linear import pack
from clearformer.prepare import load_tokenizers
from clearformer.recipe import Recipe, task_of
from clearformer.registry import resolve
from clearformer.text import Tokenizer
from clearformer.training.precision import pick_device

Handle = TypeVar("Handle", Translator, LanguageModel)
USES: dict[type, tuple[str, str]] = {
    Translator: ("a translator", "translate, evaluate, neighbours"),
    LanguageModel: ("a language model", "generate, score, fill, repair, evaluate"),
}
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


def load(model: str | Path = DEFAULT, device: str = "cpu") -> Any:
    """The best weights of a run, ready for use: a Translator, or a LanguageModel."""
    run = RunFolder(find(model))
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} appears at the first validation",
            f"wait for it, or go on with the training: clearformer train --resume --out {run.path}",
        )
    is_pair = task_of("model", recipe.model.kind) == "translation"
    tokenizers = list(load_tokenizers(run))[: 2 if is_pair else 1]
    for key, tokenizer in zip(("source_vocab", "target_vocab") if is_pair else ("vocab",), tokenizers):
        if tokenizer.vocab_size != (size := getattr(recipe.model, key)):
            side = f"{key.removesuffix('_vocab')} " if is_pair else ""
            raise CheckpointError(
                f"{run.path}: the {side}tokenizer has {tokenizer.vocab_size:,} entries, the model {size:,}",
                "tokenizer.json is not the one this model was trained with",
            )
    network = build_model(recipe.model)
    weights, facts = load_tensors(run.model)
    if facts.get("tokenizers", own := [tokenizer.fingerprint() for tokenizer in tokenizers]) != own:
        raise CheckpointError(
            f"{run.path}: the tokenizer is not the one this model was trained with", "copy the whole run folder again"
        )
    load_weights(network, weights, str(run.model))
    ready = pack(network.to(pick_device(device)))
    if is_pair:
        return Translator(ready, tokenizers[0], tokenizers[1], recipe.decode, run.path.name)
    return LanguageModel(ready, tokenizers[0], recipe.decode, run.path.name, **habits(recipe, tokenizers[0]))


def habits(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the texts of a training were: documents, begun by BOS and ended by EOS, or pages of a book."""
    is_collection = recipe.data.train.is_collection
    return {"opening": [tokenizer.bos_id] if is_collection else [], "closed": is_collection}


def load_as(kind: type[Handle], model: str | Path, device: str = "cpu") -> Handle:
    """As `load`, but refuse a model that is of another kind than what is to be done with it."""
    found = load(model, device)
    if not isinstance(found, kind):
        is_one, verbs = USES[type(found)]
        raise CheckpointError(f"{model} is {is_one}, not {USES[kind][0]}", f"with it you can: {verbs}")
    return found


def build_model(config: Any) -> nn.Module:
    model: nn.Module = resolve("model", config.kind)(config)
    return model
