"""What all handles have in common: they name what they are, and refuse a string where a list is wanted."""

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
METHODS = {
    Translator: ("translate", "candidates", "stream", "rank"),
    LanguageModel: ("generate", "score", "rank"),
    MaskedModel: ("score", "rank"),
    SentenceScorer: ("score", "rank"),
    Classifier: ("classify", "logits", "predict"),
    Tagger: ("tag", "values", "logits", "predict"),
    TextEncoder: ("embed",),
    ImageClassifier: ("classify", "embed", "pixels", "predict"),
    ImageAutoencoder: ("embed", "pixels"),
    Transcriber: ("transcribe",),
}


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


@pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind, some in METHODS.items() for method in some])
@pytest.mark.parametrize("text", ["good", ""])
def test_a_string_is_not_taken_for_a_list(tokenizer: Tokenizer, kind: type, method: str, text: str) -> None:
    """classify("good") must not classify four letters, and classify("") not return an empty list."""
    more = {"source": "a man"} if (kind, method) == (Translator, "rank") else {}
    message = rf"expected a list of (\w+)s, not the \1 '{text}'\nhint: put it in a list: \[\1]"
    with pytest.raises(DataError, match=message):
        list(getattr(build(kind, tokenizer), method)(text, **more))


def test_the_values_of_a_regression_are_for_a_list_too(tokenizer: Tokenizer) -> None:
    regression = build(Classifier, tokenizer)
    regression.classes = []
    for method in (regression.values, regression.predict):
        with pytest.raises(DataError, match="expected a list of texts, not the text 'good'"):
            method("good")
    judge = build(Classifier, tokenizer, is_pair=True)
    with pytest.raises(DataError, match="expected a list of texts, not the text 'a man'"):
        judge.classify(["good"], "a man")


def test_a_tagger_takes_words_and_not_whole_texts(tokenizer: Tokenizer) -> None:
    tagger = build(Tagger, tokenizer)
    for method in (tagger.tag, tagger.values):
        with pytest.raises(DataError, match=r"expected a list of words, not the text 'a man'\nhint: .*text\.split"):
            method(["a man"])


@pytest.mark.parametrize("kind", [Tagger, ImageClassifier])
def test_pairs_are_refused_where_none_are_judged(tokenizer: Tokenizer, kind: type) -> None:
    with pytest.raises(DataError, match="not pairs of texts"):
        build(kind, tokenizer).predict(["good"], ["bad"])


@pytest.mark.parametrize("kind", METHODS)
def test_a_handle_says_what_it_is_and_can_do(tokenizer: Tokenizer, kind: type) -> None:
    handle = build(kind, tokenizer, name="mine")
    assert isinstance(handle, Handle)
    assert repr(handle) == f"<{kind.__name__} mine: {handle.kind}>"
    assert handle.kind.split()[0] in ("a", "an")
    assert not handle.model.training
    needed = {"classify": "predict", "score": "rank", "generate": "writer", "translate": "candidates"}
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
