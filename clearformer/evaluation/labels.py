"""The scores of a classifier, or of a regression, from what its head says."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from clearformer.evaluation.metrics.confusion import accuracy, confusion, macro_f1, matthews
from clearformer.evaluation.metrics.pearson import pearson


def score_classes(scores: Tensor, answers: Tensor) -> dict[str, Any]:
    """scores (N, C), answers (N,): loss (natural log, a text), accuracy, macro_f1, matthews, confusion, examples."""
    table = confusion(answers.tolist(), scores.argmax(-1).tolist(), scores.size(-1))
    return {
        "loss": float(F.cross_entropy(scores, answers)),
        "accuracy": accuracy(table),
        "macro_f1": macro_f1(table),
        "matthews": matthews(table),
        "confusion": table.tolist(),
        "examples": len(answers),
    }


def score_images(scores: Tensor, answers: Tensor) -> dict[str, Any]:
    """The same of pictures, which are counted as `images`; top5: how often the answer is among the five likeliest."""
    classes = score_classes(scores, answers)
    five = scores.topk(min(5, scores.size(-1))).indices
    top5 = float((five == answers[:, None]).any(1).double().mean())
    return {"accuracy": classes.pop("accuracy"), "top5": top5, "images": classes.pop("examples"), **classes}


def score_values(scores: Tensor, answers: Tensor) -> dict[str, Any]:
    """scores (N, 1), answers (N,): loss (mean of squares), pearson, examples."""
    values = scores[:, 0]
    return {
        "loss": float((values - answers).square().mean()),
        "pearson": pearson(values.tolist(), answers.tolist()),
        "examples": len(answers),
    }
