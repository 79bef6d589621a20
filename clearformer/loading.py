"""A trained model by folder or bundled name, in one call.

    open_model    a run folder, or one of Hugging Face's  ->  recipe, network, tokenizers: to go on with
    load          the same, ready for use                 ->  the handle that USES names: Translator, Viewer …
    load_encoder  the same, as a maker of vectors         ->  Encoder

A model that was tuned in part is its base, opened likewise, and what was learnt on it.
"""

import json
import os
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from clearformer.checkpoint import RunFolder, fingerprint, load_tensors, load_weights, unique_names, weights_of
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError, suggest
from clearformer.generation.language import LanguageModel
from clearformer.generation.masked import MaskedModel
from clearformer.generation.scorer import SentenceScorer
from clearformer.generation.translate import Translator
from clearformer.interop.huggingface.convert import first_token, import_any
from clearformer.interop.huggingface.folder import Reader, read_template, read_weights
from clearformer.interop.huggingface.pictures import class_names
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import read_image
from clearformer.layers.linear import pack
from clearformer.models import classifier as models
from clearformer.models.pictures import PictureConfig
from clearformer.prepare import CLASSES, load_tokenizers, start_id
from clearformer.reading.classifier import Classifier
from clearformer.reading.coder import Coder
from clearformer.reading.encoder import Encoder
from clearformer.reading.eye import Eye
from clearformer.reading.tagger import Tagger
from clearformer.reading.transcriber import Transcriber
from clearformer.reading.viewer import Viewer
from clearformer.recipe import Recipe, task_of
from clearformer.registry import resolve
from clearformer.text import Tokenizer
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import TuningConfig, settle, tune

Parts = tuple[Recipe, dict[str, Tensor], list[Tokenizer]]
Handle = TypeVar(
    "Handle", Translator, LanguageModel, MaskedModel, SentenceScorer, Classifier, Tagger, Viewer, Coder, Transcriber
)
USES: dict[type, tuple[str, str]] = {
    Translator: ("a translator", "translate, generate, evaluate, neighbours"),
    LanguageModel: ("a language model", "generate, score, fill, repair, evaluate"),
    MaskedModel: ("a masked language model", "score, fill, repair"),
    SentenceScorer: ("a scorer of sentences", "score"),
    Classifier: ("a classifier", "classify, evaluate, embed"),
    Tagger: ("a classifier of words", "classify, evaluate, embed"),
    Viewer: ("a classifier of pictures", "classify, evaluate, embed, plot"),
    Coder: ("an autoencoder of pictures", "evaluate, embed, plot"),
    Transcriber: ("a model of speech", "transcribe, evaluate"),
}
HINT = "name the --out folder of a training, or a folder of Hugging Face's with a config.json"
DEFAULT = "en-fr-small"  # what `clearformer translate` uses without --model


def bundled() -> dict[str, Path]:
    """The models that ship inside the package, by name."""
    folder = Path(str(files("clearformer") / "bundled" / "models"))
    return {path.name: path for path in sorted(folder.iterdir())} if folder.exists() else {}


def find(model: str | Path) -> Path:
    """The folder that a name means: a run folder or one of Hugging Face's, or else a bundled model."""
    path = Path(model)
    if not path.exists():
        shipped = bundled()
        if str(model) not in shipped:
            raise CheckpointError(
                f"there is no model `{model}`", f"{HINT}; or {suggest(str(model), shipped)}" if shipped else HINT
            )
        path = shipped[str(model)]
    if path.is_file():
        raise CheckpointError(f"{path} is a file, not a folder", f"if it is a model: clearformer import {path} OUT")
    if not is_foreign(path) and not RunFolder(path).exists:
        raise CheckpointError(f"{path} is not a run folder: it has no recipe.toml", HINT)
    return path


def is_foreign(path: Path) -> bool:
    """A folder of Hugging Face's rather than ours."""
    return (path / "config.json").exists() and not RunFolder(path).exists


@dataclass(frozen=True)
class Opened:
    """A model as it lies in a folder, ours or Hugging Face's, before it is made ready for a use."""

    name: str
    recipe: Recipe
    """Of a Hugging Face folder what `import` would write: [origin] and [model], of pictures also [image]."""
    network: nn.Module
    tokenizers: list[Tokenizer]
    """Of the source and of the target, where there are two sides; else one; of pictures none."""
    template: str | None
    """How a conversation is written, if the model was taught to converse."""

    @property
    def config(self) -> Any:
        return self.recipe.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[-1]

    @property
    def opening(self) -> list[int]:
        """What stands before the first token that is written, or before a prompt, which may be nothing."""
        if is_pair(self.recipe):
            return [start_id(self.recipe, self.tokenizers[1])]
        return list(habits(self.recipe, self.tokenizers[0])["opening"])


