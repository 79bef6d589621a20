import pytest
import torch

from clearformer.training.finite import are_finite


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_element_among_many_is_found(dtype: torch.dtype, value: float) -> None:
    tensors = [torch.ones(3, 5), torch.ones(7, dtype=dtype), torch.ones(0)]
    assert are_finite(tensors)
    tensors[1][4] = value
    assert not are_finite(tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_large_weights_are_finite(dtype: torch.dtype) -> None:
    """Their Euclidean norm is not."""
    assert are_finite([torch.full((11,), torch.finfo(dtype).max, dtype=dtype), torch.ones(3)])


def test_no_tensors_are_finite() -> None:
    assert are_finite([])
    assert are_finite([torch.ones(0)])
