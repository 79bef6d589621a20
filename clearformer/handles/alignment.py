"""Attention weights between the tokens of a text and of its translation."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Alignment:
    """The attention weights between source and target tokens. pattern[l, h, t, s]: how much token t attends to token s.

    A row sums to 1, or to less if the model has a learned prefix, which receives the rest.
    """

    source: list[str]
    target: list[str]
    pattern: Tensor

    def links(self) -> list[tuple[int, int]]:
        """Return (source, target) index pairs: for each target token but EOS, the source token it attends to most."""
        weights = self.pattern.mean((0, 1))[:-1, :-1]  # (T − 1, S − 1)
        return [] if weights.numel() == 0 else [(int(s), t) for t, s in enumerate(weights.argmax(1))]