def open_model(model: str | Path = DEFAULT, device: str = "cpu") -> Opened:
    """The weights of a folder in their network, on the device, with tokenizers that fit."""
    path = find(model)
    recipe, weights, tokenizers = read_foreign(path) if is_foreign(path) else read_run(RunFolder(path))
    check_fit(tokenizers, recipe, path)
    network = build_model(recipe.model)
    where = str(path if is_foreign(path) else RunFolder(path).model)
    if recipe.tuning is None or not recipe.tuning.is_partial:
        load_weights(network, weights, where)
    else:  # the base, and what was learnt on it
        tuning = located(recipe.tuning, path)
        recipe = replace(recipe, tuning=tuning)
        fill(network, open_base(tuning))
        load_weights(network, weights, where, tune(network, tuning))
        settle(network, tuning)
    return Opened(path.name, recipe, network.to(pick_device(device)), tokenizers, read_template(path))


def located(tuning: TuningConfig, run: Path) -> TuningConfig:
    """The same with the base where it is found: from the run folder, or else from where the command runs."""
    beside = run / str(tuning.base)
    return tuning.changed(base=str(beside.resolve())) if beside.exists() else tuning


def seen_from(run: Path, base: Path) -> str:
    """How a run names its base: by the way from itself, so that both can move together.

    A bundled model keeps its name, and what has no folder in common with the run its whole path.
    """
    base, run = base.resolve(), run.resolve()
    if base in (path.resolve() for path in bundled().values()):
        return base.name
    is_near = len(Path(os.path.commonpath([base, run])).parts) > 1
    return os.path.relpath(base, run) if is_near else str(base)


def open_base(tuning: TuningConfig) -> Opened:
    """The model that another went on from: the very one, where that is remembered."""
    try:
        base = open_model(str(tuning.base))
    except CheckpointError as error:
        raise CheckpointError(
            f"the model that this one builds on cannot be opened: {error.message}",
            "put it back, or say where it lies now with `base` under [tuning] of recipe.toml",
        ) from None
    if tuning.fingerprint is not None and fingerprint(base.network) != tuning.fingerprint:
        raise CheckpointError(
            f"{tuning.base} is not the model that this one builds on: its weights are others",
            "name the base that it was trained on with `base` under [tuning] of recipe.toml",
        )
    return base


def shaped(recipe: Recipe, base: Opened, run: Path) -> Recipe:
    """The recipe with the sizes of the model that it goes on from, and the mark of that model's weights."""
    if recipe.model.kind == "classifier":
        own = recipe.model.base.model_dump(exclude_unset=True) if "base" in recipe.model.model_fields_set else {}
        kept = {**reader_config(base).model_dump(exclude_unset=True), **own, "kind": reader_config(base).kind}
        recipe = recipe.with_model(base=kept)
    elif recipe.tuning is not None and recipe.model.kind == base.config.kind:
        own = recipe.model.model_dump(exclude_unset=True)
        kept = base.config.model_dump(exclude_unset=True, exclude={"preset", *heads_of(base.network)})
        recipe = recipe.with_model(**kept | own)
    if recipe.image is None:
        recipe = replace(recipe, image=base.recipe.image)
    if recipe.tuning is not None:
        mark = recipe.tuning.fingerprint or fingerprint(base.network)
        where = seen_from(run, find(str(located(recipe.tuning, run).base)))
        tuning = recipe.tuning.changed(fingerprint=mark, base=where)
        recipe = replace(recipe, tuning=tuning, origin=base.recipe.origin)
    return recipe


def fill(network: nn.Module, base: Opened) -> None:
    """Give a network its base's weights. What it says with may be its own.

    A head that its base has not, or has for other classes, begins anew.
    """
    if base.recipe.tuning is not None and base.recipe.tuning.method == "prefix":
        raise CheckpointError(
            f"{base.name} has a prefix, which cannot be built into weights",
            f"start from its base: {base.recipe.tuning.base}",
        )
    weights = weights_of(base.network)
    if isinstance(network, models.Classifier):
        inside = {name.removeprefix("base."): tensor for name, tensor in weights.items() if name.startswith("base.")}
        known = set(unique_names(network.base))
        own = {name: tensor for name, tensor in (inside or weights).items() if name in known}
        load_weights(network.base, own, base.name)
    else:
        heads = tuple(f"{name}." for name in heads_of(network))
        theirs, ours = ({name: t.shape for name, t in side.items()} for side in (weights, weights_of(network)))
        new = {n for n in theirs.keys() | ours.keys() if n.startswith(heads) and theirs.get(n) != ours.get(n)}
        own = {name: tensor for name, tensor in weights.items() if name not in new}
        load_weights(network, own, base.name, ours.keys() - new)


