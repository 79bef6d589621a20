"""What a model says of texts, pictures or recordings: labels, vectors, transcripts."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from clearformer.data.sources import read_each
from clearformer.errors import DataError
from clearformer.handles.classifier import Classifier, Verdict
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.tagger import Tagger
from clearformer.handles.transcriber import Transcriber
from clearformer.loading.handles import load, load_as, load_encoder
from clearformer.text.normalize import clean
from clearformer.verbs.corpora import Name


def classify(
    model: Name,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    top: int = 1,
    device: str = "cpu",
    broken: list[DataError] | None = None,
) -> list[dict[str, Any]]:
    """What a classifier says of each text, or of each with its pair: text, label, probability, and the `top` likeliest.

    Of a regression: text, value. Where words are judged: text, and as `words`, which spaces divide, the same of each.
    To a classifier of pictures the texts are files: image, label, probability, and the `top` likeliest. One that cannot
    be read raises an error; with a list as `broken` it is left out, and the error added there.
    """
    return verdicts(judge_of(model, device), texts, pairs, top, broken)


def judge_of(model: Name, device: str) -> Classifier | Tagger | ImageClassifier:
    """A classifier of texts, of words or of pictures."""
    found = load(model, device)
    return found if isinstance(found, Classifier | Tagger | ImageClassifier) else load_as(Classifier, model, device)


def verdicts(
    judge: Classifier | Tagger | ImageClassifier,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    top: int,
    broken: list[DataError] | None = None,
) -> list[dict[str, Any]]:
    def told(found: list[Verdict]) -> dict[str, Any]:
        return asdict(found[0]) | {"top": [asdict(one) for one in found[:top]]}

    if isinstance(judge, ImageClassifier):
        if pairs is not None:
            raise DataError(f"{judge.name} judges pictures, not pairs of texts", "give files alone")
        files = read_each(texts, judge.open, broken)
        seen = judge.classify([pixels for _, pixels in files])
        return [{"image": str(name), **told(found)} for (name, _), found in zip(files, seen)]
    if isinstance(judge, Tagger):
        if pairs is not None:
            raise DataError(f"{judge.name} judges words, not pairs of texts", "give the texts alone")
        divided = [clean(text).split() for text in texts]
        said: list[list[dict[str, Any]]] = (
            [[told(one) for one in row] for row in judge.tag(divided)]
            if judge.classes
            else [[{"value": value} for value in row] for row in judge.values(divided)]
        )
        return [
            {"text": text, "words": [{"word": word, **one} for word, one in zip(words, row)]}
            for text, words, row in zip(texts, divided, said)
        ]
    named: list[dict[str, Any]] = [{"text": text} for text in texts]
    for row, pair in zip(named, pairs or []):
        row["pair"] = pair
    if not judge.classes:
        return [row | {"value": value} for row, value in zip(named, judge.values(texts, pairs))]
    return [row | told(found) for row, found in zip(named, judge.classify(texts, pairs))]


def embed(model: Name, texts: Sequence[str], *, unit: bool | None = None, device: str = "cpu") -> np.ndarray:
    """The vector of each text (N, D): the mean over its tokens, of length 1 where the model is a sentence encoder.

    `unit` decides instead of the model's own files. To a network for pictures the texts are files, and their vectors
    what its head reads: of an autoencoder, codes.
    """
    encoder = load_encoder(model, device, unit)
    vectors: np.ndarray = encoder.embed(texts).numpy()
    return vectors


def transcribe(
    model: Name, sounds: Sequence[Name], *, device: str = "cpu", broken: list[DataError] | None = None
) -> list[dict[str, Any]]:
    """What is said in each WAV file: path, text, and as `words` each word with the seconds where it starts and ends.

    A file that cannot be read raises an error; with a list as `broken` it is left out, and the error added there.
    """
    transcriber = load_as(Transcriber, model, device)
    files = read_each(sounds, transcriber.open, broken)
    told = transcriber.transcribe([samples for _, samples in files])
    return [{"path": str(path), **asdict(transcript)} for (path, _), transcript in zip(files, told)]
