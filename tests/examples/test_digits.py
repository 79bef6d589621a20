"""The autoencoder of digits, in miniature, on gratings; with scikit-learn's digits where it is installed."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_autoencoder.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_autoencoder", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_from_end_to_end(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Light spots: two numbers tell where one is, and no plane holds them."""
    y, x = np.random.default_rng(0).uniform(1, 6, (2, 300, 1, 1))
    grid = np.arange(7)
    spots = 255 * np.exp(-((grid[:, None] - y) ** 2 + (grid - x) ** 2) / 3)
    np.savez(tmp_path / "spots.npz", images=spots.astype("uint8"), labels=(x > 3.5).astype(int).flatten())
    arguments = ["--images", str(tmp_path / "spots.npz"), "--out", str(tmp_path), "--steps", "200", "--numbers", "2"]
    monkeypatch.setattr(sys, "argv", ["digits_autoencoder", *arguments])
    errors = example.main()
    assert json.loads((tmp_path / "errors.json").read_text()) == errors
    assert errors["autoencoder"] < errors["pca"] / 2
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_digits_are_scikit_learns(example: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    with np.load(example.write_digits(tmp_path / "digits.npz")) as file:
        assert file["images"].shape == (1797, 8, 8)
        assert (file["images"].dtype, file["images"].max()) == (np.dtype("uint8"), 255)
        assert set(file["labels"]) == set(range(10))
