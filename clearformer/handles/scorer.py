"""Handles that say how likely a text is: the base of language models, masked models and sentence scorers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp

from clearformer.errors import ConfigError
from clearformer.handles.handle import Handle


@dataclass(frozen=True)
class Score:
    """The log-probability of a text, natural log. `tokens` counts the predicted ones."""

    text: str
    logprob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return exp(-self.logprob / max(1, self.tokens))


class Scorer(Handle):
    """A model that judges texts by themselves, not as translations."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """The score of each text, in the order given."""
        raise NotImplementedError

    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]:
        """The scores of the texts, the likeliest first."""
        if source is not None:
            raise ConfigError(f"{self.name} is {self.kind}, not a translator", "leave --source out")
        return likeliest_first(self.score(texts, closed))


def likeliest_first(scores: Iterable[Score]) -> list[Score]:
    return sorted(scores, key=lambda score: -score.logprob)
