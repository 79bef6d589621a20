import math

import pytest

from clearformer import metric
from clearformer.metric import ACCURACY, BLEU, LOSS, Metric

CONSTANTS = [value for value in vars(metric).values() if isinstance(value, Metric)]


@pytest.mark.parametrize(
    ("judge", "value", "best", "is_better"),
    [
        (LOSS, 2.0, 3.0, True),
        (LOSS, 3.0, 2.0, False),
        (ACCURACY, 0.3, 0.2, True),
        (ACCURACY, 0.2, 0.3, False),
        (LOSS, 2.0, 2.0, False),  # strictly
        (ACCURACY, 0.2, 0.2, False),
        (LOSS, 2.0, None, True),
        (ACCURACY, 0.0, None, True),
    ],
)
def test_better_follows_the_direction_of_the_metric(judge: Metric, value: float, best: float, is_better: bool) -> None:
    assert judge.better(value, best) is is_better


@pytest.mark.parametrize("judge", [LOSS, ACCURACY])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_a_finite_value_is_ever_better(judge: Metric, value: float) -> None:
    for best in (None, 0.5, math.nan, math.inf, -math.inf):
        assert not judge.better(value, best)
    assert judge.better(0.5, value)  # a best that an older version stored


def test_format_is_title_and_value() -> None:
    assert BLEU.format(41.0666) == "BLEU 41.07"
    assert LOSS.format(1.25) == "Loss 1.2500"


def test_names_are_keys() -> None:
    names = [constant.name for constant in CONSTANTS]
    assert len(CONSTANTS) >= 5
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)
