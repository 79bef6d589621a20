"""A command that is killed at any of its file operations can be repeated; a training, resumed."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import clearformer

DRIVER = Path(__file__).parents[1] / "stop_points.py"
SMALL = ["model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=2"]
SHORT = ["train.steps=4", "train.validate_every=2", "train.save_every=2", "train.log_every=2", "decode.beam=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a model trained on it, and the model as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("stopped")
    words = product(("the dog", "a cat", "a man"), ("sees", "likes", "hears"), ("a tree", "the river"))
    lines = [" ".join(line) for line in words]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines), encoding="utf-8")
    settings = ["text.vocab_size=50", "text.shared=true", *SMALL, *SHORT]
    clearformer.train(pairs=folder / "pairs.tsv", out=folder / "base", settings=settings, exportable=True, device="cpu")
    clearformer.export_model(folder / "base", folder / "hub")
    return folder


def stop_everywhere(folder: Path, every: int, *cases: Any) -> dict[str, Any]:
    """The report of tests/stop_points.py, in a process without threads."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(DRIVER), str(folder / "points"), str(every)]
    ended = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, env=environment, timeout=1800
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    print(json.dumps({name: {**one, "failures": len(one["failures"])} for name, one in report.items()}))
    for name, one in report.items():
        assert not one["failures"], (name, one["failures"])
        assert one["points"] > 1
        assert one["repeats"] > 0
    return report


def trained(name: str, command: list[str]) -> Any:
    """A training: it is repeated as long as it has no checkpoint, and resumed as soon as it has a recipe."""
    resume = ["train", "--resume", "--out", "{out}", "--device", "cpu"]
    return [name, command, [[command, "", "last.safetensors"], [resume, "recipe.toml", ""]]]


def cases(folder: Path) -> dict[str, Any]:
    pairs, more = ["--pairs", str(folder / "pairs.tsv")], ["--out", "{out}", "--device", "cpu"]
    short = [word for setting in SHORT for word in ("--set", setting)]
    small = [word for setting in ("text.vocab_size=50", *SMALL) for word in ("--set", setting)]
    tune = ["finetune", "--model", str(folder / "base"), *pairs, *short, *more, "--method"]
    imported, exported = ["import", str(folder / "hub"), "{out}"], ["export", str(folder / "base"), "{out}"]
    return {
        "train": trained("train", ["train", *pairs, *short, *small, *more]),
        "full": trained("full", [*tune, "full"]),
        "lora": trained("lora", [*tune, "lora"]),
        "import": ["import", imported, [[imported, "", "recipe.toml"]]],
        "export": ["export", exported, [[exported, "", "config.json"]]],
    }


def test_some_stop_points(folder: Path) -> None:
    known = cases(folder)
    stop_everywhere(folder, 7, known["import"], known["export"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["train", "full", "lora", "import", "export"])
def test_many_stop_points(folder: Path, tmp_path: Path, name: str, stop_every: int) -> None:
    """Every eleventh one; `pytest -m slow tests/verbs/test_stop_points.py --stop-every 1` visits all of them."""
    (tmp_path / "points").mkdir()
    stop_everywhere(tmp_path, stop_every, cases(folder)[name])
