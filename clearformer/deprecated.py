"""Functions that will be removed in the next version. Each one warns and names its replacement."""

import warnings
from pathlib import Path
from typing import Any

from clearformer.verbs.evaluate import evaluate

Name = str | Path


def evaluate_text(model: Name, text: Any, *, device: str = "auto") -> dict[str, Any]:
    warn("evaluate_text", "text")
    return evaluate(model, text=text, device=device)


def evaluate_labels(
    model: Name, labels: Name, *, text_columns: Any = None, label_column: Any = None, device: str = "auto"
) -> dict[str, Any]:
    warn("evaluate_labels", "labels")
    columns = {"text_columns": text_columns, "label_column": label_column}
    return evaluate(model, labels=labels, device=device, **columns)


def evaluate_images(model: Name, images: Name, *, device: str = "auto") -> dict[str, Any]:
    warn("evaluate_images", "images")
    return evaluate(model, images=images, device=device)


def evaluate_speech(model: Name, recordings: Name, *, device: str = "auto") -> dict[str, Any]:
    warn("evaluate_speech", "recordings")
    return evaluate(model, recordings=recordings, device=device)


def warn(name: str, keyword: str) -> None:
    message = f"clearformer.{name} is deprecated: use clearformer.evaluate(model, {keyword}=…)"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
