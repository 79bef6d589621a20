"""Additive attention: how a recurrent decoder chooses where to read in the source (Bahdanau et al. 2015).

    e_ij = v' tanh(W s_i−1 + U h_j)         how well source position j matches the decoder state before target token i
    α_ij = softmax_j(e_ij)                  the alignment: each row sums to one
    c_i  = Σ_j α_ij h_j                     the context from which token i is predicted

U h_j is the same for every target token, so it is computed once.
"""

import torch
from torch import Tensor, nn

Memory = tuple[Tensor | None, Tensor, Tensor | None]  # keys (B, S, A), encoder states (B, S, M), mask (B, S)


class AdditiveAttention(nn.Module):
    """Attend from decoder states s (B, W, D) to a source that `remember` has prepared.

    Returns the context (B, W, M) and the attention pattern (B, W, S).
    """

    def __init__(self, d_query: int, d_memory: int, d_align: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_align, bias=False)
        self.key = nn.Linear(d_memory, d_align)
        self.score = nn.Linear(d_align, 1, bias=False)

    def remember(self, memory: Tensor, summary: Tensor, mask: Tensor | None) -> Memory:
        """Prepare a source: encoder states (B, S, M), their summary (B, M) and a mask (B, S), True at tokens."""
        return self.key(memory), memory, mask

    def forward(self, s: Tensor, keys: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        scores = self.score(torch.tanh(self.query(s)[:, :, None] + keys[:, None]))[..., 0]  # (B, W, S)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
        pattern = torch.softmax(scores, dim=-1)
        return pattern @ memory, pattern


class FixedContext(nn.Module):
    """No attention: every token is predicted from the same summary of the source, c_i = c (Cho et al. 2014)."""

    def remember(self, memory: Tensor, summary: Tensor, mask: Tensor | None) -> Memory:
        return None, summary[:, None], None

    def forward(self, s: Tensor, keys: None, memory: Tensor, mask: None) -> tuple[Tensor, None]:
        return memory.expand(-1, s.size(1), -1), None
