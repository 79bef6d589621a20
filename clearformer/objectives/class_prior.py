"""Logit adjustment: train a classifier on classes out of balance so that it predicts as if all were equally frequent.

    loss_i = − Σ_k q_i(k) log softmax(z_i + log π)_k          π_k = n_k / n: the prior      Menon et al. 2021, τ = 1
    q_i(k) = (1 − ε) [k = y_i] + ε π_k                        label smoothing ε
    predicted class = argmax_k z_k

In training, z + log π learn the probabilities of the training data. Without log π, the same network gives the
probabilities for equally frequent classes: inference and exported models need no change. Class weights
(class_weights.py) aim at the same solution, but a network that fits all its training data ignores them (Byrd and Lipton
2019). An adjusted network starts at the prior, so that it cannot lower its loss by predicting the frequent class alone.

Label smoothing spreads ε by the prior. Spread evenly, it would make every example look like the rare class: for 99 to 1
and ε = 0.1, the target of a frequent example would give the rare class 5 %, five times its prior.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError
from clearformer.wording import count, listed

Prior = Literal["data"] | tuple[float, ...]
DESCRIPTION = (
    "frequencies of the classes in training, whose logarithms are added to the logits there, so that predictions "
    'treat all classes alike: "data" counts them; or a list in the order of classes.json; default: none'
)
FEW = 5  # classes that are all listed with their frequencies


def parse_prior(value: Any) -> Prior | None:
    """Validate objective.prior."""
    if value is None or value == "data":
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError('expected "data" or a list')
    for frequency in value:
        if isinstance(frequency, bool) or not isinstance(frequency, int | float) or not 0 < frequency < float("inf"):
            raise ValueError(f"{frequency!r} is not a positive number")
    return tuple(map(float, value))


def resolve_prior(prior: Prior, counts: Sequence[int]) -> tuple[float, ...]:
    """Return the frequency of every class, with a sum of 1. `counts` are the numbers of training examples.

    A class without training examples counts as one of mean frequency: with a prior of 0, training would not see it, and
    it could be predicted.
    """
    if prior == "data":
        mean = sum(counts) / max(1, sum(map(bool, counts)))
        values: Sequence[float] = [n or mean for n in counts]
    else:
        assert not isinstance(prior, str)
        values = prior
        if len(values) != len(counts):
            raise wrong_number(len(values), len(counts))
    total = sum(values)
    return tuple(value / total for value in values)


def wrong_number(n: int, n_classes: int) -> ConfigError:
    return ConfigError(
        f"objective.prior has {count(n, 'value')} for {count(n_classes, 'class', 'classes')}",
        'give one value for each class, in the order of classes.json, or "data"',
    )


def adjusted_cross_entropy(logits: Tensor, targets: Tensor, prior: Prior, label_smoothing: float) -> Tensor:
    """Sum the adjusted loss over examples: logits (N, C), targets (N,) with IGNORE, or (N, C) if mixed -> ()."""
    assert isinstance(prior, tuple), "the task counts the classes before training"
    if len(prior) != logits.size(-1):
        raise wrong_number(len(prior), logits.size(-1))
    frequencies = logits.new_tensor(prior)  # (C,)
    adjusted = logits + frequencies.log()
    loss = F.cross_entropy(adjusted, targets, ignore_index=IGNORE, reduction="sum")
    if label_smoothing == 0:
        return loss
    spread = -(adjusted.log_softmax(-1) * frequencies).sum(-1)  # (N,)
    if not targets.is_floating_point():
        spread = spread.where(targets != IGNORE, 0.0)
    return (1 - label_smoothing) * loss + label_smoothing * spread.sum()


def describe_prior(classes: Sequence[str], prior: Sequence[float]) -> str:
    """Describe the adjustment of a run."""
    order = sorted(range(len(classes)), key=lambda i: -prior[i])
    shown = [f"{classes[i]} {prior[i]:.3g}" for i in order]
    names = listed(shown) if len(shown) <= FEW else f"from {shown[0]} to {shown[-1]}"
    return f"logits adjusted by the frequencies of the classes: {names}"
