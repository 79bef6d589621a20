"""Telling sentences as they were written from ones with a word replaced or left out.

    loss = − Σ_b log p(c_b | x_b),    p = softmax(W pooled(x) + b), c = 0 as it was, 1 changed

The head on the pooled vector is the one that BERT keeps for the next sentence, which likewise has two answers. What
has learnt this ranks sentences by log p(0 | x): how sure it is that nothing is wrong with them.
"""

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.objectives.cross_entropy import Loss
from clearformer.objectives.masked_lm import cross_entropy


class SentenceScoreConfig(Config):
    """[objective]"""

    kind: str = "sentence-score"
    deleted: float = Field(0.5, ge=0, le=1, description="of the changes, the share that leaves a word out")


class SentenceScore:
    Config = SentenceScoreConfig
    task = "sentence-score"

    def __init__(self, config: SentenceScoreConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        assert batch.classes is not None
        scores = model.next_sentence(model.pooled(model.hidden(batch)))  # type: ignore[operator]  # (B, 2)
        return Loss(cross_entropy(scores, batch.classes, "sum"), batch.n_tokens)
