"""fill: the word that is missing at a known place."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearformer.handles import gaps
from clearformer.verbs.load import load_for


def fill(
    model: str | Path, text: str, n: int = 5, candidates: Sequence[str] | None = None, *, device: str = "cpu"
) -> list[dict[str, Any]]:
    """The best words for the gap ___ of a text: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.fill(load_for("fill", model, device), text, n, candidates)]
