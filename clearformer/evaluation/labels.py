"""The metrics of a classifier or a regression model, computed from the outputs of its head."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.evaluation.metrics.calibration import calibration_metrics, mean_loss
from clearformer.evaluation.metrics.confusion import accuracy, confusion, macro_f1, matthews, per_class
from clearformer.evaluation.metrics.pearson import pearson


def class_metrics(logits: Tensor, labels: Tensor, classes: Sequence[str] = ()) -> dict[str, Any]:
    """Return loss (nats per example), balanced_loss, accuracy, macro_f1, matthews, confusion and examples.

    logits (N, C), labels (N,). With the names of the classes, the result has `per_class`, too: precision, recall, f1
    and support of each.
    """
    table = confusion(labels.tolist(), logits.argmax(-1).tolist(), logits.size(-1))
    metrics = {
        "loss": float(F.cross_entropy(logits, labels)),
        "balanced_loss": balanced_loss(logits, labels),
        "accuracy": accuracy(table),
        "macro_f1": macro_f1(table),
        "matthews": matthews(table),
        "confusion": table.tolist(),
        "examples": len(labels),
    }
    return metrics | ({"per_class": per_class(table, classes)} if classes else {})


def balanced_loss(logits: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of the mean loss of their examples; classes without examples do not count.

    With balanced weights, this is what training minimises. Unlike macro F1, it distinguishes models even if a rare
    class has only a few examples, all of them predicted wrongly.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    return float(torch.stack([losses[labels == k].mean() for k in labels.unique()]).mean())


def image_metrics(logits: Tensor, labels: Tensor, classes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the metrics of `class_metrics`, with `images` instead of `examples`, and top5.

    top5 is the fraction of images whose label is among the five most probable classes.
    """
    metrics = class_metrics(logits, labels, classes)
    five = logits.topk(min(5, logits.size(-1))).indices
    top5 = float((five == labels[:, None]).any(1).double().mean())
    return {"accuracy": metrics.pop("accuracy"), "top5": top5, "images": metrics.pop("examples"), **metrics}


def regression_metrics(outputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """Return `loss` (mean squared error), `pearson` and `examples` (their number). outputs (N, 1), labels (N,)."""
    values = outputs[:, 0]
    return {
        "loss": float((values - labels).square().mean()),
        "pearson": pearson(values.tolist(), labels.tolist()),
        "examples": len(labels),
    }


def evaluation(
    logits: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    compute: Callable[[Tensor, Tensor, Sequence[str]], dict[str, Any]] = class_metrics,
    temperature: float = 1.0,
) -> dict[str, Any]:
    """Return what `evaluate` reports of a classifier: its metrics, ece and reliability, and classes.

    Loss and calibration are computed from the calibrated probabilities, softmax(logits / temperature).
    """
    metrics = compute(logits, labels, classes)
    if temperature != 1:
        metrics["loss"] = mean_loss(logits, labels, temperature)
        metrics["balanced_loss"] = balanced_loss(logits.double() / temperature, labels)
    return metrics | calibration_metrics(logits, labels, temperature) | {"classes": list(classes)}


def confident_errors(
    logits: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    most: int,
    describe: Callable[[int], dict[str, Any]],
    temperature: float = 1.0,
) -> list[dict[str, Any]]:
    """Return at most `most` wrong predictions, the most confident first.

    Each has the columns of `describe(index of the example)`, label, predicted (a class) and probability (of this
    class). Examples with equal probabilities keep their order.
    """
    predicted = logits.argmax(-1)
    probabilities = (logits / temperature).softmax(-1).gather(1, predicted[:, None])[:, 0]
    wrong = (predicted != labels).nonzero()[:, 0]
    order = wrong[probabilities[wrong].argsort(descending=True, stable=True)][:most]
    return [
        describe(i)
        | {"label": classes[int(labels[i])], "predicted": classes[int(predicted[i])]}
        | {"probability": float(probabilities[i])}
        for i in order.tolist()
    ]


def score_classes(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Deprecated: use class_metrics."""
    message = "evaluation.labels.score_classes is deprecated: use class_metrics"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return class_metrics(logits, labels)
