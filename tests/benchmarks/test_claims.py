"""The results of figures have the commit they were computed from, not one that their own images have changed."""

import json
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

import clearformer


def test_results_are_stamped_before_an_image_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def plot(name: str, out: Path, seed: int) -> dict[str, object]:
        out.write_text(f"{name} {seed}")
        return {"title": name, "panels": []}

    (tmp_path / "rates.png").write_text("old")
    git("init")
    git("add", ".")
    git("commit", "-m", "images")
    claims, provenance = import_module("claims"), import_module("provenance")
    monkeypatch.delenv("COMMIT", raising=False)
    monkeypatch.setattr(provenance, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(claims, "IMAGES", tmp_path)
    monkeypatch.setattr(clearformer, "plot", plot)
    monkeypatch.setattr("sys.argv", ["claims.py", "rates", "depth", "--results", str(tmp_path / "results")])
    claims.main()
    for name in ("rates", "depth"):
        result = json.loads((tmp_path / "results" / f"claims-{name}.json").read_text())
        assert result["commit"]
        assert "dirty" not in result["commit"]
        assert "panels" not in result
