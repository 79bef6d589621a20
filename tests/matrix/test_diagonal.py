"""A few cells of the matrix for the ordinary tests: each option once, each with another kind of file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_training import check, train_by_command, written

DIAGONAL = [
    ("tmx", "translation"),
    ("csv.gz", "causal-lm"),
    ("xlsx", "classification"),
    ("parquet", "token-classification"),
    ("image dataset", "image-classification"),
    ("audio dataset", "ctc"),
]


@pytest.mark.parametrize(("kind", "task"), DIAGONAL)
def test_the_diagonal(kind: str, task: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    path, out = written(kind, task, tmp_path / "data"), tmp_path / "run"
    printed = train_by_command(cli, task, path, out)
    assert "error: " not in printed, printed
    check(task, kind, out, printed)
