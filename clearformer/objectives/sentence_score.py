"""Sentence scoring: distinguish original sentences from sentences with a word replaced or removed.

    loss = − Σ_b log p(c_b | x_b),    p = softmax(W pooled(x) + b), c = 0 original, 1 changed

The head on the pooled vector is BERT's next-sentence head, which also has two classes, or the head of a classifier on
any network: ŷ = softmax(V h + b) of the last state of an RNN is the scorer of the course notes. The trained model ranks
sentences by log p(0 | x), the log-probability that they are unchanged.
"""

from typing import Any

from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.objectives.cross_entropy import Loss
from clearformer.objectives.masked_lm import cross_entropy


class SentenceScoreConfig(Config):
    """The [objective] table of a recipe: settings of sentence scoring."""

    kind: str = "sentence-score"
    deleted: float = Field(
        0.5, ge=0, le=1, description="probability that a change removes a word instead of replacing it"
    )


class SentenceScore:
    Config = SentenceScoreConfig
    task = "sentence-score"

    def __init__(self, config: SentenceScoreConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        assert batch.classes is not None
        return Loss(cross_entropy(sentence_logits(model, batch), batch.classes, "sum"), batch.n_tokens)


def sentence_logits(model: Any, batch: EncoderBatch) -> Tensor:
    """Return the logits (B, 2) of "original" and "changed", of a BERT or of a classifier."""
    hidden, is_bert = model.hidden(batch), hasattr(model, "next_sentence")
    logits: Tensor = model.next_sentence(model.pooled(hidden)) if is_bert else model.head(hidden)
    return logits
