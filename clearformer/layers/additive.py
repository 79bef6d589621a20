"""Additive attention: how a decoder that writes word by word chooses where to read (Bahdanau et al. 2015).

    e_ij = v' tanh(W s_i−1 + U h_j)         how well source position j answers the state that is about to write word i
    α_ij = softmax_j(e_ij)                  the alignment: each row sums to one
    c_i  = Σ_j α_ij h_j                     the context that word i is written from

U h_j is the same for every word that is written, and so computed once.
"""

import torch
from torch import Tensor, nn

Memory = tuple[Tensor | None, Tensor, Tensor | None]  # keys (B, S, A), what is read from (B, S, M), mask (B, S)


class AdditiveAttention(nn.Module):
    """s (B, W, D), and what `remember` kept -> context (B, W, M), pattern (B, W, S)."""

    def __init__(self, d_query: int, d_memory: int, d_align: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_align, bias=False)
        self.key = nn.Linear(d_memory, d_align)
        self.score = nn.Linear(d_align, 1, bias=False)

    def remember(self, memory: Tensor, summary: Tensor, mask: Tensor | None) -> Memory:
        """Of a source that was read: its positions (B, S, M), its summary (B, M), and where it is no padding (B, S)."""
        return self.key(memory), memory, mask

    def forward(self, s: Tensor, keys: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        scores = self.score(torch.tanh(self.query(s)[:, :, None] + keys[:, None]))[..., 0]  # (B, W, S)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
        pattern = torch.softmax(scores, dim=-1)
        return pattern @ memory, pattern


class FixedContext(nn.Module):
    """No attention: every word is written from the same summary of the source, c_i = c (Cho et al. 2014)."""

    def remember(self, memory: Tensor, summary: Tensor, mask: Tensor | None) -> Memory:
        return None, summary[:, None], None

    def forward(self, s: Tensor, keys: None, memory: Tensor, mask: None) -> tuple[Tensor, None]:
        return memory.expand(-1, s.size(1), -1), None
