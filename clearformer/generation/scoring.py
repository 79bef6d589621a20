"""How likely a model finds a target that is given to it.

log p(y | x) = Σ_t log p(y_t | y_<t, x)             forced decoding: the true words are read, not the model's own
"""

from torch import Tensor, nn

from clearformer.data.batch import IGNORE, Batch
from clearformer.generation.decode import widen


def target_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """log p(y | x) of each pair (B,), natural log, EOS included and padding not counted."""
    logprobs = widen(model(batch)).log_softmax(-1)  # (B, T, V)
    real = batch.labels != IGNORE
    chosen = logprobs.gather(2, batch.labels.clamp(min=0)[:, :, None])[:, :, 0]  # (B, T)
    return (chosen * real).sum(1)
