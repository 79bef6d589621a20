"""translate: translate texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from clearformer.handles.alignment import Alignment
from clearformer.handles.translator import Translation, Translator
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


def as_row(source: str, translation: Translation, alignment: Alignment | None = None) -> dict[str, Any]:
    """One translation as --json prints it. `source_pieces` and `target_pieces` are old names of the token keys."""
    row = {
        "source": source,
        "translation": translation.text,
        "score": translation.score,
        "logprob": translation.logprob,
    }
    if alignment is None:
        return row
    tokens = {"source_tokens": alignment.source, "target_tokens": alignment.target}
    old_names = {"source_pieces": alignment.source, "target_pieces": alignment.target}
    return {**row, **tokens, **old_names, "links": alignment.links()}
