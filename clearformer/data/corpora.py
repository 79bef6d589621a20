"""[data]: which files a training reads, what is left out of them, and what is held out for validation and test.

One class for each kind of data. Which one a recipe has follows from its objective: pairs for translation.
"""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from clearformer.config import Config
from clearformer.data.sources import Filter, PairSource


class Corpora(Config):
    """What every [data] has: three splits, of which only the first must be there. Each class names its sources."""

    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "test")

    root: Path = Field(Path(), description="the folder that paths start from; where the command runs, if not given")
    held_out: float | None = Field(None, gt=0, lt=1, description="share kept for validation when there is no valid set")
    held_out_test: float = Field(0.0, ge=0, lt=1, description="share kept for the test when there is no test set")

    def source(self, split: str) -> Any:
        """The corpus of a split, its paths completed; None if it has none of its own."""
        found = getattr(self, split)
        if found is None:
            return None
        path = found.path
        return found.changed(path=tuple(self.root / p for p in path) if isinstance(path, tuple) else self.root / path)


class PairCorpora(Corpora):
    """[data] of a translator."""

    train: PairSource
    valid: PairSource | None = None
    test: PairSource | None = None
    filter: Filter = Filter()

    def share(self, n_pairs: int) -> float:
        """How much of n pairs to hold out: 2 %, but at least 500 pairs if that is at most 10 %, and at most 2,000."""
        return self.held_out or min(max(0.02, 500 / n_pairs), 0.1, 2000 / n_pairs)
