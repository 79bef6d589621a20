from math import exp, sqrt

import pytest
import torch
from torch import Tensor

from clearformer.layers.attention import MultiHeadAttention, attend, contextualise, pattern
from clearformer.layers.cache import KVCache
from clearformer.layers.masks import Causal

B, T, S, H, K = 2, 3, 5, 7, 11

# "The cat sleeps", the notes' example of d = 4 features shared by h = 2 heads.
SENTENCE = torch.tensor([[1, 0.5, 0, 0.1], [0.3, 1.2, 0.7, 0], [0.8, 0, 0.9, 0.4]])


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def reading_features(layer: MultiHeadAttention) -> MultiHeadAttention:
    """The layer with Wq = Wk = Wv = W_out = identity: head i reads the i-th K features, as they are."""
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.eye(layer.qkv.in_features).repeat(3, 1))
        layer.out.weight.copy_(torch.eye(layer.out.in_features))
    return layer


# The equation, by hand


def test_a_projection_of_the_notes() -> None:
    """Apple (tech 2, fruit 2), orange (fruit 3) and watch (tech 1, time 3), taken from three features to two.

    The notes call the middle row of their table "isWatch"; the drawing beside it has the axis right: time.
    """
    layer = MultiHeadAttention(d_model=3, n_heads=1, d_head=2, bias=False)
    matrix = torch.tensor([[4.0, 3], [2, 1], [0, 1]])
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([0 * matrix.T, matrix.T, 10 * matrix.T]))  # rows of Wq, Wk, Wv
    words = torch.tensor([[[2.0, 0, 2], [0, 0, 3], [1, 3, 0]]])
    k, v = layer.remember(words)
    assert k.tolist() == [[[[8, 8], [0, 3], [10, 6]]]]
    assert v.tolist() == [[[[80, 80], [0, 30], [100, 60]]]]


def test_a_mixture_of_word_vectors() -> None:
    """apple, in "love apple phones", is 0.1 · love + 0.5 · apple + 0.4 · phones."""
    love, apple, phones = [1.0, 0, 3], [2.0, 7, 0], [0.0, 5, 11]
    looks = torch.tensor([0.1, 0.5, 0.4])
    z = attend(
        torch.zeros(1, 1, 1, K), torch.ones(1, 1, 3, K), torch.tensor([[[love, apple, phones]]]), bias=looks.log()
    )
    torch.testing.assert_close(z[0, 0, 0], torch.tensor([1.1, 5.5, 4.7]))


def test_attention_before_it_has_parameters() -> None:
    near, far = exp(1) / (exp(1) + 1), 1 / (exp(1) + 1)
    mixed = contextualise(torch.eye(2))
    torch.testing.assert_close(mixed, torch.tensor([[near, far], [far, near]]))
    words = random(B, 1, T, K)
    torch.testing.assert_close(contextualise(words), attend(words, words, words, scale=1.0))


def test_two_heads_read_the_cat_sleeps() -> None:
    """Head 1 sees (1, ½), (0.3, 1.2), (0.8, 0), so "The" scores the three words 1.25, 0.9 and 0.8, over √(d/h) = √2:
    exp(0.8839, 0.6364, 0.5657) = (2.4203, 1.8897, 1.7607), whose sum is 6.0708. The notes leave Q, K, V open; here they
    hand each head its features unchanged.
    """
    layer = reading_features(MultiHeadAttention(d_model=4, n_heads=2, bias=False))
    looks = pattern(SENTENCE[None, None, :, :2], SENTENCE[None, None, :, :2], None, None, 1 / sqrt(2))
    torch.testing.assert_close(looks[0, 0, 0], torch.tensor([0.3987, 0.3113, 0.2900]), atol=5e-5, rtol=0)
    z = layer(SENTENCE[None])[0]
    assert z.shape == (3, 4)  # each head gives 3 × 2
    torch.testing.assert_close(z[0, :2], torch.tensor([0.7241, 0.5729]), atol=5e-5, rtol=0)
    torch.testing.assert_close(z, by_hand(SENTENCE, n_heads=2))


def by_hand(x: Tensor, n_heads: int) -> Tensor:
    """Attention with identity projections, in Python numbers and loops."""
    rows, width = x.tolist(), x.size(1) // n_heads
    result = [[0.0] * x.size(1) for _ in rows]
    for head in range(0, x.size(1), width):
        features = range(head, head + width)
        for t, query in enumerate(rows):
            weights = [exp(sum(query[i] * key[i] for i in features) / sqrt(width)) for key in rows]
            for i in features:
                result[t][i] = sum(w * value[i] for w, value in zip(weights, rows)) / sum(weights)
    return torch.tensor(result)


# Why √K


@pytest.mark.parametrize("width", [3, 67, 521])
def test_scores_spread_with_the_width_unless_scaled(width: int) -> None:
    """Var(q·k) = K for independent unit-variance features; divided by √K it is 1 whatever the width.

    The notes once write this growth as "Q² var(X)": it is scaling by a that multiplies a variance by a², which is how
    1/√K undoes K.
    """
    q, k = random(2, 10007, width)
    scores = (q * k).sum(1)
    assert scores.var().item() == pytest.approx(width, rel=0.05)
    assert (scores / sqrt(width)).var().item() == pytest.approx(1, rel=0.05)


