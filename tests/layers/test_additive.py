from math import exp, tanh

import pytest
import torch

from clearformer.layers.additive import AdditiveAttention, FixedContext

B, W, S, D, M, A = 2, 3, 5, 7, 11, 13


def test_by_hand() -> None:
    """One unit everywhere, two positions: e_j = 3 tanh(2 s + h_j + 0.5), with s = 0.1 and h = 0.2, −0.4."""
    attention = AdditiveAttention(1, 1, 1).double()
    with torch.no_grad():
        for parameter, value in zip(attention.parameters(), (2.0, 1.0, 0.5, 3.0)):
            parameter.fill_(value)
    h = [0.2, -0.4]
    memory = torch.tensor([h], dtype=torch.float64)[:, :, None]
    kept = attention.remember(memory, torch.zeros(1, 1).double(), None)
    context, pattern = attention(torch.full((1, 1, 1), 0.1, dtype=torch.float64), *kept)
    weights = [exp(3 * tanh(2 * 0.1 + x + 0.5)) for x in h]
    alpha = [w / sum(weights) for w in weights]
    assert pattern.flatten().tolist() == pytest.approx(alpha)
    assert context.item() == pytest.approx(sum(a * x for a, x in zip(alpha, h)))


def test_padding_is_not_looked_at_and_branches_look_by_themselves() -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(D, M, A).double()
    s, memory = torch.randn(B, W, D).double(), torch.randn(B, S, M).double()
    mask = torch.arange(S) < torch.tensor([[S], [2]])
    context, pattern = attention(s, *attention.remember(memory, memory[:, 0], mask))
    assert (context.shape, pattern.shape) == ((B, W, M), (B, W, S))
    torch.testing.assert_close(pattern.sum(-1), torch.ones(B, W).double())
    assert not pattern[1, :, 2:].any()
    for b, n in enumerate((S, 2)):
        for w in range(W):
            alone, _ = attention(
                s[b : b + 1, w : w + 1], *attention.remember(memory[b : b + 1, :n], memory[:1, 0], None)
            )
            torch.testing.assert_close(context[b : b + 1, w : w + 1], alone)


def test_without_attention_every_branch_reads_the_summary() -> None:
    summary = torch.randn(B, M)
    fixed = FixedContext()
    context, pattern = fixed(torch.randn(B, W, D), *fixed.remember(torch.randn(B, S, M), summary, None))
    assert pattern is None
    assert context.equal(summary[:, None].expand(B, W, M))
