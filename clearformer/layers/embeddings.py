"""Layers from tokens to vectors, and from vectors back to logits over the vocabulary.

    x_t = E[token_t] · √D                    Vaswani et al. 2017, section 3.4
    x_t = e_token, the unit vector           one-hot, for a layer that learns its own input matrix
    logits = h E' (+ b)                      the same E when the weights are tied (Press & Wolf 2017)

The factor √D brings an embedding with variance 1/D to the scale of the position encoding that is added to it.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TokenEmbedding(nn.Embedding):
    """Embed tokens (B, T) as vectors (B, T, D), multiplied by √D. If `scale` is False, the scale is learnt instead."""

    def __init__(self, vocab_size: int, d_model: int, scale: bool = True) -> None:
        super().__init__(vocab_size, d_model)
        self.scale = sqrt(d_model) if scale else 1.0
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * self.scale


class OneHot(nn.Module):
    """Turn tokens (B, T) into one-hot vectors (B, T, V). A matrix applied to them acts as an embedding."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, tokens: Tensor) -> Tensor:
        return F.one_hot(tokens, self.vocab_size).to(torch.get_default_dtype())


class Unembedding(nn.Linear):
    """A layer from hidden states (B, T, D) to logits (B, T, V). It can use the weight of `tied`, an embedding."""

    def __init__(self, d_model: int, vocab_size: int, bias: bool = False, tied: nn.Embedding | None = None) -> None:
        super().__init__(d_model, vocab_size, bias)
        if tied is not None:
            self.weight = tied.weight
        else:
            nn.init.normal_(self.weight, std=d_model**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        if hidden.is_cuda and self.out_features % 8 and (self.training or has_room(self.weight)):
            return aligned_linear(hidden, self.weight, self.bias)
        return super().forward(hidden)

    def align(self) -> None:
        """Prepare for inference in 16 bits on CUDA: give the weight the room that `aligned_linear` reads."""
        if self.out_features % 8 and self.weight.element_size() == 2:
            make_room(self.weight)


def aligned_linear(x: Tensor, weight: Tensor, bias: Tensor | None, multiple: int = 64) -> Tensor:
    """Compute F.linear as a slice of a product with a multiple of 64 outputs.

    Tensor cores read rows in units of 16 bytes. With 50,257 tokens, the three products of the head of GPT-2 in training
    would take a slower kernel than with 50,304, and its product in a decoding step of 64 texts five times as long.
    """
    n = -len(weight) % multiple
    if not torch.is_grad_enabled() and has_room(weight, multiple):  # in this order: a compiler cannot ask for storage
        padded = weight.as_strided((len(weight) + n, weight.size(1)), weight.stride())
    else:
        padded = F.pad(weight, (0, 0, 0, n))
    return F.linear(x, padded, None if bias is None else F.pad(bias, (0, n)))[..., : len(weight)]


@torch.no_grad()
def make_room(weight: Tensor, multiple: int = 64) -> None:
    """Move a weight (V, D) to memory with room for a multiple of 64 rows, in which `aligned_linear` needs no copy."""
    if not has_room(weight, multiple):
        with torch.inference_mode(False):  # a tensor of inference mode could never be trained
            room = torch.zeros(
                len(weight) + -len(weight) % multiple, weight.size(1), dtype=weight.dtype, device=weight.device
            )
            room[: len(weight)] = weight
            weight.data = room[: len(weight)]


def has_room(weight: Tensor, multiple: int = 64) -> bool:
    """Whether the memory of a weight (V, D) continues after its last row up to a multiple of 64 rows."""
    n_elements = weight.storage_offset() + (len(weight) + -len(weight) % multiple) * weight.size(1)
    return weight.is_contiguous() and n_elements * weight.element_size() <= weight.untyped_storage().nbytes()
