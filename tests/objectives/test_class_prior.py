"""Logit adjustment by hand, its label smoothing, the prior of the data, and the errors."""

from math import log
from typing import Any

import pytest
import torch

from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError
from clearformer.objectives.class_loss import class_loss
from clearformer.objectives.class_prior import adjusted_cross_entropy, describe_prior, resolve_prior
from clearformer.objectives.classification import ClassificationConfig

N, C = 13, 5


def test_the_loss_by_hand() -> None:
    """Equal logits predict the prior: its entropy is the loss, and the rare example costs log 100."""
    logits = torch.zeros(2, 2, dtype=torch.float64)
    loss = adjusted_cross_entropy(logits, torch.tensor([0, 1]), (0.99, 0.01), 0.0)
    assert float(loss) == pytest.approx(-log(0.99) + log(100))


def test_an_even_prior_is_the_usual_loss() -> None:
    torch.manual_seed(1)
    logits, labels = torch.randn(N, C, dtype=torch.float64), torch.randint(C, (N,))
    labels[[2, 7]] = IGNORE
    for epsilon in (0.0, 0.1):
        plain = class_loss(logits, labels, ClassificationConfig(label_smoothing=epsilon))
        even = class_loss(logits, labels, ClassificationConfig(prior=(0.2,) * C, label_smoothing=epsilon))
        torch.testing.assert_close(even, plain)


def test_label_smoothing_follows_the_prior() -> None:
    """The optimum for a frequent example still prefers the frequent class."""
    prior, epsilon = (0.99, 0.01), 0.1
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    adjusted_cross_entropy(logits, torch.tensor([0]), prior, epsilon).backward()
    target = torch.tensor([0.9 + 0.1 * 0.99, 0.1 * 0.01], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, (torch.tensor(prior, dtype=torch.float64) - target)[None])
    assert float(logits.grad[0, 0]) < 0 < float(logits.grad[0, 1])


def test_mixed_targets_are_the_mean_of_their_parts() -> None:
    torch.manual_seed(2)
    logits, prior = torch.randn(1, 2, dtype=torch.float64), (0.7, 0.3)
    parts = [float(adjusted_cross_entropy(logits, torch.tensor([k]), prior, 0.1)) for k in (0, 1)]
    mixed = adjusted_cross_entropy(logits, torch.tensor([[0.25, 0.75]]).double(), prior, 0.1)
    assert float(mixed) == pytest.approx(0.25 * parts[0] + 0.75 * parts[1])


def test_the_minimum_does_not_depend_on_the_prior() -> None:
    """One feature, two classes that overlap: trained on 9 to 1, the logits are those of equally frequent classes."""
    even, skewed = margins([3, 1, 1, 3]), margins([27, 1, 9, 3])
    torch.testing.assert_close(even, torch.tensor([-log(3), log(3)], dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(skewed, even, atol=1e-4, rtol=0)


def margins(counts: list[int]) -> torch.Tensor:
    """Fit a linear layer to the numbers of (x, class) = (0, 0), (0, 1), (1, 0), (1, 1); return z_1 − z_0 by x."""
    x, labels = torch.tensor([[0.0], [0.0], [1.0], [1.0]], dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    inputs, targets = (rows.repeat_interleave(torch.tensor(counts), 0) for rows in (x, labels))
    layer, prior = torch.nn.Linear(1, 2, dtype=torch.float64), resolve_prior("data", targets.bincount().tolist())
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = adjusted_cross_entropy(layer(inputs), targets, prior, 0.0) / len(targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    logits = layer(x[::2]).detach()
    return logits[:, 1] - logits[:, 0]


def test_the_prior_of_the_data() -> None:
    assert resolve_prior("data", [900, 100]) == pytest.approx((0.9, 0.1))
    assert resolve_prior((3.0, 1.0), [1, 1]) == pytest.approx((0.75, 0.25))
    assert resolve_prior("data", [30, 0, 10]) == pytest.approx((0.5, 1 / 3, 1 / 6))  # b counts as 20, the mean
    with pytest.raises(ConfigError, match=r"objective\.prior has 3 values for 2 classes\nhint: give one value"):
        resolve_prior((1.0, 1.0, 1.0), [1, 1])


def test_what_is_said() -> None:
    said = describe_prior(["bad", "good"], (0.1, 0.9))
    assert said == "logits adjusted by the frequencies of the classes: good 0.9 and bad 0.1"
    many = describe_prior(list("abcdef"), (0.1, 0.1, 0.1, 0.05, 0.15, 0.5))
    assert many.endswith("from f 0.5 to d 0.05")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"prior": "date"}, "prior = 'date': expected \"data\" or a list"),
        ({"prior": [1.0, 0.0]}, "0.0 is not a positive number"),
        (
            {"prior": "data", "weights": "balanced"},
            "weights and prior cannot be combined; remove one",
        ),
    ],
)
def test_priors_that_are_none(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClassificationConfig.parse(table, "x.toml: [objective]")
    assert problem in str(caught.value)


@pytest.mark.parametrize("value", ["data", (0.9, 0.1), None])
def test_a_recipe_keeps_the_prior(value: Any) -> None:
    config = ClassificationConfig.parse({"prior": value})
    assert config.prior == value
    assert ClassificationConfig.parse(config.model_dump(mode="json")) == config
