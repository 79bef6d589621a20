"""The Python on the page about Python runs, from top to bottom, and says what the comments say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clearformer.handles.handle import Handle
from clearformer.tasks import TASKS

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(block, names)
    assert repr(names["model"])[:90] in PAGE
    assert capsys.readouterr().out == f"{names['model']!r}\n"
    assert str(names["model"].verbs).replace("'", '"') in PAGE
    assert f'"{names["model"]("Where is the station?")}"' in PAGE
    assert names["classifier"].predict(["a great film"]).tolist() == ["positive"]
    assert names["metrics"].keys() >= {"loss"}
    assert (tmp_path / "runs" / "mine" / "last.safetensors").exists()
    assert names["search"].best_params_ == {"steps": 30}
    assert table(tmp_path / "runs" / "table" / "metrics.csv") == journal(tmp_path / "runs" / "table" / "metrics.jsonl")


def table(path: Path) -> set[tuple[int, str, float]]:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    return {(int(step), name, float(value)) for step, name, value in rows}


def journal(path: Path) -> set[tuple[int, str, float]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    values = {
        (row["step"], f"{row['kind']}/{name}", value)
        for row in rows
        for name, value in row.items()
        if name not in ("step", "kind")
    }
    assert {name for _, name, _ in values} >= {"train/loss", "valid/accuracy"}
    return values


def subclasses(kind: type[Handle]) -> set[type[Handle]]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


def test_the_table_lists_every_handle_with_its_methods() -> None:
    for name in TASKS.shipped:
        TASKS.resolve(name)  # which imports its handle
    handles = {kind.__name__: kind for kind in subclasses(Handle) if kind.__module__.startswith("clearformer.")}
    rows = {row[0]: row[1:] for line in PAGE.splitlines() if (row := re.findall(r"`(\w+)`", line)) and line[0] == "|"}
    inner = {"Handle", "TextModel", "ImageModel", "Scorer", "Writer", "Chat", "EncoderDecoderWriter"}
    assert set(rows) - {"handle"} == set(handles) - inner
    for name in set(rows) - {"handle"}:
        assert handles[name].main in rows[name]
        assert all(hasattr(handles[name], method) for method in rows[name]), name
