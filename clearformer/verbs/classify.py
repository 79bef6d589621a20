"""classify: predict the classes of texts, words or images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from clearformer.errors import DataError
from clearformer.verbs.load import load_for


class Predictor(Protocol):
    """The interface that `classify` needs from a handle."""

    classes: list[str]
    """The names of the classes; empty for a regression."""
    is_pair: bool | None
    """Whether the inputs are pairs of texts, separated by a tab on the command line."""
    default_top: int
    json_key: str

    def predict(
        self,
        inputs: Any,
        pairs: Any = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> Any: ...


@overload
def classify(  # type: ignore[overload-overlap]
    model: str | Path, texts: str | Path, pairs: str | None = None, *, top: int = 1, device: str = "cpu"
) -> dict[str, Any]: ...
@overload
def classify(
    model: str | Path,
    texts: Sequence[str | Path],
    pairs: Sequence[str] | None = None,
    *,
    top: int = 1,
    device: str = "cpu",
    broken: list[DataError] | None = None,
) -> list[dict[str, Any]]: ...
def classify(
    model: str | Path,
    texts: Any,
    pairs: Any = None,
    *,
    top: int = 1,
    device: str = "cpu",
    broken: list[DataError] | None = None,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a row for a text or pair of texts: text, label, probability, and `top`, the most probable classes.

    A list of texts gives a list of rows.
    The rows of a regression model have text and value. The rows of a tagger have text and `words`, where each word has
    word, label, probability and top. For an image classifier `texts` are files, and the rows have image, label,
    probability and top. A file that cannot be read raises an error. If `broken` is a list, the file is skipped, and the
    error is appended to the list.
    """
    predictor: Predictor = load_for("classify", model, device)
    rows: dict[str, Any] | list[dict[str, Any]] = predictor.predict(texts, pairs, top, broken)
    return rows
