from math import sqrt

import pytest
import torch
from torch import nn

from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.embeddings import Unembedding
from clearformer.layers.init import Undrawn, gaussian, rectified, xavier


def test_matrices_are_uniform_within_glorots_bound_and_biases_zero() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(211, 307)
    xavier(layer)
    bound = sqrt(6 / (211 + 307))
    assert layer.weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert layer.weight.std().item() == pytest.approx(bound / sqrt(3), rel=1e-2)
    assert not layer.bias.any()


def test_the_packed_projection_is_drawn_as_one_matrix() -> None:
    """D -> 3D has a bound of √(6/4D), where each part alone would have √(6/2D): 1/√2 as loud."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(128, 4)
    layer.apply(xavier)
    alone = sqrt(2 / (128 + 128))
    for part in layer.qkv.weight.split(128):
        assert part.std().item() == pytest.approx(alone / sqrt(2), rel=2e-2)


def test_only_parameters_stay_undrawn() -> None:
    """A random buffer that is not saved could not be loaded; zeros and ones cost nothing."""
    torch.manual_seed(0)
    expected = torch.empty(7).normal_()
    torch.manual_seed(0)
    with Undrawn():
        layers = nn.Linear(5, 3), nn.Embedding(5, 3), nn.Conv2d(2, 3, 5), nn.LSTM(5, 3), nn.LayerNorm(5)
        layers[0].apply(xavier)
        assert torch.empty(7).normal_().equal(expected)
    assert layers[-1].weight.equal(torch.ones(5))
    assert not layers[0].bias.any()


def test_heads_and_embeddings_are_left_to_themselves() -> None:
    for module in (Unembedding(7, 11, bias=True), nn.Embedding(7, 11), nn.LayerNorm(7)):
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.apply(xavier)
        assert all(before[name].equal(tensor) for name, tensor in module.state_dict().items())


def test_gaussian_is_as_loud_at_any_width_and_leaves_norms_alone() -> None:
    torch.manual_seed(0)
    for module in (nn.Linear(211, 307), nn.Linear(23, 2003), nn.Embedding(211, 307)):
        gaussian(module)
        assert module.weight.std().item() == pytest.approx(0.02, rel=2e-2)
        assert abs(module.weight.mean().item()) < 5e-4
    assert not nn.Linear(2, 3).apply(gaussian).bias.any()
    assert nn.LayerNorm(7).apply(gaussian).weight.eq(1).all()


def test_what_a_relu_follows_has_the_variance_of_both_ways() -> None:
    torch.manual_seed(0)
    conv, matrix = nn.Conv2d(19, 53, 5), nn.Linear(307, 101)
    for module, fans in ((conv, (19 + 53) * 25), (matrix, 307 + 101)):
        rectified(module)
        assert module.weight.var().item() == pytest.approx(4 / fans, rel=0.05)
        assert not module.bias.any()
