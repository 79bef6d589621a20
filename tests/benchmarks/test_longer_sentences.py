"""Kinds of positions that are compared on sentences longer than in training."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from clearformer.claims import agreement


@pytest.fixture
def longer() -> Any:
    return import_module("longer_sentences")


def test_the_networks_differ_in_nothing_but_positions(longer: Any) -> None:
    built: dict[str, Any] = {
        kind: agreement.transformer(20, kind).config for kinds in longer.KINDS.values() for kind in kinds
    }
    assert {config.positions.kind for config in built.values()} == set(built)
    same = {kind: config.model_dump(exclude={"positions"}) for kind, config in built.items()}
    assert all(config == same["sinusoidal"] for config in same.values())


def test_the_script_in_miniature(longer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"STEPS": 2, "SENTENCES": 40, "TESTS": 10}.items():
        monkeypatch.setattr(agreement, name, value)
    monkeypatch.setattr("sys.argv", ["longer_sentences.py", "--seeds", "0", "1", "--out", str(tmp_path / "out.json")])
    longer.main()
    result = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    for kind in ("sinusoidal", "rotary", "alibi", "t5", "none"):
        assert result[kind].keys() == {f"{low}-{high}" for low, high in agreement.BINS}
        for row in result[kind].values():
            assert len(row["seeds"]) == 2
            assert row["mean"] == pytest.approx(sum(row["seeds"]) / 2, abs=1e-4)
