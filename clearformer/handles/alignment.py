"""Attention weights between the tokens of one text, or between the tokens of a text and its translation."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearformer.errors import ConfigError
from clearformer.layers.backends import recording


@dataclass(frozen=True)
class Alignment:
    """The attention weights between source and target tokens. pattern[l, h, t, s]: how much token t attends to token s.

    A row sums to 1, or to less if the model has a learned prefix, which receives the rest.
    """

    source: list[str]
    target: list[str]
    pattern: Tensor

    def links(self) -> list[tuple[int, int]]:
        """Return (source, target) index pairs: for each target token but EOS, the source token it attends to most."""
        weights = self.pattern.mean((0, 1))[:-1, :-1]  # (T − 1, S − 1)
        return [] if weights.numel() == 0 else [(int(s), t) for t, s in enumerate(weights.argmax(1))]


@torch.no_grad()
def record_self_attention(network: nn.Module, forward: Callable[[], object], tokens: list[str], name: str) -> Alignment:
    """Record the self-attention of every layer of `network` while forward() processes `tokens`."""
    with recording(network) as recorders:
        if not recorders:
            raise ConfigError(f"{name} has no attention layers to show", "choose a Transformer, such as a GPT or BERT")
        forward()
    patterns = [recorder.record[0][..., -len(tokens) :] for recorder in recorders]  # without a learned prefix
    return Alignment(tokens, tokens, torch.cat(patterns))  # (L, H, T, T)
