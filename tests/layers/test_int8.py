"""Linear layers in int8: their rounding error, their independence of the batch, and the models that use them."""

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError, MachineError
from clearformer.generation.compiled import can_compile
from clearformer.layers.int8 import LEVELS, Int8Linear, quantize
from clearformer.layers.linear import Linear, pack
from clearformer.models.transformer import Transformer, TransformerConfig

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
N, K, O = 131, 67, 29


def layer(bias: bool = True) -> Linear:
    torch.manual_seed(0)
    linear = Linear(K, O, bias)
    linear.weight.data *= torch.logspace(-3, 3, O)[:, None]  # rows of very different size
    linear.weight.data[7] = 0.0
    return linear


def vectors() -> torch.Tensor:
    x = torch.randn(N, K, generator=torch.Generator().manual_seed(1))
    x *= torch.logspace(-6, 6, N)[:, None]
    x[3] = 0.0
    return x


@pytest.mark.parametrize("bias", [True, False])
def test_the_error_is_at_most_that_of_rounding(bias: bool) -> None:
    """Half a level of every feature times its weight, and half a level of every weight times its rounded feature."""
    linear, x = layer(bias), vectors()
    with torch.inference_mode():
        y, exact = Int8Linear.of(linear)(x), linear.double()(x.double())
    weight = linear.weight.detach()
    a, s = x.double().abs().amax(1, keepdim=True), weight.abs().amax(1) / 127
    by_input = a / LEVELS / 2 * weight.abs().sum(1)
    by_weight = s / 2 * (x.double().abs() + a / LEVELS / 2).sum(1, keepdim=True)
    bound = (by_input + by_weight) * (1 + 1e-5) + 1e-6 * (exact.abs() + by_input)
    assert ((y - exact).abs() <= bound).all()
    assert (y - exact).abs().max() > 0
    expected = linear.bias.expand(N, O).float() if bias else torch.zeros(N, O)
    assert y[3].equal(expected[3])  # a vector of zeros
    assert y[:, 7].equal(expected[:, 7])  # weights of zeros


def test_products_of_the_largest_levels_do_not_overflow() -> None:
    """The weights and features of a row have one size, and therefore the largest levels, with equal signs."""
    linear = Linear(K, O, bias=False)
    linear.weight.data.fill_(0.5)
    with torch.inference_mode():
        y = Int8Linear.of(linear)(torch.full((N, K), 3.0))
    assert torch.allclose(y, torch.full((N, O), 1.5 * K), rtol=1e-5)


def test_a_vector_does_not_depend_on_its_batch() -> None:
    linear, x = Int8Linear.of(layer()), vectors()
    with torch.inference_mode():
        together = linear(x)
        for rows in ([0], [N - 1], [5, 50, 100], list(range(0, N, 2))):
            assert linear(x[rows]).equal(together[rows])
        assert linear(x.view(1, N, 1, K)).equal(together.view(1, N, 1, O))
        assert linear.part(x, 3, 17).equal(together[:, 3:17])
    assert linear(torch.empty(0, K)).shape == (0, O)


def test_the_layers_of_a_model_are_replaced_once() -> None:
    config = TransformerConfig(source_vocab=23, target_vocab=23, d_model=14, n_heads=2, d_ff=19, n_encoder_layers=1)
    model = Transformer(config).eval()
    names, weight = list(model.state_dict()), model.unembedding.weight
    assert can_compile(model)
    pack(quantize(model))
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert layers
    assert all(type(module) is Int8Linear for module in layers)
    assert list(model.state_dict()) == names
    assert model.unembedding.weight is weight
    assert not can_compile(model)


def test_translations_are_those_of_float32_nearly_always() -> None:
    texts = [f"{subject} {verb} {rest}" for subject in ("The cat", "My brother", "Tom") for verb in ("sees", "likes")
             for rest in ("the book.", "a small house.", "my old friend.", "the river near the church.")]  # fmt: skip
    exact, rounded = (clearformer.load(precision=precision) for precision in ("float32", "int8"))
    outputs = rounded.translate(texts)
    assert sum(a == b for a, b in zip(outputs, exact.translate(texts))) >= 0.8 * len(texts)
    assert [rounded.translate([text])[0] for text in texts[:5]] == outputs[:5]


def test_wrong_uses_are_errors_with_hints() -> None:
    with pytest.raises(ConfigError, match=r"computes in float32, not in int8\nhint: omit one of the two"):
        clearformer.load(engine="compiled", precision="int8")
    with pytest.raises(ConfigError, match=r"no precision `fp8` for inference\nhint: use float32, bfloat16, int8"):
        clearformer.load(precision="fp8")
    with pytest.raises(MachineError, match=r"int8 is for the CPU\nhint: use --device cpu, or"):
        quantize(torch.nn.Linear(2, 3, device="meta"))
