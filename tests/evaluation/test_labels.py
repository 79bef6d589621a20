"""What is reported of a classifier, from given logits."""

import pytest
import torch
import torch.nn.functional as F

from clearformer.evaluation.labels import balanced_loss, class_metrics, confident_errors, evaluation, image_metrics

LOGITS = torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 5.0, 0.0], [2.0, 0.0, 1.0], [0.0, 0.0, 4.0]])
LABELS = torch.tensor([0, 2, 0, 2, 2])
CLASSES = ["a", "b", "c"]


def describe(i: int) -> dict[str, int]:
    return {"index": i}


def test_errors_come_by_confidence() -> None:
    errors = confident_errors(LOGITS, LABELS, CLASSES, 20, describe)
    assert [error["index"] for error in errors] == [2, 3, 1]
    assert [(error["label"], error["predicted"]) for error in errors] == [("a", "b"), ("c", "a"), ("c", "b")]
    assert errors[0]["probability"] == pytest.approx(float(LOGITS[2].softmax(-1)[1]))
    assert confident_errors(LOGITS, LABELS, CLASSES, 1, describe) == errors[:1]
    warm = confident_errors(LOGITS, LABELS, CLASSES, 1, describe, temperature=2.0)
    assert warm[0]["probability"] == pytest.approx(float((LOGITS[2] / 2).softmax(-1)[1]))


def test_no_errors() -> None:
    assert confident_errors(LOGITS, LOGITS.argmax(-1), CLASSES, 3, describe) == []


def test_every_class_has_the_same_part_in_the_balanced_loss() -> None:
    losses = F.cross_entropy(LOGITS, LABELS, reduction="none")
    a, c = losses[[0, 2]].mean(), losses[[1, 3, 4]].mean()  # there is no b
    assert balanced_loss(LOGITS, LABELS) == pytest.approx(float((a + c) / 2))
    assert class_metrics(LOGITS, LABELS)["balanced_loss"] == balanced_loss(LOGITS, LABELS)


def test_classes_have_metrics_only_by_name() -> None:
    assert "per_class" not in class_metrics(LOGITS, LABELS)
    rows = class_metrics(LOGITS, LABELS, CLASSES)["per_class"]
    assert [(row["class"], row["support"]) for row in rows] == [("a", 2), ("b", 0), ("c", 3)]
    assert image_metrics(LOGITS, LABELS, CLASSES)["per_class"] == rows


def test_a_temperature_changes_loss_and_calibration_only() -> None:
    plain, warm = (evaluation(LOGITS, LABELS, CLASSES, class_metrics, t) for t in (1.0, 2.0))
    changed = {name for name in warm if name not in plain or warm[name] != plain[name]}
    assert changed == {"loss", "balanced_loss", "ece", "ece_uncalibrated", "reliability", "temperature"}
    assert warm["loss"] == pytest.approx(float(F.cross_entropy(LOGITS / 2, LABELS)))
    assert plain["classes"] == CLASSES
