"""What ViT and ResNet have in common: classes by name, and none where a model was saved without its head."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.interop.huggingface.folder import read_json


def class_names(folder: Path, n_classes: int) -> list[str]:
    """In the order of the scores; numbers where config.json names none."""
    named = read_json(folder / "config.json", "download it again").get("id2label") or {}
    return [str(named.get(str(k), k)) for k in range(n_classes)]


def class_settings(names: Sequence[str]) -> dict[str, Any]:
    """The lines of config.json that name the classes."""
    return {"id2label": {str(k): name for k, name in enumerate(names)}, "label2id": {n: k for k, n in enumerate(names)}}


def count_classes(theirs: Mapping[str, Tensor], head: str) -> int:
    """By the rows of the head, as config.json does not say when there are two; 0 if there is no head."""
    return len(theirs[head]) if head in theirs else 0
