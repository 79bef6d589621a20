"""Class names and class counts of image classifiers, for ViT and ResNet. A model saved without a head has none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.interop.huggingface.folder import Shapes, read_json


def class_names(folder: Path, n_classes: int) -> list[str]:
    """The class names in the order of the logits; a class without a name in config.json gets its number."""
    names = read_json(folder / "config.json", "download the file again").get("id2label") or {}
    return [str(names.get(str(k), k)) for k in range(n_classes)]


def class_settings(names: Sequence[str]) -> dict[str, Any]:
    """The entries of config.json with the class names."""
    return {"id2label": {str(k): name for k, name in enumerate(names)}, "label2id": {n: k for k, n in enumerate(names)}}


def count_classes(shapes: Shapes, head: str) -> int:
    """The number of rows of the head, 0 without a head. config.json omits the number if there are two classes."""
    return (shapes.get(head) or (0,))[0]
