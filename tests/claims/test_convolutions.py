"""Matched filters, equivariance and pooling, as exact as arithmetic allows."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearformer.claims import convolutions
from clearformer.claims.batch_norm import N


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


def test_prescribed_kernels_are_not_trained() -> None:
    """All five forms are one small network, claims.convolutions.Small: eight kernels and a linear head."""
    for form in convolutions.FORMS:
        model = convolutions.Small(form)
        assert model.conv.weight.shape == (convolutions.WIDTH, 1, 3, 3)
        assert model.conv.weight.requires_grad == (form not in ("Sobel and blur", "random"))
    assert convolutions.Small("Sobel and blur").conv.weight[0, 0].equal(convolutions.SOBEL)


def test_a_pool_comes_before_or_after_the_convolution() -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 1, N, N)
    after = convolutions.Small("learned")
    before = convolutions.Small("pool first")
    before.load_state_dict(after.state_dict())
    pooled = F.max_pool2d(images, 3)
    assert before(images).equal(after.head(F.relu(after.conv(pooled)).flatten(1)))
    assert after(images).equal(after.head(F.max_pool2d(F.relu(after.conv(images)), 3).flatten(1)))
    assert not before(images).allclose(after(images))


def test_a_maximum_changes_less_under_a_shift(numbers: dict[str, Any]) -> None:
    """On gratings, with random kernels."""
    largest, average = numbers["pooling"]["max"], numbers["pooling"]["average"]
    assert largest[0] == average[0] == 0
    assert all(a < b for a, b in zip(largest[2:], average[2:]))
