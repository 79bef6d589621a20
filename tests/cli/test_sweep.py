"""`clearformer sweep`, from its options to the table that it prints."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearformer.cli.columns import in_columns
from clearformer.cli.sweep import cells

CliCall = Callable[..., Any]


def test_the_table_names_metrics_settings_and_failures() -> None:
    rows = [
        {"name": "001", "settings": {"optim.lr": 0.1}, "score": 31.25, "test": {"bleu": 30.0}, "steps": 1800},
        {"name": "000", "settings": {}, "score": 29.0, "test": {}, "steps": 600},
        {"name": "002", "settings": {"optim.lr": 9.0}, "error": "the training loss is not finite"},
    ]
    table = in_columns(cells({"metric": "bleu", "table": rows}), is_last_left=True)
    assert table.splitlines() == [
        "      bleu  test bleu  steps  settings",
        "001  31.25         30  1,800  optim.lr = 0.1",
        "000     29          –    600  default",
        "002      –          –      0  optim.lr = 9.0 (failed)",
    ]


def test_nothing_to_vary(cli: CliCall) -> None:
    result = cli("sweep", "--pairs", "a.tsv")
    assert result.code != 0
    assert "--over" in result.err


@pytest.mark.slow
def test_by_the_command(cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    words = {"good": ("fine", "nice"), "bad": ("dull", "poor")}
    lines = [f"a {word} film {i}\t{label}" for i in range(60) for label in words for word in words[label]]
    data = tmp_path / "films.tsv"
    data.write_text("\n".join(lines) + "\n")
    over = ("--over", "optim.lr=1e-7,0.003", "--set", "train.steps=30", "--set", "train.validate_every=10")
    result = cli("sweep", "--labels", str(data), "--model", "textcnn", *over, "--out", str(tmp_path / "s"), "--json")
    assert result.code == 0, result.err
    table = json.loads(result.out)["table"]
    assert {row["name"] for row in table} == {"000", "001", "002"}
    assert table[-1]["name"] == "001"  # with this rate, nothing is learnt
    assert (tmp_path / "s" / "best" / "model.safetensors").exists()
