"""Layer norm by rows, batch norm by columns."""

from collections.abc import Iterator

import torch
from torch import nn

from clearformer.layers.conv import Conv
from clearformer.layers.norms import LayerNorm, layer_norm
from clearformer.worked.example import Figure, worked

# how, are, you, good, you; the notes give the first and the last column, and a middle one is filled in here.
WORDS = torch.tensor(
    [[0.8, 0.3, 1.7], [0.5, 0.9, 0.7], [0.2, 0.4, 0.0], [0.1, 1.1, -0.2], [0.1, 0.6, 0.7]], dtype=torch.float64
)


TINY = 1e-12  # torch wants an ε greater than 0 here


@worked("layer-norm", "layer norm takes each row, batch norm each column",
        "handwritten Transformer notes, l.233-270; course, 20/04, l.1308-1322", LayerNorm, layer_norm)  # fmt: skip
def rows_and_columns() -> Iterator[Figure]:
    by_row = LayerNorm(3, eps=0.0).double()(WORDS)
    by_column = nn.BatchNorm1d(3, eps=TINY).double()(WORDS)
    equation = layer_norm(WORDS, torch.ones(3), torch.zeros(3), eps=0.0)
    mean, squares = (0.8 + 0.3 + 1.7) / 3, (0.8**2 + 0.3**2 + 1.7**2) / 3
    first = (0.8 - mean) / (squares - mean**2) ** 0.5
    yield Figure("how, first feature, by layer norm", by_row[0, 0].item(), expected=first)
    yield Figure("mean of each word after layer norm", rounded(by_row.mean(1)), [0.0] * 5)
    yield Figure("deviation of each word after layer norm", by_row.std(1, correction=0).tolist(), [1.0] * 5)
    yield Figure("mean of each feature after batch norm", rounded(by_column.mean(0)), [0.0] * 3)
    yield Figure("module and equation differ by", rounded((by_row - equation).abs().max()), 0.0)
    alone = LayerNorm(3, eps=0.0).double()(WORDS[:1])
    yield Figure("how alone, by layer norm: change", rounded((alone - by_row[:1]).abs().max()), 0.0)


@worked("unit-mean", "“unit mean & std deviation”", "Stanford lectures, p. 6, l.164-175", layer_norm)
def unit_mean() -> Iterator[Figure]:
    y = layer_norm(torch.tensor([1.0, 3, 8], dtype=torch.float64), torch.ones(3), torch.zeros(3), eps=0.0)
    yield Figure(
        "mean of (1, 3, 8) afterwards", rounded(y.mean()), 1.0, 0.0, "the mean becomes 0; the formula is right"
    )
    yield Figure("deviation of (1, 3, 8) afterwards", y.std(correction=0).item(), 1.0)


@worked("standard-error", "batch norm divides by SE, “the standard error”", "deep-learning course, 16/03, l.387-391",
        Conv)  # fmt: skip
def standard_error() -> Iterator[Figure]:
    """Five pre-activations of one unit. The standard error of a mean of five is the deviation divided by √5."""
    a = WORDS[:, :1]
    unit = Conv(1, 1, size=1, relu=False, eps=TINY).double()  # a weight of 1, then batch norm
    nn.init.ones_(unit.conv.weight)
    here = unit(a[:, :, None, None])[0].item()
    deviation = a.std(correction=0).item()
    wrong = (a[0] - a.mean()).item() / (deviation / 5**0.5)
    right = (a[0] - a.mean()).item() / deviation
    yield Figure(
        "the first of five pre-activations", here, wrong, right, "divided by the standard deviation, √(σ² + ε)"
    )


def rounded(x: torch.Tensor) -> float | list[float]:
    """Return values to 12 decimals, so that rounding errors around zero vanish."""
    values: float | list[float] = torch.round(x.detach(), decimals=12).add(0.0).tolist()
    return values
