"""Language modelling: predict each word from those before it.

    loss = − Σ_t log p(x_t+1 | x_1 … x_t),    perplexity = exp(loss / n)

The exponential of the mean loss is the number of words among which the model is left guessing.
"""

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.data.batch import TextBatch
from clearformer.objectives.cross_entropy import Loss, smoothed_cross_entropy


class CausalLMConfig(Config):
    """[objective]"""

    kind: str = "causal-lm"
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="ε, the share given to all words alike")


class CausalLM:
    Config = CausalLMConfig
    task = "causal-lm"

    def __init__(self, config: CausalLMConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: TextBatch) -> Loss:
        hidden = model.hidden(batch)  # type: ignore[operator]
        total = smoothed_cross_entropy(model.head(hidden), batch.labels, self.config.label_smoothing)  # type: ignore[operator]
        return Loss(total, batch.n_tokens)
