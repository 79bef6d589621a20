"""Weights by hand and by scikit-learn, their effect on the loss, and the same gradient however examples are batched."""

from math import log
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError
from clearformer.objectives.class_weights import describe_balance, resolve, weight_tensor, weighted_cross_entropy
from clearformer.objectives.classification import ClassificationConfig

N, C = 13, 5


def test_balanced_weights_by_hand() -> None:
    assert resolve("balanced", ["a", "b"], [900, 100]) == pytest.approx((1000 / 1800, 1000 / 200))
    counts, weights = [7, 0, 3], resolve("balanced", ["a", "b", "c"], [7, 0, 3])  # b never occurs
    assert sum(n * w for n, w in zip(counts, weights)) == pytest.approx(10)  # mean 1 over the data
    assert weights[0] * 7 == pytest.approx(weights[2] * 3)  # both classes weigh the same in total


def test_the_weights_of_scikit_learn() -> None:
    compute = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    labels = np.random.default_rng(3).choice(C, 101, p=[0.5, 0.3, 0.1, 0.06, 0.04])
    expected = compute("balanced", classes=np.arange(C), y=labels)
    assert resolve("balanced", "abcde", np.bincount(labels, minlength=C).tolist()) == pytest.approx(expected.tolist())


def test_weights_by_name_and_in_order() -> None:
    assert resolve({"b": 3.0}, ["a", "b"], [1, 1]) == (1.0, 3.0)
    assert resolve((2.0, 3.0), ["a", "b"], [1, 1]) == (2.0, 3.0)
    with pytest.raises(ConfigError, match="there is no class `goood`\nhint: did you mean `good`"):
        resolve({"goood": 3.0}, ["bad", "good"], [1, 1])
    with pytest.raises(ConfigError, match="3 weights for 2 classes"):
        resolve((1.0, 1.0, 1.0), ["a", "b"], [1, 1])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("balancd", "weights = 'balancd': expected \"balanced\", a table or a list"),
        (3, "weights = 3: expected"),
        ([1.0, -1.0], "-1.0 is not a positive number"),
        ([1.0, True], "true is not a positive number"),
        ({"a": "x"}, "weights: 'x' is not a positive number"),
        ({"a": float("inf")}, "inf is not a positive number"),
    ],
)
def test_weights_that_are_none(value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClassificationConfig.parse({"weights": value}, "x.toml: [objective]")
    assert problem in str(caught.value)


@pytest.mark.parametrize("value", ["balanced", {"a": 2.0}, (2.0, 1.0), None])
def test_a_recipe_keeps_weights(value: Any) -> None:
    config = ClassificationConfig.parse({"weights": value})
    assert config.weights == value
    assert ClassificationConfig.parse(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_every_example_has_the_weight_of_its_class(epsilon: float) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(N, C, dtype=torch.float64), torch.randint(C, (N,))
    labels[[2, 7]] = IGNORE
    weights = weight_tensor((1.0, 2.0, 3.0, 5.0, 7.0), logits)
    expected = sum(
        float(weights[k]) * float(F.cross_entropy(logits[i : i + 1], labels[i : i + 1], label_smoothing=epsilon))
        for i, k in enumerate(labels.tolist())
        if k != IGNORE
    )
    assert float(weighted_cross_entropy(logits, labels, weights, epsilon)) == pytest.approx(expected)
    kept = labels != IGNORE
    one_hot = F.one_hot(labels[kept], C).double()
    assert float(weighted_cross_entropy(logits[kept], one_hot, weights, epsilon)) == pytest.approx(expected)


def test_a_mixture_has_the_mean_of_two_weights() -> None:
    logits = torch.tensor([[0.0, log(3)]], dtype=torch.float64)
    total = weighted_cross_entropy(
        logits, torch.tensor([[0.25, 0.75]]).double(), weight_tensor((4.0, 8.0), logits), 0.0
    )
    assert float(total) == pytest.approx(7.0 * (0.25 * log(4) + 0.75 * log(4 / 3)))


def test_equal_weights_are_no_weights() -> None:
    torch.manual_seed(1)
    logits, labels = torch.randn(N, C, dtype=torch.float64), torch.randint(C, (N,))
    total = weighted_cross_entropy(logits, labels, weight_tensor((1.0,) * C, logits), 0.1)
    torch.testing.assert_close(total, F.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.1))


def test_batches_of_any_size_add_up() -> None:
    """The sum is divided by the number of examples, so accumulation and processes change nothing but rounding."""
    torch.manual_seed(2)
    logits, labels = torch.randn(N, C, dtype=torch.float64), torch.randint(C, (N,))
    weights = weight_tensor(resolve("balanced", "abcde", labels.bincount(minlength=C).tolist()), logits)
    whole = weighted_cross_entropy(logits, labels, weights, 0.1)
    parts = zip(logits.split(4), labels.split(4))
    torch.testing.assert_close(torch.stack([weighted_cross_entropy(z, y, weights, 0.1) for z, y in parts]).sum(), whole)


def test_what_is_out_of_balance() -> None:
    assert describe_balance(["neg", "pos"], [900, 100], None, "examples") == (
        "classes are out of balance (examples: neg 900 and pos 100); --balance predicts all classes alike"
    )
    assert describe_balance(["a", "b"], [500, 100], None, "examples") is None  # a third of the mean, 300
    assert describe_balance(["a", "b"], [501, 100], None, "examples") is not None
    assert describe_balance(["a", "b"], [9, 0], None, "examples") is None
    many = describe_balance(list("abcdef"), [60, 50, 40, 1, 30, 1200], None, "images")
    assert many is not None
    assert "(images: from f 1,200 to d 1)" in many
    assert describe_balance(["a", "b"], [9, 1], (5 / 9, 5.0), "examples") == "class weights: b 5 and a 0.556"
