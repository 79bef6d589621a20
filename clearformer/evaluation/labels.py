"""The metrics of a classifier or a regression model, computed from the outputs of its head."""

import warnings
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from clearformer.evaluation.metrics.confusion import accuracy, confusion, macro_f1, matthews
from clearformer.evaluation.metrics.pearson import pearson


def class_metrics(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Return loss (nats per example), accuracy, macro_f1, matthews, confusion and examples.

    logits (N, C), labels (N,)
    """
    table = confusion(labels.tolist(), logits.argmax(-1).tolist(), logits.size(-1))
    return {
        "loss": float(F.cross_entropy(logits, labels)),
        "accuracy": accuracy(table),
        "macro_f1": macro_f1(table),
        "matthews": matthews(table),
        "confusion": table.tolist(),
        "examples": len(labels),
    }


def image_metrics(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Return the metrics of `class_metrics`, with `images` instead of `examples`, and top5.

    top5 is the fraction of images whose label is among the five most probable classes.
    """
    metrics = class_metrics(logits, labels)
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


def score_classes(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Deprecated: use class_metrics."""
    message = "evaluation.labels.score_classes is deprecated: use class_metrics"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return class_metrics(logits, labels)
