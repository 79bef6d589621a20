"""The result type of the text metrics, and a check that every hypothesis has its references."""

from collections.abc import Sequence
from typing import NamedTuple

from clearformer.errors import DataError
from clearformer.wording import count


class MetricValue(NamedTuple):
    """The value of a metric. Values are comparable only if their signatures, which record all settings, are equal."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def check_streams(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse empty input, and lists of references whose length differs from the number of hypotheses."""
    if not hypotheses or not references:
        raise DataError(
            f"cannot compute a metric from {count(len(hypotheses), 'hypothesis', 'hypotheses')} and "
            f"{count(len(references), 'list of references', 'lists of references')}",
            "give at least one hypothesis and one list of references",
        )
    for number, lines in enumerate(references, start=1):
        if isinstance(lines, str):
            raise DataError(
                f"list {number} of {len(references)} in `references` is a string, not a list of lines",
                "`references` is a list of lists: write [lines], not lines",
            )
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{count(len(hypotheses), 'hypothesis', 'hypotheses')} but {count(len(lines), 'reference')} "
                f"in list {number} of {len(references)}",
                "each list needs one reference for every hypothesis, in the same order",
            )
