"""A model ready for use, as the handle of its kind."""

import json
from pathlib import Path
from typing import Any, TypeVar

from clearformer.errors import CheckpointError
from clearformer.handles.classifier import Classifier
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import ImageModel
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.handles.tagger import Tagger
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.layers.linear import pack
from clearformer.loading.contents import is_seen, read_classes, read_pictured
from clearformer.loading.folders import DEFAULT, find
from clearformer.loading.opened import Opened, habits
from clearformer.loading.opening import open_model
from clearformer.models import classifier as models
from clearformer.recipe import task_of

Handle = TypeVar("Handle")
USES: dict[type, tuple[str, str]] = {
    Translator: ("a translator", "translate, generate, evaluate, neighbours, plot"),
    LanguageModel: ("a language model", "generate, score, fill, repair, evaluate, plot"),
    MaskedModel: ("a masked language model", "score, fill, repair, plot"),
    SentenceScorer: ("a scorer of sentences", "score"),
    Classifier: ("a classifier", "classify, evaluate, embed, plot"),
    Tagger: ("a classifier of words", "classify, evaluate, embed, plot"),
    ImageClassifier: ("a classifier of pictures", "classify, evaluate, embed, plot"),
    ImageAutoencoder: ("an autoencoder of pictures", "evaluate, embed, plot"),
    Transcriber: ("a model of speech", "transcribe, evaluate"),
}


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


def load_as(kind: type[Handle], model: str | Path, device: str = "cpu") -> Handle:
    """As `load`, but refuse a model that is of another kind than what is to be done with it."""
    found = load(model, device)
    if not isinstance(found, kind):
        is_one, verbs = USES[type(found)]
        raise CheckpointError(f"{model} is {is_one}, not {USES[kind][0]}", f"with it you can: {verbs}")
    return found


def view(opened: Opened, folder: Path, unit: bool = False) -> ImageModel:
    image = opened.recipe.image
    if image is None:
        raise CheckpointError(
            f"{folder}: the recipe does not say how pictures become numbers",
            "give it an [image] with size, channels, mean and std",
        )
    if task_of("model", opened.config.kind) == "reconstruction":
        return ImageAutoencoder(opened.network, image, read_classes(folder), opened.name, unit)
    return ImageClassifier(opened.network, image, read_pictured(folder, opened.config.n_classes), opened.name, unit)


def load_eye(model: str | Path, device: str = "cpu") -> ImageModel:
    """A network for pictures as it was trained, layer by layer: to look into, not for speed."""
    opened = open_model(model, device)
    if not is_seen(opened.recipe):
        raise CheckpointError(
            f"{model} is of kind {opened.config.kind}, which sees no pictures", "choose a network for pictures"
        )
    return view(opened, find(model))


def load_encoder(model: str | Path, device: str = "cpu", unit: bool | None = None) -> TextEncoder | ImageModel:
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
    return TextEncoder(pack(network), opened.tokenizer, opened.name, length, is_unit if unit is None else unit)


def read_beside(path: Path) -> Any:
    """A file that says more about a model, if it is there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
