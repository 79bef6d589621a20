"""repair: the word that a sentence lacks, and its place."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearformer.handles import gaps
from clearformer.verbs.load import load_for


def repair(model: str | Path, text: str, n: int = 5, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The best ways to add the word that a sentence lacks: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.repair(load_for("repair", model, device), text, n)]