def heads_of(network: nn.Module) -> tuple[str, ...]:
    """Children that give an answer, of which a model may have some and lack others."""
    return getattr(network, "heads", ())


def reader_config(base: Opened) -> Any:
    """Of the network that reads: a classifier's base, or the model itself."""
    return base.config.base if base.config.kind == "classifier" else base.config


def read_recipe(model: str | Path) -> Recipe:
    """The recipe of a folder alone."""
    path = find(model)
    return read_foreign(path)[0] if is_foreign(path) else Recipe.read(RunFolder(path).recipe)


def read_run(run: RunFolder) -> Parts:
    """The best weights of a training, or an imported model."""
    recipe = Recipe.read(run.recipe)
    if not run.model.exists():
        raise CheckpointError(
            f"{run.path} has no trained weights yet: {run.model.name} appears at the first validation",
            f"wait for it, or go on with the training: clearformer train --resume --out {run.path}",
        )
    tokenizers = [] if is_seen(recipe) else list(load_tokenizers(run))[: 2 if is_pair(recipe) else 1]
    weights, facts = load_tensors(run.model)
    if facts.get("tokenizers", own := [tokenizer.fingerprint() for tokenizer in tokenizers]) != own:
        check_fit(tokenizers, recipe, run.path)
        raise CheckpointError(
            f"{run.path}: the tokenizer is not the one this model was trained with", "copy the whole run folder again"
        )
    return recipe, weights, tokenizers


def read_foreign(folder: Path, read: Reader = read_weights) -> Parts:
    """A Hugging Face folder in our words. A decoder's first token is its BOS here, whatever it is called there."""
    config, weights = import_any(folder, read)
    origin = Origin(source=folder.resolve().name)
    if isinstance(config, PictureConfig):
        return foreign_recipe(config, origin, read_image(folder, config)), weights, []
    recipe = foreign_recipe(config, origin)
    tokenizer = Tokenizer.from_folder(folder)
    if is_pair(recipe):
        tokenizer = tokenizer.begun_by(first_token(folder))
        return recipe, weights, [tokenizer, tokenizer]
    return recipe, weights, [tokenizer]


def foreign_recipe(config: Any, origin: Origin, image: ImageConfig | None = None) -> Recipe:
    tables = {"origin": origin, "model": config} | ({} if image is None else {"image": image})
    return Recipe.parse({name: table.model_dump(exclude_none=True) for name, table in tables.items()}, origin.source)


def is_pair(recipe: Recipe) -> bool:
    """Two sides, a source and a target, rather than one text."""
    return task_of("model", recipe.model.kind) == "translation"


def is_seen(recipe: Recipe) -> bool:
    """Pictures, which have no tokenizer, rather than text."""
    return task_of("model", recipe.model.kind) in ("image-classification", "reconstruction")


def check_fit(tokenizers: list[Tokenizer], recipe: Recipe, where: Path) -> None:
    """Each side's table has a row for every entry; published tables may have some to spare, ours have not."""
    sides = ("source_vocab", "target_vocab") if is_pair(recipe) else ("vocab",)
    for key, tokenizer in zip(sides, tokenizers):
        size, n_rows = tokenizer.vocab_size, getattr(recipe.model, key)
        if size > n_rows or (size < n_rows and recipe.origin is None):
            side = f"{key.removesuffix('_vocab')} " if is_pair(recipe) else ""
            raise CheckpointError(
                f"{where}: the {side}tokenizer has {size:,} entries, the model {n_rows:,}",
                "tokenizer.json is not the one this model was trained with",
            )


