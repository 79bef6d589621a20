"""Class weights: how much each example counts in the loss of a classifier.

    loss  = Σ_i w(y_i) loss_i / n                    n examples; the trainer divides by their number
    w(k)  = n / (C n_k)                              "balanced": n_k of the n training examples are of class k, out of C

Balanced weights give every class the same weight in total, n / C, as in scikit-learn. Their mean over the training data
is 1, so that the loss keeps its scale and can be divided by the number of examples, which is known in advance. Dividing
each batch by its sum of weights would make the result depend on accumulation and on the number of processes.

The weight belongs to the example: label smoothing is applied first, and a mixture of two images (mixup) has the mean of
their weights. torch weights the terms of the smoothed loss by class instead; for 99 to 1 with ε = 0.1, that would make
the rare class the main target of every example.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError, suggest
from clearformer.wording import count, listed

ClassWeights = Literal["balanced"] | dict[str, float] | tuple[float, ...]
DESCRIPTION = (
    'weight of each class in the loss: "balanced", a table by class name, or a list in the order of classes.json; '
    "default: 1 for all"
)
RARE = 1 / 3
"""A class is rare if it has less than this fraction of the mean number of examples per class.

For two classes, the threshold is 1 to 5: a model that always predicts the frequent class is right in 83 % of cases, but
its macro F1 is only 0.45. Above, accuracy and macro F1 differ less, and weights hardly help.
"""
FEW = 5  # classes that are all listed with their numbers


def parse_weights(value: Any) -> ClassWeights | None:
    """Validate objective.weights."""
    if value is None or value == "balanced":
        return value
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        raise ValueError('expected "balanced", a table or a list')
    for weight in value.values() if isinstance(value, Mapping) else value:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            raise ValueError(f"{weight!r} is not a positive number")
    if isinstance(value, Mapping):
        return {str(name): float(weight) for name, weight in value.items()}
    return tuple(map(float, value))


def resolve(weights: ClassWeights, classes: Sequence[str], counts: Sequence[int]) -> tuple[float, ...]:
    """Return the weight of every class. `counts` are the numbers of training examples; classes without a name weigh 1.

    A class without training examples is not counted in C.
    """
    if weights == "balanced":
        n, n_present = sum(counts), sum(map(bool, counts))
        return tuple(n / (n_present * k) if k else 1.0 for k in counts)
    if isinstance(weights, dict):
        for name in weights:
            if name not in classes:
                raise ConfigError(f"objective.weights: there is no class `{name}`", suggest(name, classes))
        return tuple(weights.get(name, 1.0) for name in classes)
    assert not isinstance(weights, str)
    if len(weights) != len(classes):
        raise wrong_number(len(weights), len(classes))
    return weights


def wrong_number(n_weights: int, n_classes: int) -> ConfigError:
    return ConfigError(
        f"objective.weights has {count(n_weights, 'weight')} for {count(n_classes, 'class', 'classes')}",
        "give one weight for each class, in the order of classes.json, or a table of weights by class name",
    )


def weight_tensor(weights: ClassWeights, logits: Tensor) -> Tensor:
    """Return resolved weights as a tensor (C,) like the logits (…, C)."""
    assert isinstance(weights, tuple), "the task resolves weights by name before training"
    if len(weights) != logits.size(-1):
        raise wrong_number(len(weights), logits.size(-1))
    return logits.new_tensor(weights)


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, label_smoothing: float) -> Tensor:
    """Sum the weighted loss over examples: logits (N, C), targets (N,) with IGNORE, or (N, C) if mixed -> ()."""
    losses = F.cross_entropy(
        logits, targets, ignore_index=IGNORE, reduction="none", label_smoothing=label_smoothing
    )  # (N,)
    # No matrix products: under autocast, they would be rounded to half precision.
    by_example = (targets * weights).sum(-1) if targets.is_floating_point() else weights[targets.clamp(min=0)]
    return (losses * by_example).sum()


def describe_balance(
    classes: Sequence[str], counts: Sequence[int], weights: Sequence[float] | None, unit: str
) -> str | None:
    """Describe the class weights of a run, or the imbalance of its classes; None if there is nothing to say."""
    if weights is not None:
        return f"class weights: {some([(name, f'{weight:.3g}') for name, weight in zip(classes, weights)], weights)}"
    present = [n for n in counts if n]
    if len(present) < 2 or min(present) >= RARE * sum(present) / len(present):
        return None
    rows = [(name, f"{n:,}") for name, n in zip(classes, counts)]
    return f"classes are out of balance ({unit}: {some(rows, counts)}); --balance predicts all classes alike"


def some(rows: Sequence[tuple[str, str]], values: Sequence[float]) -> str:
    """List names with their values, the largest first; of more than a few, only the first and the last."""
    order = sorted(range(len(rows)), key=lambda i: -values[i])
    shown = [f"{rows[i][0]} {rows[i][1]}" for i in order]
    return listed(shown) if len(shown) <= FEW else f"from {shown[0]} to {shown[-1]}"
