"""Damaged files of every kind: each is read, or refused with one sentence; none hangs or takes much memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf")
pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("soundfile")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux reports it"),
]
HERE = Path(__file__).parent
GROUPS = {"tables", "images", "sounds", "runs", "hub", "tokenizers", "model files", "recipes", "built"}


def run(*options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(HERE / "campaign.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "seeds"


def test_every_kind_is_read_or_refused(seeds: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    result = run("--cases", 1500, "--seed", 1, "--seeds", seeds, "--json", tmp_path / "counts.json")
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-3000:]
    counts: dict[str, Any] = json.loads((tmp_path / "counts.json").read_text())
    assert counts["groups"].keys() == GROUPS
    assert counts["cases"] == 1500
    assert counts["peak_mb"] < 2000
    rows = counts["groups"].values()
    assert all(row["read"] + row["refused"] == row["cases"] for row in rows)
    assert all(row["refused"] > 0 for row in rows)  # the damage is real


def test_a_case_can_be_repeated_alone(seeds: Path) -> None:
    one, two = (run("--seed", 1, "--seeds", seeds, "--case", 7).stdout for _ in range(2))
    keys = ("kind", "target", "file", "damage", "outcome")
    first, second = (json.loads(text[text.index("{") :]) for text in (one, two))
    assert {key: first[key] for key in keys} == {key: second[key] for key in keys}


def test_counts_of_several_campaigns_are_added(seeds: Path, tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    options = ("--cases", 12, "--only", "recipes", "--workers", 1, "--seeds", seeds, "--accumulate", "--json", file)
    for seed in (1, 2):
        assert run(*options, "--seed", seed).returncode == 0
    counts: dict[str, Any] = json.loads(file.read_text())
    assert counts["cases"] == counts["groups"]["recipes"]["cases"] == sum(counts["kinds"].values()) == 24
    assert [(campaign["seed"], campaign["cases"]) for campaign in counts["campaigns"]] == [(1, 12), (2, 12)]
    again = run(*options, "--seed", 2)
    assert again.returncode == 1
    assert "already" in again.stderr
    assert json.loads(file.read_text()) == counts