def load(model: str | Path = DEFAULT, device: str = "cpu") -> Any:
    """A model ready for use, from a run folder or one of Hugging Face's: a handle, as those in USES."""
    opened = open_model(model, device)
    kind = task_of("model", opened.config.kind)
    if opened.recipe.objective.kind == "sentence-score":
        return SentenceScorer(pack(opened.network), opened.tokenizers[0], opened.name)
    if kind == "masked-lm" and opened.config.word_head and opened.tokenizers[0].mask_id is not None:
        return MaskedModel(pack(opened.network), opened.tokenizers[0], opened.name)
    if kind == "classification":
        data, classes = opened.recipe.data, read_classes(find(model))
        if opened.config.pooling == "none":
            return Tagger(pack(opened.network), opened.tokenizer, classes, opened.name, data.max_tokens)
        is_pair = isinstance(data.train.text, tuple)
        return Classifier(pack(opened.network), opened.tokenizer, classes, opened.name, data.max_tokens, is_pair)
    if is_seen(opened.recipe):
        pack(opened.network)
        return view(opened, find(model))
    if kind == "ctc":
        assert opened.recipe.sound is not None, "a training on recordings writes it down"
        return Transcriber(pack(opened.network), opened.tokenizer, opened.recipe.sound, opened.name)
    if kind not in ("translation", "causal-lm"):
        raise CheckpointError(
            f"{model} is a model for {kind}, of kind {opened.config.kind}, which has no use here yet",
            f"with it you can: inspect {model}",
        )
    ready, tokenizers, decode = pack(opened.network), opened.tokenizers, opened.recipe.decode
    if kind == "translation":
        prefix = getattr(opened.recipe.data, "prefix", "")
        return Translator(ready, tokenizers[0], tokenizers[1], decode, opened.name, prefix)
    ways = habits(opened.recipe, tokenizers[0])
    return LanguageModel(ready, tokenizers[0], decode, opened.name, template=opened.template, **ways)


def view(opened: Opened, folder: Path, unit: bool = False) -> Eye:
    image = opened.recipe.image
    if image is None:
        raise CheckpointError(
            f"{folder}: the recipe does not say how pictures become numbers",
            "give it an [image] with size, channels, mean and std",
        )
    if task_of("model", opened.config.kind) == "reconstruction":
        return Coder(opened.network, image, read_classes(folder), opened.name, unit)
    return Viewer(opened.network, image, read_pictured(folder, opened.config.n_classes), opened.name, unit)


def load_eye(model: str | Path, device: str = "cpu") -> Eye:
    """A network for pictures as it was trained, layer by layer: to look into, not for speed."""
    opened = open_model(model, device)
    if not is_seen(opened.recipe):
        raise CheckpointError(
            f"{model} is of kind {opened.config.kind}, which sees no pictures", "choose a network for pictures"
        )
    return view(opened, find(model))


def read_pictured(folder: Path, n_classes: int) -> list[str]:
    """What a network for pictures tells apart, by name."""
    classes = class_names(folder, n_classes) if is_foreign(folder) else read_classes(folder)
    if len(classes) != n_classes:
        raise CheckpointError(
            f"{folder} names {len(classes)} classes, and the model knows {n_classes}", "copy the whole run folder again"
        )
    return classes


def habits(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the texts of a training were: documents, begun by BOS and ended by EOS, or pages of a book.

    Documents that were joined begin after the EOS of the one before. A tokenizer from elsewhere may say itself what
    begins a text.
    """
    is_collection = recipe.data is not None and recipe.data.train.is_collection
    first = tokenizer.eos_id if getattr(recipe.data, "joined", False) else tokenizer.bos_id
    return {"opening": tokenizer.opening or ([first] if is_collection else []), "closed": is_collection}


def read_classes(folder: Path) -> list[str]:
    """classes.json, which must be that of the weights; an empty list is a regression's."""
    path = folder / CLASSES
    try:
        classes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", "copy the whole run folder again") from None
    if load_tensors(folder / "model.safetensors")[1].get("classes", classes) != classes:
        raise CheckpointError(f"{path} is not the one this model was trained with", "copy the whole run folder again")
    return [str(label) for label in classes]


def load_encoder(model: str | Path, device: str = "cpu", unit: bool | None = None) -> Encoder | Eye:
    """A model as a maker of vectors: a BERT and its kin, a GPT, what a classifier reads or sees with, an autoencoder.

    A sentence encoder's own files say whether its vectors have length 1 and how many tokens it reads.
    """
    opened, path = open_model(model, device), find(model)
    if is_seen(opened.recipe):
        pack(opened.network)
        return view(opened, path, bool(unit))
    network: Any = opened.network.base if isinstance(opened.network, models.Classifier) else opened.network
    if getattr(network, "task", None) not in ("masked-lm", "causal-lm"):
        raise CheckpointError(
            f"{model} is of kind {opened.config.kind}, which makes no vectors", "choose a BERT, a GPT or a classifier"
        )
    beside = {name: read_beside(path / name) for name in ("modules.json", "sentence_bert_config.json")}
    is_unit = any(str(part.get("type", "")).endswith("Normalize") for part in beside["modules.json"] or [])
    length = (beside["sentence_bert_config.json"] or {}).get("max_seq_length")
    return Encoder(pack(network), opened.tokenizer, opened.name, length, is_unit if unit is None else unit)


def read_beside(path: Path) -> Any:
    """A file that says more about a model, if it is there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


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
