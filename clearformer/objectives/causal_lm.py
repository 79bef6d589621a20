"""Language modelling: predict each token from the tokens before it.

    loss = − Σ_t log p(x_t+1 | x_1 … x_t),    perplexity = exp(loss / n)

A perplexity of k means that the model is as uncertain as if it chose between k equally probable tokens.

A recurrent model carries its state from batch to batch: each row continues the same row of the batch before
(data/streams.py). The objective keeps this state, detached, so that gradients stop at the start of a batch. Validation
uses another objective object, and therefore does not disturb the state of the training run.
"""

from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import TextBatch
from clearformer.errors import CheckpointError
from clearformer.objectives.cross_entropy import Loss, token_loss
from clearformer.wording import count


class CausalLMConfig(Config):
    """The [objective] table of a recipe: settings of language modelling."""

    kind: str = "causal-lm"
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing ε: probability spread evenly over the vocabulary"
    )


class CausalLM:
    Config = CausalLMConfig
    task = "causal-lm"
    is_recordable = True  # as a CUDA graph
    chunk: int | None = None  # positions per chunk of head and loss; None computes all logits at once

    def __init__(self, config: CausalLMConfig) -> None:
        self.config = config
        self.carried: dict[int, Tensor] = {}
        """The state (…, B, D) of each block of rows after its last batch."""

    def __call__(self, model: nn.Module, batch: TextBatch) -> Loss:
        if batch.continues is None:
            hidden = model.hidden(batch)  # type: ignore[operator]
        else:
            state = self.carried.get(batch.block)
            if state is not None and state.size(-2) != len(batch):
                raise CheckpointError(
                    f"the recurrent state has {count(state.size(-2), 'row')}, but the batch has {len(batch):,}",
                    "resume with the same train.tokens, data.length and number of processes",
                )
            # A copy is read, and the new state is written over the old one: a CUDA graph finds both where they were.
            hidden, new = model.read(batch, None if state is None else state.clone())  # type: ignore[operator]
            if state is None:
                self.carried[batch.block] = new.detach().clone()
            else:
                state.copy_(new.detach())
        epsilon = self.config.label_smoothing
        total = token_loss(model.head, hidden, batch.labels, epsilon, self.chunk)  # type: ignore[arg-type]
        return Loss(total, batch.n_tokens)
