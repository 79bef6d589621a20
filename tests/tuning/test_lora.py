"""The layer by itself."""

import pytest
import torch
from torch import nn

from clearformer.layers.linear import Linear
from clearformer.tuning.lora import LoraConfig, LoraLinear, MergedLinear, Pair

B, T, R, IN, OUT = 2, 5, 3, 7, 11


def adapted(start: int = 0, stop: int = OUT, bias: bool = True, dropout: float = 0.0) -> tuple[LoraLinear, Pair]:
    """A layer with one active pair on some rows, B random."""
    layer = LoraLinear.of(Linear(IN, OUT, bias).double())
    pair = Pair(layer.weight, start, stop, LoraConfig(rank=R, alpha=5, dropout=dropout))
    nn.init.normal_(pair.B)
    layer.add("x", "some", pair)
    layer.active = "x"
    return layer, pair


def test_the_equation_by_hand() -> None:
    """W = [[1, 0], [0, 2]], b = [3, 5], A = [1, 1], B = [2, 7]', α/R = 4: 4·(x1 + x2)·B is added to W x + b."""
    layer = LoraLinear.of(Linear(2, 2))
    pair = Pair(layer.weight, 0, 2, LoraConfig(rank=1, alpha=4))
    layer.add("x", "all", pair)
    layer.active = "x"
    for tensor, values in (
        (layer.weight, [[1.0, 0], [0, 2]]), (layer.bias, [3.0, 5]), (pair.A, [[1.0, 1]]), (pair.B, [[2.0], [7]]),
    ):  # fmt: skip
        tensor.data.copy_(torch.tensor(values))
    assert layer(torch.tensor([[1.0, 10]])).tolist() == [[1 + 3 + 4 * 11 * 2, 20 + 5 + 4 * 11 * 7]]
    assert layer.part(torch.tensor([[1.0, 10]]), 1, 2).tolist() == [[20 + 5 + 4 * 11 * 7]]
    assert MergedLinear.of(layer).weight.tolist() == [[9, 8], [28, 30]]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("start", "stop"), [(0, OUT), (0, 4), (4, 9), (9, OUT)])
def test_a_pair_changes_its_own_rows_and_every_part_agrees(start: int, stop: int, bias: bool) -> None:
    layer, pair = adapted(start, stop, bias)
    x = torch.randn(B, T, IN).double()
    whole = layer(x)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    expected[..., start:stop] += 5 / R * x @ pair.A.T @ pair.B.T
    torch.testing.assert_close(whole, expected)
    for low, high in ((0, OUT), (0, 3), (2, 6), (4, 9), (5, 8), (8, OUT)):
        torch.testing.assert_close(layer.part(x, low, high), whole[..., low:high])
    torch.testing.assert_close(MergedLinear.of(layer)(x), whole)


def test_gradients_are_right() -> None:
    layer, pair = adapted(2, 9)
    x = torch.randn(B, IN).double().requires_grad_()
    inputs = (x, layer.weight, layer.bias, pair.A, pair.B)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), inputs)
    assert torch.autograd.gradcheck(lambda x, *_: layer.part(x, 1, 5), inputs)


def test_a_fresh_pair_adds_nothing_and_a_is_as_loud_as_a_layers_weight() -> None:
    torch.manual_seed(0)
    layer = LoraLinear.of(Linear(100, 50))
    pair = Pair(layer.weight, 0, 50, LoraConfig(rank=100))
    assert not pair.B.any()
    assert not pair.product().any()
    assert pair.A.abs().max().item() == pytest.approx(0.1, rel=0.01)  # U(−1/√in, 1/√in), as nn.Linear draws it


def test_dropout_is_on_what_a_reads_and_in_training_alone() -> None:
    layer, pair = adapted(dropout=0.999999)
    x = torch.randn(B, T, IN).double()
    base = nn.functional.linear(x, layer.weight, layer.bias)
    assert layer.train()(x).equal(base)
    torch.testing.assert_close(layer.eval()(x), base + 5 / R * x @ pair.A.T @ pair.B.T)


def test_without_an_active_adapter_the_layer_is_the_layer() -> None:
    layer, _ = adapted()
    layer.active = None
    x = torch.randn(B, T, IN).double()
    assert layer(x).equal(nn.functional.linear(x, layer.weight, layer.bias))


def test_half_precision_is_merged_in_float32() -> None:
    layer = LoraLinear.of(Linear(IN, OUT).to(torch.bfloat16))
    pair = Pair(layer.weight, 0, OUT, LoraConfig(rank=R))
    nn.init.normal_(pair.B)
    layer.add("x", "all", pair)
    layer.active = "x"
    exact = layer.weight.float() + 16 / R * pair.B.float() @ pair.A.float()
    assert MergedLinear.of(layer).weight.equal(exact.to(torch.bfloat16))
