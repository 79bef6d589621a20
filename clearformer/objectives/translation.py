"""Translation: predict each target token from the source and the target tokens before it.

loss = − Σ_t log p(y_t | y_<t, x),    with label smoothing ε (cross_entropy.py)
"""

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.data.batch import Batch
from clearformer.objectives.cross_entropy import Loss, token_loss


class TranslationConfig(Config):
    """The [objective] table of a recipe: settings of translation."""

    kind: str = "translation"
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="label smoothing ε: probability spread evenly over the vocabulary"
    )


class Translation:
    Config = TranslationConfig
    task = "translation"
    is_recordable = True  # as a CUDA graph
    chunk: int | None = None  # positions per chunk of head and loss; None computes all logits at once

    def __init__(self, config: TranslationConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        hidden = model.hidden(batch)  # type: ignore[operator]
        epsilon = self.config.label_smoothing
        total = token_loss(model.head, hidden, batch.labels, epsilon, self.chunk)  # type: ignore[arg-type]
        return Loss(total, batch.n_tokens)
