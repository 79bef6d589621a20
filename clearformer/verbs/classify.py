"""classify: labels for texts, words or images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from clearformer.errors import DataError
from clearformer.verbs.load import load_for


class Predictor(Protocol):
    """What `classify` asks of a handle."""

    is_pair: bool
    """It judges pairs of texts; on the command line a tab divides the two."""
    default_top: int
    json_key: str

    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]: ...


def classify(
    model: str | Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    top: int = 1,
    device: str = "cpu",
    broken: list[DataError] | None = None,
) -> list[dict[str, Any]]:
    """A row for each text, or each text with its pair: text, label, probability, and the `top` likeliest classes.

    A regression gives text and value; a tagger text and words, with the same columns for each word. An image classifier
    takes files: image, label, probability, `top`. A file that cannot be read raises an error; with a list as `broken`
    it is left out, and the error added there.
    """
    predictor: Predictor = load_for("classify", model, device)
    return predictor.predict(texts, pairs, top, broken)
