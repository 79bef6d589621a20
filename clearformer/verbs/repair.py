"""repair: find the missing word of a sentence and its position."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearformer.handles import gaps
from clearformer.verbs.load import load_for


def repair(model: str | Path, text: str, n: int = 5, *, device: str = "cpu") -> list[dict[str, Any]]:
    """Return the n best ways to add the missing word to a sentence, one row each.

    A row has text, word, position, logprob and probability; `share` is the old name of `probability`.
    """
    rows = gaps.repair(load_for("repair", model, device), text, n)
    return [{**asdict(row), "share": row.probability} for row in rows]
