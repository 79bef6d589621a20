"""The log-probability that a model gives to a known target.

log p(y | x) = Σ_t log p(y_t | y_<t, x)            forced decoding: y_<t are the target's tokens, not the model's output
"""

from torch import Tensor, nn

from clearformer.data.batch import IGNORE, Batch
from clearformer.generation.decode import widen


def target_logprobs(model: nn.Module, batch: Batch) -> Tensor:
    """Return log p(y | x) of each pair, (B,), natural logarithm, including EOS and excluding padding."""
    logprobs = widen(model(batch)).log_softmax(-1)  # (B, T, V)
    real = batch.labels != IGNORE
    chosen = logprobs.gather(2, batch.labels.clamp(min=0)[:, :, None])[:, :, 0]  # (B, T)
    return (chosen * real).sum(1)
