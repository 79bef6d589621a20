"""One input or many: every method of every handle gives for a single input what it gives for a list of one."""

import inspect
import wave
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.errors import DataError
from clearformer.handles.classifier import Classifier
from clearformer.handles.handle import Handle
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.inputs import is_one
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.handles.tagger import Tagger
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.models import MODELS
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

TEXTS = ["a good man", "", "bad", "a man is bad"]
STACK = {"n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 19}
RESNET = {"block": "basic", "depths": (1, 2), "widths": (7, 10), "stem": "3x3", "stem_width": 5}
CLASSES = ["bad", "good", "<b>"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


def network(kind: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    model = MODELS.resolve(kind)
    return model(model.Config(**sizes)).eval()


def build(kind: type[Handle], tok: Tokenizer) -> Any:
    V, image = tok.vocab_size, ImageConfig(size=13, channels=3, mean=(0.4,) * 3, std=(0.3,) * 3)
    both = {"n_encoder_layers": 1, "n_decoder_layers": 2, "source_vocab": V, "target_vocab": V}
    sizes = {key: value for key, value in STACK.items() if key != "n_layers"}
    base = {"kind": "bert", "vocab": V, **STACK}
    parts: dict[type[Handle], Any] = {
        Translator: lambda: (network("transformer", **both, **sizes), tok, tok),
        LanguageModel: lambda: (network("gpt", vocab=V, **STACK), tok),
        MaskedModel: lambda: (network("bert", vocab=V, **STACK), tok),
        SentenceScorer: lambda: (network("bert", vocab=V, **STACK), tok),
        Classifier: lambda: (network("classifier", base=base, n_classes=3), tok, CLASSES),
        Tagger: lambda: (network("classifier", base=base, n_classes=3, pooling="none"), tok, CLASSES),
        TextEncoder: lambda: (network("bert", vocab=V, **STACK), tok),
        ImageClassifier: lambda: (network("resnet", size=13, n_classes=3, **RESNET), image, CLASSES),
        ImageAutoencoder: lambda: (network("autoencoder", size=13, channels=3, widths=(5,), d_code=7), image, []),
        Transcriber: lambda: (network("speech-rnn", vocab=V, channels=80, d_model=10), tok, SoundConfig()),
    }
    return kind(*parts[kind](), name="mine & <i>ours</i>")


METHODS: dict[type[Handle], dict[str, dict[str, Any]]] = {
    Translator: {"translate": {}, "candidates": {"n": 2}, "rank": {"source": "a man"}},
    LanguageModel: {"generate": {"max_new": 3, "seed": 1}, "score": {}, "rank": {}, "embed": {}},
    MaskedModel: {"score": {}, "rank": {}, "embed": {}},
    SentenceScorer: {"score": {}, "rank": {}, "embed": {}},
    Classifier: {"predict": {}, "classify": {}, "logits": {}, "embed": {}},
    Tagger: {"predict": {}, "tag": {}, "embed": {}},
    TextEncoder: {"embed": {}},
    ImageClassifier: {"predict": {"top": 2}, "classify": {}, "embed": {}, "pixels": {}},
    ImageAutoencoder: {"embed": {}, "pixels": {}},
    Transcriber: {"transcribe": {}},
}


@pytest.fixture
def inputs(tmp_path: Path, request: pytest.FixtureRequest) -> list[Any]:
    """Inputs for the handle of a test: texts, image files or recordings."""
    kind, rng = request.getfixturevalue("kind"), np.random.default_rng(0)
    paths = [tmp_path / f"{i}" for i in range(3)]
    if issubclass(kind, ImageClassifier | ImageAutoencoder):
        for path in paths:
            Image.fromarray(rng.integers(0, 256, (17, 19, 3), "uint8")).save(path.with_suffix(".png"))
        return [path.with_suffix(".png") for path in paths]
    if kind is Transcriber:
        for path in paths:
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16000)
                file.writeframes(rng.integers(-9999, 9999, 5003, "int16").tobytes())
        return list(paths)
    return list(TEXTS)


def assert_same(one: Any, other: Any) -> None:
    """Equal, but for rounding: a text alone is not padded."""
    if isinstance(one, torch.Tensor | np.ndarray):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        assert_same(list(one.values()), list(other.values()))
    elif hasattr(one, "__dict__"):
        assert type(one) is type(other)
        assert_same(vars(one), vars(other))
    else:
        assert one == (pytest.approx(other, rel=1e-4, abs=1e-4) if isinstance(one, float) else other)


@pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind, some in METHODS.items() for method in some])
def test_a_single_input_gives_a_single_result(
    tokenizer: Tokenizer, kind: type[Handle], method: str, inputs: list[Any]
) -> None:
    """classify("good") must not classify four letters, and classify("") not return an empty list."""
    call, options = getattr(build(kind, tokenizer), method), METHODS[kind][method]
    for one in inputs:
        assert_same(call(one, **options), call([one], **options)[0])
    assert len(call(inputs, **options)) == len(inputs)
    name = next(iter(inspect.signature(call).parameters))
    assert_same(call(**{name: inputs[0]}, **options), call(inputs[0], **options))
    assert_same(call(iter(inputs), **options), call(inputs, **options))


@pytest.mark.parametrize(("kind", "method"), [(kind, method) for kind, some in METHODS.items() for method in some])
@pytest.mark.parametrize("wrong", [5, None, b"a man", {"a": 1}, ["a", None], [1.5]])
def test_anything_else_is_an_error_of_one_sentence(
    tokenizer: Tokenizer, kind: type[Handle], method: str, wrong: Any
) -> None:
    expected = r"(expected a (text|file) or a list of \2s, not the \w+ |input \d is the \w+ .*, not a (text|file)\n)"
    with pytest.raises(DataError, match=expected):
        getattr(build(kind, tokenizer), method)(wrong, **METHODS[kind][method])


