"""What the soak forgives: a run that is killed may refuse to be opened; the run that nobody disturbs may not."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

USED = [{"did": "translate"}, {"did": "evaluate"}]
NO_MODEL = {"did": "refused", "error": "it has no model.safetensors"}


def failures(folder: Path, *lines: dict[str, Any]) -> list[str]:
    """The failures of a soak whose reading process has printed these lines."""
    soak = import_module("soak").Soak(folder, 0)
    soak.peaks = [1.0, 1.0]
    rows = [{**line, "at": float(i), "mb": 1.0} for i, line in enumerate(lines)]
    (folder / "reader.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found: list[str] = soak.facts(60)["failures"]
    return found


def test_only_the_disturbed_run_may_refuse(tmp_path: Path) -> None:
    assert failures(tmp_path, *USED, {**NO_MODEL, "folder": "run"}) == []


@pytest.mark.parametrize("did", ["refused", "failed"])
def test_the_undisturbed_run_may_not_refuse(tmp_path: Path, did: str) -> None:
    lines = *USED, {**NO_MODEL, "did": did, "folder": "straight"}
    assert failures(tmp_path, *lines) == ["reader, straight: it has no model.safetensors"]


@pytest.mark.parametrize("done", [[], [0], [1]])
def test_a_soak_must_have_translated_and_evaluated(tmp_path: Path, done: list[int]) -> None:
    missing = [line["did"] for i, line in enumerate(USED) if i not in done]
    expected = [f"the reading process did not {what} once" for what in missing]
    assert failures(tmp_path, *(USED[i] for i in done)) == expected
