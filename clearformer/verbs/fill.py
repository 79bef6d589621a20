"""fill: find the missing word at a known position."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearformer.handles import gaps
from clearformer.verbs.load import load_for


def fill(
    model: str | Path, text: str, n: int = 5, candidates: Sequence[str] | None = None, *, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Return the n best words for the blank ___ in a text, one row per word.

    A row has text, word, position, logprob and probability; `share` is the old name of `probability`.
    """
    return [as_row(filling) for filling in gaps.fill(load_for("fill", model, device), text, n, candidates)]


def as_row(filling: gaps.Filling) -> dict[str, Any]:
    return {**asdict(filling), "share": filling.probability}
