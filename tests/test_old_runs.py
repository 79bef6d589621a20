"""Run folders that version 0.1 wrote, before the upper floors were rebuilt, open and go on as they did.

tests/fixtures/runs-0.1: a translator, a BERT, a LoRA on it, an image classifier; and what that version said with them.
"""

import json
import shutil
from pathlib import Path

import pytest

import clearformer
from clearformer.training.journal import read_metrics

RUNS = Path(__file__).parent / "fixtures" / "runs-0.1"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUNS, tmp_path / "runs"))


def test_a_translator_says_what_it_said() -> None:
    said = (RUNS / "translator.txt").read_text(encoding="utf-8").splitlines()
    translator = clearformer.load(RUNS / "translator")
    assert translator.translate(["the dog sees a tree.", "a bird likes the river."]) == said


def test_an_adapter_finds_its_base_and_says_what_it_said() -> None:
    before = json.loads((RUNS / "reviews-lora.json").read_text())["texts"]
    after = clearformer.classify(RUNS / "reviews-lora", [row["text"] for row in before])
    assert [row["label"] for row in after] == [row["label"] for row in before]
    # A softmax of two scores, each a sum over 16 features of size 1: float32 moves it by far less.
    assert [row["probability"] for row in after] == pytest.approx([row["probability"] for row in before], abs=1e-4)


def test_an_image_classifier_says_what_it_said() -> None:
    (before,) = json.loads((RUNS / "images.json").read_text())["images"]
    (after,) = clearformer.classify(RUNS / "images", [str(RUNS / "image.png")])
    assert after["label"] == before["label"]
    assert after["probability"] == pytest.approx(before["probability"], abs=1e-4)


@pytest.mark.parametrize(("name", "steps"), [("translator", 123), ("bert", 23), ("reviews-lora", 23), ("images", 23)])
def test_a_training_is_resumed(copy: Path, name: str, steps: int) -> None:
    out = copy / name
    report = clearformer.train(resume=True, out=out, settings=[f"train.steps={steps}"], device="cpu")
    assert report["steps"] == steps
    assert {line["step"] for line in read_metrics(out / "metrics.jsonl")} >= {20, steps}


def test_a_model_is_tuned_further(copy: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"the dog sees a book {i}.\tle chien voit un livre {i}.\n" for i in range(40)))
    short = ["train.steps=2", "train.tokens=256"]
    report = clearformer.finetune(copy / "translator", pairs, out=tmp_path / "run", settings=short, device="cpu")
    assert report["steps"] == 2
    assert clearformer.inspect(RUNS / "translator")["parameters"] == report["parameters"]
