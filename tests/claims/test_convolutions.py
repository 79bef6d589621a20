"""Matched filters, equivariance and pooling, as exact as arithmetic allows."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearformer.claims import convolutions


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STEPS": 2, "SEEDS": 1, "PICTURES": 20, "TESTS": 16}.items():
            patch.setattr(convolutions, name, value)
        return convolutions.look(seed=3)


def test_a_cosine_finds_the_pattern_that_a_product_misses(numbers: dict[str, Any]) -> None:
    """Without noise the cosine is 1 at the pattern and less elsewhere, by Cauchy and Schwarz."""
    assert numbers["found"]["cosine"][0] == 1
    assert numbers["found"]["product"][0] < 0.5


def test_a_convolution_of_stride_one_is_exactly_equivariant(numbers: dict[str, Any]) -> None:
    assert numbers["equivariance"]["stride 1"] == pytest.approx([0.0] * 5, abs=1e-12)
    odd, even = numbers["equivariance"]["stride 2"][1::2], numbers["equivariance"]["stride 2"][0::2]
    assert min(odd) > 0.5
    assert even == pytest.approx([0.0] * 3, abs=1e-12)


def test_kernels_in_four_turns_are_equivariant_to_turns(numbers: dict[str, Any]) -> None:
    assert numbers["turns"]["four turns of it"] < 1e-12 < 0.1 < numbers["turns"]["one kernel"]


def test_the_gradient_of_a_maximum_goes_to_the_largest_input(numbers: dict[str, Any]) -> None:
    assert numbers["gradient_of_max"] == [0.0, 1.0, 0.0]
    x = torch.tensor([[[[1.0, 3.0], [2.0, 0.0]]]], requires_grad=True)
    F.max_pool2d(x, 2).backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0, 1, 0, 0]
    y = torch.tensor([[[[1.0, 3.0], [2.0, 0.0]]]], requires_grad=True)
    F.avg_pool2d(y, 2).backward()
    assert y.grad is not None
    assert y.grad.flatten().tolist() == [0.25] * 4
