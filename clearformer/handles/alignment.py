"""Attention weights over the tokens of a text, or of a text and its translation."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearformer.errors import ConfigError
from clearformer.layers.backends import recording


@dataclass(frozen=True)
class Alignment:
    """pattern (L, H, T, S): how much target token t attends to source token s.

    A row sums to 1. With a learned prefix it sums to less: the prefix receives the rest.
    """

    source: list[str]
    target: list[str]
    pattern: Tensor

    def links(self) -> list[tuple[int, int]]:
        """(source token, target token) for each target token and the source token it attends to most, without EOS."""
        weights = self.pattern.mean((0, 1))[:-1, :-1]  # (T − 1, S − 1)
        return [] if weights.numel() == 0 else [(int(s), t) for t, s in enumerate(weights.argmax(1))]


@torch.no_grad()
def record_self_attention(network: nn.Module, forward: Callable[[], object], tokens: list[str], name: str) -> Alignment:
    """The self-attention of every layer of `network` while forward() processes `tokens`."""
    with recording(network) as recorders:
        if not recorders:
            raise ConfigError(f"{name} has no attention layers to show", "choose a Transformer, such as a GPT or BERT")
        forward()
    patterns = [recorder.record[0][..., -len(tokens) :] for recorder in recorders]  # without a learned prefix
    return Alignment(tokens, tokens, torch.cat(patterns))  # (L, H, T, T)
