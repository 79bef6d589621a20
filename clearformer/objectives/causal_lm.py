"""Language modelling: predict each word from those before it.

    loss = − Σ_t log p(x_t+1 | x_1 … x_t),    perplexity = exp(loss / n)

The exponential of the mean loss is the number of words among which the model is left guessing.

A model that carries its state along reads rows that go on from batch to batch (data/streams.py). The objective keeps
the state in between, cut off from its gradients: one objective, one reading, so that a validation in the middle of a
training, which has an objective of its own, disturbs nothing.
"""

from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import TextBatch
from clearformer.errors import CheckpointError
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
        self.carried: dict[int, Tensor] = {}
        """The state (…, B, D) after the last batch of each block of rows."""

    def __call__(self, model: nn.Module, batch: TextBatch) -> Loss:
        if batch.goes_on is None:
            hidden = model.hidden(batch)  # type: ignore[operator]
        else:
            state = self.carried.get(batch.block)
            if state is not None and state.size(-2) != len(batch):
                raise CheckpointError(
                    f"the state that was carried along is of {state.size(-2)} rows, and {len(batch)} are to go on",
                    "resume with the same train.tokens, data.length and number of processes",
                )
            hidden, state = model.read(batch, state)  # type: ignore[operator]
            self.carried[batch.block] = state.detach()
        total = smoothed_cross_entropy(model.head(hidden), batch.labels, self.config.label_smoothing)  # type: ignore[operator]
        return Loss(total, batch.n_tokens)
