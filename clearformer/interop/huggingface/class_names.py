"""Read and write class names of classifiers. An image model saved without a head has no classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.interop.huggingface.folder import Shapes, read_json


def class_names(folder: Path, n_classes: int) -> list[str]:
    """Return the class names in the order of the logits. A class without a name in config.json is called by number."""
    names = read_json(folder / "config.json", "download the file again").get("id2label") or {}
    return [str(names.get(str(k), k)) for k in range(n_classes)]


def class_settings(names: Sequence[str]) -> dict[str, Any]:
    """Return the entries of config.json that hold the class names."""
    return {"id2label": {str(k): name for k, name in enumerate(names)}, "label2id": {n: k for k, n in enumerate(names)}}


def count_classes(shapes: Shapes, head: str) -> int:
    """Return the number of classes, from the shape of the head; 0 without a head. config.json omits it if it is 2."""
    return (shapes.get(head) or (0,))[0]
