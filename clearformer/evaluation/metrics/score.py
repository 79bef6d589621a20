"""What every text metric returns, and the one thing it asks of its input: lines that pair up."""

from collections.abc import Sequence
from typing import NamedTuple

from clearformer.errors import DataError


class Score(NamedTuple):
    """A metric's result. Two values compare only if their signatures, which record every setting, are equal."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def check_streams(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse to score unless there is a line, and every reference stream has one line per hypothesis."""
    if not hypotheses or not references:
        raise DataError(
            f"nothing to score: {len(hypotheses)} hypotheses, {len(references)} reference streams",
            "give at least one hypothesis and one list of references",
        )
    for number, stream in enumerate(references, start=1):
        if isinstance(stream, str):
            raise DataError(
                f"reference stream {number} of {len(references)} is a string, not a list of lines",
                "references is a list of streams: write [lines], not lines",
            )
        if len(stream) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(stream)} references in stream {number} of {len(references)}",
                "each stream holds one reference for every hypothesis, in the same order",
            )
