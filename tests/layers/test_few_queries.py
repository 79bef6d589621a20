"""Attention of few queries on the CPU: its equation, and when it is used."""

import pytest
import torch
from torch import Tensor

from clearformer.layers import backends
from clearformer.layers.attention import attend
from clearformer.layers.backends import FusedCore, additive
from clearformer.layers.cache import KVCache
from clearformer.layers.few_queries import MAX_KEYS, MAX_QUERIES, attend_few, has_few_queries

B, G, T, S, K, N = 13, 5, 3, 7, 11, 2


def inputs(n_heads: int = G, T: int = T, S: int = S) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (B, n_heads, T, K), (B, G, S, K), (B, G, S, N)
    q, k, v = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return q, k, v


def visible(shape: tuple[int, ...]) -> Tensor:
    """Random visibility, with a query that sees no key."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[0, 0, 0] = False
    return mask


@pytest.mark.parametrize("n_heads", [G, 3 * G], ids=["heads", "groups"])
@pytest.mark.parametrize("shape", [None, (B, 1, T, S), (B, 1, 1, S), (1, 1, T, S)], ids=str)
@pytest.mark.parametrize("as_numbers", [False, True], ids=["bool", "added"])
def test_the_equation(n_heads: int, shape: tuple[int, ...] | None, as_numbers: bool) -> None:
    q, k, v = inputs(n_heads)
    mask = None if shape is None else visible(shape)
    lowered = mask if mask is None or not as_numbers else additive(mask, q.dtype)
    z = attend_few(q, k, v, lowered, 0.3)
    assert torch.allclose(z, attend(q, k, v, mask, scale=0.3), rtol=0, atol=1e-13)
    assert mask is None or not z[0, 0, 0].any()


def test_a_bias_and_a_mask() -> None:
    q, k, v = inputs()
    bias = torch.randn(1, G, T, S, dtype=q.dtype, generator=torch.Generator().manual_seed(2))
    mask = visible((B, 1, T, S))
    assert has_few_queries(q, k, v)
    expected = attend(q, k, v, mask, bias)
    assert torch.allclose(FusedCore()(q, k, v, mask, bias, None, 0.0), expected, rtol=0, atol=1e-13)


def test_views_of_a_cache_are_not_copied_and_inputs_are_not_changed() -> None:
    cache, (q, k, v) = KVCache(), inputs()
    views = cache.append(k, v)
    assert views[0].stride() != k.stride()
    assert views[0].flatten(0, 1).data_ptr() == cache.k.data_ptr()
    assert has_few_queries(q, *views)
    before = q.clone(), k.clone(), v.clone()
    assert torch.allclose(attend_few(q, *views, None, 0.3), attend(q, k, v, scale=0.3), rtol=0, atol=1e-13)
    assert all(torch.equal(x, y) for x, y in zip((q, cache.k[:, :, :S], cache.v[:, :, :S]), before))


def test_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    def watched(q: Tensor, *others: object) -> Tensor:
        calls.append(tuple(q.shape))
        return attend_few(q, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(backends, "attend_few", watched)

    def is_used(*tensors: Tensor, dropout: float = 0.0) -> bool:
        calls.clear()
        FusedCore()(*tensors, None, None, None, dropout)
        return bool(calls)

    assert is_used(*inputs())
    assert not is_used(*inputs(), dropout=0.5)
    assert not is_used(*inputs(T=1))
    assert is_used(*inputs(T=MAX_QUERIES, S=MAX_KEYS))
    assert not is_used(*inputs(T=MAX_QUERIES + 1))
    assert not is_used(*inputs(S=MAX_KEYS + 1))
    q, k, v = inputs()
    assert not is_used(q[:2], k[:2], v[:2])
    assert not is_used(q.requires_grad_(), k, v)
    with torch.no_grad():
        assert is_used(q, k, v)
