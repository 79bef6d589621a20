"""What all handles have in common: they say what they are, and what they can do."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.chat import Chat
from clearformer.handles.classifier import Classifier
from clearformer.handles.handle import Handle
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.reply import EncoderDecoderWriter
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.handles.tagger import Tagger
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

CLASSES = ("bad", "good")
KINDS = (
    Translator,
    LanguageModel,
    MaskedModel,
    SentenceScorer,
    Classifier,
    Tagger,
    TextEncoder,
    ImageClassifier,
    ImageAutoencoder,
    Transcriber,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = ["a good man", "a bad man"]
    return train_tokenizer(lines, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


def build(kind: type, tokenizer: Tokenizer, *classes: str, **more: Any) -> Any:
    """A handle around a network that must never be called."""
    network: Any = nn.Linear(3, 5)
    network.config = SimpleNamespace(max_length=61, d_model=3)
    parts: dict[type, tuple[Any, ...]] = {
        Translator: (tokenizer, tokenizer),
        Classifier: (tokenizer, classes or CLASSES),
        Tagger: (tokenizer, classes or CLASSES),
        ImageClassifier: (ImageConfig(size=7, channels=1, mean=(0.4,), std=(0.3,)), CLASSES),
        ImageAutoencoder: (ImageConfig(size=7, channels=1, mean=(0.4,), std=(0.3,)), CLASSES),
        Transcriber: (tokenizer, SoundConfig()),
    }
    return kind(network, *parts.get(kind, (tokenizer,)), **more)


@pytest.mark.parametrize("kind", [Tagger, ImageClassifier])
def test_pairs_are_refused_where_none_are_judged(tokenizer: Tokenizer, kind: type) -> None:
    with pytest.raises(DataError, match="not pairs of texts"):
        build(kind, tokenizer).predict(["good"], ["bad"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_handle_says_what_it_is_and_can_do(tokenizer: Tokenizer, kind: type) -> None:
    handle = build(kind, tokenizer, name="mine")
    assert isinstance(handle, Handle)
    assert repr(handle).startswith(f"<{kind.__name__} mine: {handle.kind}, Linear, width 3; 20 parameters; ")
    assert handle.kind.split()[0] in ("a", "an")
    assert not handle.model.training
    needed = {"classify": "predict", "score": "rank", "generate": "writer", "translate": "candidates"}
    needed |= {verb: verb for verb in ("fill", "repair", "embed", "transcribe", "neighbours")}
    assert callable(getattr(handle, handle.main))
    for verb, method in needed.items():
        assert (verb in handle.verbs) == hasattr(handle, method)


def test_a_source_is_for_translators_alone(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"mine is a translator: .* of a source\nhint: .*--source"):
        build(Translator, tokenizer, name="mine").rank(["a man"])
    for kind in (LanguageModel, MaskedModel, SentenceScorer):
        with pytest.raises(ConfigError, match=r"mine is a.*, not a translator\nhint: omit --source"):
            build(kind, tokenizer, name="mine").rank(["a man"], source="un homme")


def test_a_writer_continues_or_answers(tokenizer: Tokenizer) -> None:
    translator, poet = build(Translator, tokenizer), build(LanguageModel, tokenizer, template="{{ messages }}")
    assert poet.writer() is poet
    assert isinstance(poet.writer(chat=True), Chat)
    assert isinstance(translator.writer(), EncoderDecoderWriter)
    with pytest.raises(CheckpointError, match=r"is a translator: it has no chat template\nhint: omit --chat"):
        translator.writer(chat=True)
