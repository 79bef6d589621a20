"""Classification: say what was said of a text. And regression: come close to the number that was.

    classes    loss = − Σ_i w(y_i) log p(y_i | x_i)         over texts, or over positions that are asked for
    values     loss = Σ_i (ŷ_i − y_i)²                      where the model has one score, likewise

w weighs the classes, all 1 if not given; the count stays the number of examples, so that weights of mean 1 over the
data keep the loss comparable.
"""

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat
from torch import nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.errors import ConfigError
from clearformer.objectives.cross_entropy import Loss


class ClassificationConfig(Config):
    """[objective]"""

    kind: str = "classification"
    weights: tuple[PositiveFloat, ...] | None = Field(
        None, description="one for each class, in the order of classes.json"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="ε, the share given to all classes alike")


class Classification:
    """A batch with labels (B, T) is judged position by position, another text by text by its classes (B,)."""

    Config = ClassificationConfig
    task = "classification"

    def __init__(self, config: ClassificationConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        scores = model.head(model.hidden(batch))  # type: ignore[operator]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # (B, C) or (B, T, C)
        answers = batch.classes if batch.labels is None else batch.labels
        assert answers is not None, "a batch to learn from says what is right"
        if scores.size(-1) == 1:
            far = (scores[..., 0] - answers).flatten()
            return Loss((far if batch.labels is None else far[batch.asked]).square().sum(), batch.n_tokens)
        n, weights = scores.size(-1), self.config.weights
        if weights is not None and len(weights) != n:
            raise ConfigError(f"[objective] has {len(weights)} weights for {n} classes", "give one for each class")
        total = F.cross_entropy(
            scores.flatten(0, -2),
            answers.flatten(),
            None if weights is None else scores.new_tensor(weights),
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=self.config.label_smoothing,
        )
        return Loss(total, batch.n_tokens)


class TokenClassificationConfig(ClassificationConfig):
    """[objective]"""

    kind: str = "token-classification"


class TokenClassification(Classification):
    """The same loss; what differs is the data, whose batches have labels."""

    Config = TokenClassificationConfig
    task = "token-classification"