@pytest.mark.parametrize("kind", METHODS)
def test_a_handle_is_callable(tokenizer: Tokenizer, kind: type[Handle], inputs: list[Any]) -> None:
    handle = build(kind, tokenizer)
    if kind is MaskedModel:
        inputs = ["a ___ man", "bad ___"]
    options = {"n": 2} if kind is MaskedModel else {"max_new": 3} if kind is LanguageModel else {}
    expected = getattr(handle, handle.main)(inputs, **options)
    assert_same(handle(inputs, **options), expected)
    assert_same(handle(inputs[-1], **options), expected[-1])


def test_pixels_and_samples_may_be_arrays(tokenizer: Tokenizer) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 13, 13), "uint8")
    viewer = build(ImageClassifier, tokenizer)
    assert len(viewer.classify(pixels)) == 5
    assert_same(viewer.classify(pixels[1]), viewer.classify(pixels)[1])
    assert viewer.predict(pixels[1])["image"] == "pixels (3, 13, 13)"
    samples = np.random.default_rng(0).integers(-9999, 9999, 5003, "int16")
    hearer = build(Transcriber, tokenizer)
    assert hearer.transcribe(samples) == hearer.transcribe([samples])[0]
    assert not is_one(np.array(["a", "b"]), (str,))
    assert len(build(Classifier, tokenizer).classify(np.array(["a man", "bad"]))) == 2


def test_a_single_file_is_never_skipped(tokenizer: Tokenizer, tmp_path: Path) -> None:
    viewer, broken, errors = build(ImageClassifier, tokenizer), tmp_path / "broken.png", list[DataError]()
    broken.write_text("no image")
    assert viewer.predict([broken], errors=errors) == []
    assert len(errors) == 1
    with pytest.raises(DataError, match=r"broken\.png"):
        viewer.predict(broken, errors=errors)
    assert len(errors) == 1


def test_pairs_are_single_with_their_texts(tokenizer: Tokenizer) -> None:
    judge = build(Classifier, tokenizer)
    judge.is_pair = True
    assert_same(judge.classify("a man", "bad"), judge.classify(["a man"], ["bad"])[0])
    with pytest.raises(DataError, match=r"`pairs` is the list \['bad'\], not one text\nhint: give two single inputs"):
        judge.classify("a man", ["bad"])
    with pytest.raises(DataError, match="`pairs` is the str 'bad', not a list of texts"):
        judge.predict(["a man"], "bad")
    translator = build(Translator, tokenizer)
    assert translator.score("a man", "bad") == translator.score(["a man"], ["bad"])[0]


def test_a_regression_gives_a_value(tokenizer: Tokenizer) -> None:
    regression = build(Classifier, tokenizer)
    regression.classes = []
    assert isinstance(regression.values("a man"), float)
    assert regression("a man") == {"text": "a man", "value": regression.values("a man")}


def test_a_sentence_is_a_string_or_words(tokenizer: Tokenizer) -> None:
    tagger = build(Tagger, tokenizer)
    assert_same(tagger.tag(" a  good man"), tagger.tag([["a", "good", "man"]])[0])
    assert [len(row) for row in tagger.tag(["a man", ["bad"], ""])] == [2, 1, 0]
    assert tagger.logits("a good man").shape == (3, 3)


class Text(HTMLParser):
    """The tags of a page and the text between them, as a browser shows it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.text = list[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.mark.parametrize("kind", METHODS)
def test_a_handle_says_what_it_is_in_text_and_as_a_table(tokenizer: Tokenizer, kind: type[Handle]) -> None:
    handle = build(kind, tokenizer)
    handle.path = Path("runs/<u>mine</u>")
    page, n_parameters = Text(handle._repr_html_()), sum(p.numel() for p in handle.model.parameters())
    assert set(page.tags) == {"table", "caption", "b", "tbody", "tr", "th", "td"}
    for text in (repr(handle), page.text):
        assert f"{kind.__name__} mine & <i>ours</i>" in text
        assert handle.kind in text
        assert f"{n_parameters:,}" in text
        assert "runs/<u>mine</u>" in text
        if kind in (Classifier, Tagger, ImageClassifier):
            assert "3 classes: bad, good and <b>" in text
        if hasattr(handle, "tokenizer"):
            assert f"{tokenizer.vocab_size} tokens" in text
    assert ", ".join(handle.verbs) in page.text


def test_a_description_names_architecture_and_sizes(tokenizer: Tokenizer) -> None:
    classifier = build(Classifier, tokenizer)
    classifier.temperature = 1.25
    assert repr(classifier).endswith(
        f"bert, 2 layers, width 10; {sum(p.numel() for p in classifier.model.parameters()):,} parameters; "
        f"3 classes: bad, good and <b>; vocabulary of {tokenizer.vocab_size} tokens; calibrated (temperature 1.25)>"
    )
    assert "transformer, 1 encoder layer, 2 decoder layers, width 10;" in repr(build(Translator, tokenizer))
    assert "3 × 13 × 13" in build(ImageClassifier, tokenizer)._repr_html_()


def test_many_classes_are_counted(tokenizer: Tokenizer) -> None:
    many = build(Classifier, tokenizer)
    many.classes = [f"class {i}" for i in range(3000)]
    assert "3,000 classes: class 0, class 1, " in repr(many)
    assert "class 7 and 2,992 more" in repr(many)
    assert len(repr(many)) < 400
