"""follows: ask a BERT with a next-sentence head whether one text follows another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.handles.masked_model import MaskedModel
from clearformer.verbs.load import load_for


def follows(model: str | Path, first: str, candidates: Sequence[str], *, device: str = "cpu") -> list[dict[str, Any]]:
    """Return each candidate with the probability that it follows the first text, the most probable first.

    The probabilities do not sum to 1: every candidate is a question of its own.
    """
    handle: MaskedModel = load_for("follows", model, device)
    rows = zip(candidates, handle.follows([first] * len(candidates), list(candidates)))
    return [{"text": text, "probability": value} for text, value in sorted(rows, key=lambda row: -row[1])]
