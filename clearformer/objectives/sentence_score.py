"""Sentence scoring: distinguish original sentences from sentences with a word replaced or removed.

    loss = − Σ_b log p(c_b | x_b),    p = softmax(W pooled(x) + b), c = 0 original, 1 changed

The head on the pooled vector is BERT's next-sentence head, which also has two classes. The trained model ranks
sentences by log p(0 | x), the log-probability that they are unchanged.
"""

from pydantic import Field
from torch import nn

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
        logits = model.next_sentence(model.pooled(model.hidden(batch)))  # type: ignore[operator]  # (B, 2)
        return Loss(cross_entropy(logits, batch.classes, "sum"), batch.n_tokens)
