import pytest
import torch
from torch import Tensor

from clearformer.layers.norms import NORMS, layer_norm, local_norm, local_response_norm, rms_norm

B, T, D = 2, 3, 11


def x() -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5 + 3


def test_layer_norm_by_hand() -> None:
    """(1, 3, 8) has mean 4 and variance (9 + 1 + 16) / 3 = 26/3.

    The notes normalise "to unit mean & std deviation" in words; their formula, and the paper, give mean zero.
    """
    y = layer_norm(torch.tensor([1.0, 3, 8]), torch.tensor([1.0, 1, 2]), torch.tensor([0.0, 7, 0]), eps=0.0)
    deviation = (26 / 3) ** 0.5
    torch.testing.assert_close(y, torch.tensor([-3 / deviation, 7 - 1 / deviation, 8 / deviation]))


def test_rms_norm_by_hand() -> None:
    """(1, 5, 7) has mean square 75/3 = 25."""
    y = rms_norm(torch.tensor([1.0, 5, 7]), torch.tensor([1.0, 1, 10]), eps=0.0)
    torch.testing.assert_close(y, torch.tensor([0.2, 1, 14]))


def test_each_position_has_mean_zero_and_deviation_one() -> None:
    y = layer_norm(x(), torch.ones(D), torch.zeros(D), eps=0.0)
    torch.testing.assert_close(y.mean(-1), torch.zeros(B, T).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(y.std(-1, correction=0), torch.ones(B, T).double())


EACH_POSITION = ("layer", "rms")  # norms of one position; test_token_norm.py has the others


@pytest.mark.parametrize("name", EACH_POSITION)
def test_torch_computes_the_equation(name: str) -> None:
    norm = NORMS[name](D).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    gain, *bias = norm.parameters()
    expected = layer_norm(x(), gain, bias[0]) if name == "layer" else rms_norm(x(), gain)
    torch.testing.assert_close(norm(x()), expected)


def test_quiet_vectors_meet_the_epsilon() -> None:
    """With x² = ε the root is √2ε: an ε that depended on the type would show here."""
    norm = NORMS["rms"](D).double()
    x, y = (torch.full((D,), value, dtype=torch.float64) for value in (1e-3, 0.5**0.5))
    torch.testing.assert_close(norm(x), y, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", EACH_POSITION)
def test_loudness_is_forgotten(name: str) -> None:
    norm = NORMS[name](D).double()
    torch.testing.assert_close(norm(x() * 1000), norm(x()), atol=1e-5, rtol=1e-5)


def test_local_response_norm_by_hand() -> None:
    """Three channels 1, 2, 3 and neighbours of one: sums of squares 5, 14, 13."""
    x = torch.tensor([1.0, 2, 3]).view(1, 3, 1, 1)
    y = local_response_norm(x, n=3, k=1.0, alpha=2.0, beta=0.5)
    torch.testing.assert_close(y.flatten(), torch.tensor([1 / 11**0.5, 2 / 29**0.5, 3 / 27**0.5]))


def test_torchs_local_norm_is_the_papers() -> None:
    x = torch.randn(2, 7, 3, 5, dtype=torch.float64) * 50  # large, or α would not tell
    torch.testing.assert_close(local_norm()(x), local_response_norm(x))


def test_pooling_before_the_local_norm_is_another_function() -> None:
    """The notes' order for AlexNet, which the preset has, and the paper's: neighbours count before the maximum."""
    x = torch.randn(1, 7, 5, 5, dtype=torch.float64) * 50
    pool, norm = torch.nn.MaxPool2d(3, stride=2), local_norm()
    notes, paper = norm(pool(x)), pool(norm(x))
    assert notes.shape == paper.shape
    assert (notes - paper).abs().max() > 0.1