def test_unscaled_scores_leave_the_softmax_no_gradient() -> None:
    def gradient(scale: float) -> float:
        q, k = random(1, 1, 31, 1021).requires_grad_(), random(1, 1, 37, 1021)
        chosen = pattern(q, k, None, None, scale)[..., 0]
        (slope,) = torch.autograd.grad(chosen.sum(), q)
        return slope.abs().median().item() / scale  # per unit of score, so that only the softmax is compared

    assert gradient(1.0) < 1e-6 * gradient(1 / sqrt(1021))


# Shapes, gradients, numbers at the edge


def test_rows_of_the_pattern_sum_to_one_where_a_query_may_look() -> None:
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(0)) < 0.5
    mask[0, 0, 1], mask[1, 0, 2, 3] = False, True
    looks = pattern(random(B, H, T, K), random(B, H, S, K), mask, None, 0.3)
    assert looks.shape == (B, H, T, S)
    torch.testing.assert_close(looks.sum(-1), mask.any(-1).expand(B, H, T).double())
    assert not looks.masked_select(~mask).any()


def test_gradients_of_the_equation() -> None:
    q, k, v = (random(1, h, n, w).requires_grad_() for h, n, w in ((2, 3, 2), (1, 5, 2), (1, 5, 3)))
    bias = random(2, 3, 5).requires_grad_()
    mask = torch.ones(1, 1, 3, 5, dtype=torch.bool).tril()
    mask[..., 1, :] = False
    assert torch.autograd.gradcheck(lambda q, k, v, bias: attend(q, k, v, mask, bias), (q, k, v, bias))


def test_scores_of_half_precision_do_not_overflow() -> None:
    """37² · 128 is 175,232, past float16's largest number; over √128 it is 15,488 and the softmax is well defined."""
    q = torch.full((1, 1, 1, 128), 37.0, dtype=torch.float16)
    z = attend(q, torch.cat([q, q], dim=2), torch.tensor([[[[1.0], [3]]]], dtype=torch.float16))
    assert z.item() == 2
    assert z.dtype == torch.float16


def test_dropout_silences_some_looks_and_raises_the_others() -> None:
    torch.manual_seed(3)
    q, k, v = random(1, H, T, K), random(1, H, S, K), torch.eye(S).double().expand(1, H, S, S)
    looks, whole = attend(q, k, v, dropout=0.25), attend(q, k, v)
    kept = looks != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(looks[kept], whole[kept] / 0.75)


# The layer


def layer_and_input() -> tuple[MultiHeadAttention, Tensor]:
    """Six query heads on three key heads, K = 5, N = 7."""
    torch.manual_seed(0)
    return MultiHeadAttention(13, 6, n_kv_heads=3, d_head=5, d_value=7).double(), random(B, T, 13)


def test_the_packed_matrix_is_three() -> None:
    layer, x = layer_and_input()
    (wq, wk, wv), (bq, bk, bv) = (p.split([6 * 5, 3 * 5, 3 * 7]) for p in (layer.qkv.weight, layer.qkv.bias))
    heads = []
    for h in range(6):
        g = h // 2  # two query heads in a row share a key head
        q = x @ wq[5 * h : 5 * h + 5].T + bq[5 * h : 5 * h + 5]
        k = x @ wk[5 * g : 5 * g + 5].T + bk[5 * g : 5 * g + 5]
        v = x @ wv[7 * g : 7 * g + 7].T + bv[7 * g : 7 * g + 7]
        heads.append(torch.softmax(q @ k.mT / sqrt(5), dim=-1) @ v)
    torch.testing.assert_close(layer(x), layer.out(torch.cat(heads, dim=-1)))


def test_attending_to_itself_as_a_memory_changes_nothing() -> None:
    layer, x = layer_and_input()
    torch.testing.assert_close(layer(x, memory=x), layer(x))


def test_a_remembered_memory_is_the_memory() -> None:
    layer, x = layer_and_input()
    memory = random(B, S, 13)
    k, v = layer.remember(memory)
    assert k.shape == (B, 3, S, 5)
    assert v.shape == (B, 3, S, 7)
    assert layer(x, memory=(k, v)).equal(layer(x, memory=memory))


def test_cached_steps_equal_one_pass() -> None:
    layer, x = layer_and_input()
    whole = layer(x, mask=layer.core.lower(Causal(), T, T, x.device))
    cache = KVCache()
    steps = [layer(x[:, t : t + 1], cache=cache) for t in range(T)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_dropout_is_for_training_only() -> None:
    layer = MultiHeadAttention(14, 7, dropout=0.5)
    x = random(B, T, 14, dtype=torch.float32)
    assert not layer(x).equal(layer(x))
    assert layer.eval()(x).equal(layer(x))


def test_every_parameter_learns() -> None:
    layer, x = layer_and_input()
    layer(x).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
    assert set(gradients) == {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}
    assert all(gradient is not None and gradient.any() for gradient in gradients.values())
    # A constant added to every key moves all scores of a query alike, which a softmax cannot see.
    assert layer.qkv.bias.grad is not None
    torch.testing.assert_close(layer.qkv.bias.grad[30:45], torch.zeros(15).double(), atol=1e-12, rtol=0)
