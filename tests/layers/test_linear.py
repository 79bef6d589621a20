import copy

import pytest
import torch
from torch import Tensor, nn

from clearformer.layers.feedforward import FeedForward
from clearformer.layers.linear import Linear, PackedLinear, few_sizes, pack
from clearformer.models.transformer import Transformer, TransformerConfig

from ..bounds import float32_bound_of
from ..onednn import programs


def test_a_part_is_a_slice_of_the_whole() -> None:
    layer = Linear(5, 11)
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(layer.part(x, 2, 7), layer(x)[..., 2:7])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_rows", [1, 7, 131])
def test_packed_products_are_those_of_the_layer(bias: bool, n_rows: int) -> None:
    layer = Linear(13, 29, bias)
    packed = PackedLinear.of(layer, 7)
    for x in (torch.randn(n_rows, 3, 13), torch.randn(n_rows, 1, 13)):  # a single vector goes another way
        with torch.inference_mode():
            torch.testing.assert_close(packed(x), layer(x))
            torch.testing.assert_close(packed.part(x, 3, 17), layer.part(x, 3, 17))
    assert packed.weight is layer.weight


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="nothing is packed without oneDNN")
def test_few_programs_serve_all_numbers_of_rows() -> None:
    """Each takes half a megabyte, which a process that translates for days would collect."""
    code = """
import torch
from clearformer.layers.linear import PackedLinear
layer = PackedLinear.of(torch.nn.Linear(13, 29), 64)
with torch.inference_mode():
    for n_rows in range(2, 100):
        assert layer(torch.randn(n_rows, 13)).shape == (n_rows, 29)
"""
    n_sizes = len({few_sizes(n_rows) for n_rows in range(2, 100)})
    assert programs(code).count("inner_product") == n_sizes == 7 + 12


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu-tanh", "silu"])
def test_an_activation_is_computed_with_the_product_before_it(name: str) -> None:
    network = FeedForward(13, 29, name).eval()
    packed = pack(copy.deepcopy(network))
    for x in (torch.randn(3, 7, 13), torch.randn(1, 1, 13)):
        with torch.inference_mode():
            torch.testing.assert_close(packed(x), network(x))
    assert packed.up.activation == ("relu" if name == "relu" else None)  # type: ignore[union-attr]


def test_packing_a_model_keeps_its_names_its_ties_and_its_results() -> None:
    config = TransformerConfig(
        source_vocab=23, target_vocab=23, d_model=14, n_heads=2, d_ff=19, n_encoder_layers=1, n_decoder_layers=2
    )
    model = Transformer(config).eval()
    packed = pack(copy.deepcopy(model))
    assert isinstance(packed.unembedding, PackedLinear)
    assert packed.unembedding.weight is packed.target_embedding.weight
    assert list(packed.state_dict()) == list(model.state_dict())
    source, tokens = torch.randint(23, (3, 5)), torch.randint(23, (3, 2))

    def logits(network: Transformer) -> Tensor:
        return network.step(tokens, network.start(source, None))[0]

    with torch.inference_mode():
        ours, theirs = logits(packed), logits(model)
    assert (ours - theirs).abs().max() <= float32_bound_of(model, logits, n_terms=19)  # features, in the longest sum


class Doubling(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Named(nn.Linear):
    """An nn.Linear in all but name."""


def test_a_layer_that_computes_something_else_is_left_alone() -> None:
    model = nn.Sequential(Doubling(3, 5), Named(5, 7))
    x = torch.randn(2, 3)
    expected = model(x)
    packed = pack(model)
    assert [type(layer) for layer in packed] == [Doubling, PackedLinear]  # type: ignore[arg-type]
    with torch.inference_mode():
        torch.testing.assert_close(packed(x), expected)


def test_what_cannot_be_packed_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(3, 5)).double()
    assert type(pack(model)[0]) is nn.Linear  # type: ignore[index]
