"""The base class of handles that score texts: language models, masked models and sentence scorers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearformer.errors import ConfigError
from clearformer.handles.handle import Handle
from clearformer.handles.inputs import one_or_many
from clearformer.metric import perplexity


@dataclass(frozen=True)
class Score:
    """The log-probability of a text (natural logarithm): the sum over `tokens` predicted tokens."""

    text: str
    logprob: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return perplexity(-self.logprob / max(1, self.tokens))


class Scorer(Handle):
    """A model that scores texts without a source sentence, unlike a translator."""

    main = "score"

    @one_or_many
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """Return the score of each text, in the order of `texts`."""
        raise NotImplementedError

    @one_or_many
    def rank(self, texts: Sequence[str], source: str | None = None, closed: bool | None = None) -> list[Score]:
        """Return the scores of the texts, the most probable text first."""
        return most_probable_first(self.score_each(texts, source, closed))

    def score_each(
        self, texts: Sequence[str], source: str | Sequence[str] | None = None, closed: bool | None = None
    ) -> list[Score]:
        """Return the score of each text, in the order of `texts`; only a translator has a source."""
        if source is not None:
            raise ConfigError(
                f"{self.name} is {self.kind}, not a translator", "omit --source; of a file, choose one column"
            )
        return self.score(texts, closed)


def most_probable_first(scores: Iterable[Score]) -> list[Score]:
    return sorted(scores, key=lambda score: -score.logprob)
