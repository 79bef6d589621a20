"""translate: translate texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from clearformer.handles.translator import Translator
from clearformer.verbs.load import load_for


@overload
def translate(
    model: str | Path,
    texts: str,
    *,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> str: ...
@overload
def translate(
    model: str | Path,
    texts: Sequence[str],
    *,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> list[str]: ...
def translate(
    model: str | Path,
    texts: str | Sequence[str],
    *,
    device: str = "cpu",
    engine: str = "auto",
    precision: str = "float32",
    **settings: Any,
) -> str | list[str]:
    """Return the best translation of a text, or a list of them for a list of texts.

    `settings`, such as beam=1, are passed to `Translator.candidates`.
    """
    translator: Translator = load_for("translate", model, device, engine, precision)
    return translator.translate(texts, **settings)
