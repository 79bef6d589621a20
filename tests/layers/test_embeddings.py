from math import sqrt

import pytest
import torch
import torch.nn.functional as F

from clearformer.layers.embeddings import OneHot, TokenEmbedding, Unembedding, aligned_linear, has_room, make_room

V, D = 1009, 64


def test_a_token_is_its_row_times_the_root_of_the_width() -> None:
    embedding = TokenEmbedding(7, 4)
    tokens = torch.tensor([[3, 0], [6, 3]])
    assert embedding(tokens).equal(embedding.weight[tokens] * 2)
    unscaled = TokenEmbedding(7, 4, scale=False)
    assert unscaled(tokens).equal(unscaled.weight[tokens])


def test_the_notes_bad_in_one_hot_vectors() -> None:
    """b, a, d of 26 letters; a matrix times such a vector is one of its columns."""
    vectors = OneHot(26)(torch.tensor([[1, 0, 3]]))
    assert vectors.shape == (1, 3, 26)
    assert vectors.nonzero()[:, 1:].tolist() == [[0, 1], [1, 0], [2, 3]]
    assert vectors.sum().item() == 3
    W = torch.randn(5, 26)
    assert (vectors @ W.T)[0].equal(W[:, [1, 0, 3]].T)


def test_an_embedding_is_as_loud_as_a_position() -> None:
    """Features of unit variance, whatever the width; a sinusoid's mean square is 1/2."""
    torch.manual_seed(0)
    assert TokenEmbedding(V, D)(torch.arange(V)).std().item() == pytest.approx(1, rel=0.02)


def test_logits_of_a_tied_head_are_products_with_the_embeddings() -> None:
    embedding = TokenEmbedding(V, D).double()
    head = Unembedding(D, V, tied=embedding)
    assert head.weight is embedding.weight
    hidden = torch.randn(2, 3, D).double()
    torch.testing.assert_close(head(hidden), torch.einsum("btd,vd->btv", hidden, embedding.weight))


def test_tied_weights_learn_from_both_ends() -> None:
    embedding = TokenEmbedding(5, 3)
    head = Unembedding(3, 5, tied=embedding)
    head(embedding(torch.tensor([[1]])).detach()).sum().backward()
    from_head = embedding.weight.grad
    assert from_head is not None
    assert from_head.abs().sum(1).all()
    embedding.weight.grad = None
    embedding(torch.tensor([[1]])).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.abs().sum(1).bool().tolist() == [False, True, False, False, False]


def test_an_untied_head_begins_as_quiet_as_an_embedding_and_with_no_preference() -> None:
    torch.manual_seed(0)
    head = Unembedding(D, V, bias=True)
    assert head.weight.std().item() == pytest.approx(1 / sqrt(D), rel=0.02)
    assert not head.bias.any()
    assert Unembedding(D, V).bias is None


@pytest.mark.parametrize("has_bias", [False, True])
def test_an_aligned_product_is_the_same_product(has_bias: bool) -> None:
    torch.manual_seed(1)
    x, weight, bias = torch.randn(2, 3, 5).double(), torch.randn(67, 5).double(), torch.randn(67).double()
    inputs = [x, weight, bias] if has_bias else [x, weight]
    leaves = [tensor.requires_grad_() for tensor in inputs]
    ours, theirs = (
        aligned_linear(x, weight, bias if has_bias else None),
        F.linear(x, weight, bias if has_bias else None),
    )
    assert ours.shape == theirs.shape == (2, 3, 67)
    torch.testing.assert_close(ours, theirs)
    upstream = torch.randn_like(theirs)
    for one, other in zip(torch.autograd.grad(ours, leaves, upstream), torch.autograd.grad(theirs, leaves, upstream)):
        torch.testing.assert_close(one, other)


def test_a_head_with_room_needs_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    embedding = TokenEmbedding(67, 5)
    head = Unembedding(5, 67, tied=embedding)
    x, before = torch.randn(2, 3, 5), head.weight.detach().clone()
    assert not has_room(head.weight)
    with torch.inference_mode():
        make_room(head.weight)
    assert has_room(head.weight)
    assert head.weight is embedding.weight
    assert head.weight.equal(before)
    monkeypatch.setattr(F, "pad", None)  # which copies
    with torch.no_grad():
        torch.testing.assert_close(aligned_linear(x, head.weight, None), F.linear(x, before))
    head(x).sum().backward()  # the weight can still be trained
    assert head.weight.grad is not None


def test_only_heads_that_need_it_are_aligned() -> None:
    for vocab, dtype, is_moved in ((67, torch.bfloat16, True), (67, torch.float32, False), (72, torch.bfloat16, False)):
        head = Unembedding(5, vocab).to(dtype)
        before = head.weight.data_ptr()
        head.align()
        assert (head.weight.data_ptr() != before) is is_moved


def test_training_with_an_aligned_head_compiles_to_one_graph() -> None:
    weight = torch.randn(67, 5, requires_grad=True)
    compiled = torch.compile(aligned_linear, backend="aot_eager", fullgraph=True)  # which refuses a second graph
    x = torch.randn(2, 5)
    torch.testing.assert_close(compiled(x, weight, None), F.linear(x, weight))
