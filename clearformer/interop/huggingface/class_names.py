"""What ViT and ResNet have in common: classes by name, and none where a model was saved without its head."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.interop.huggingface.folder import Shapes, read_json


def class_names(folder: Path, n_classes: int) -> list[str]:
    """In the order of the scores; numbers where config.json names none."""
    named = read_json(folder / "config.json", "download it again").get("id2label") or {}
    return [str(named.get(str(k), k)) for k in range(n_classes)]


def class_settings(names: Sequence[str]) -> dict[str, Any]:
    """The lines of config.json that name the classes."""
    return {"id2label": {str(k): name for k, name in enumerate(names)}, "label2id": {n: k for k, n in enumerate(names)}}


def count_classes(shapes: Shapes, head: str) -> int:
    """The rows of the head, as config.json does not say when there are two classes; 0 if there is no head."""
    return (shapes.get(head) or (0,))[0]
