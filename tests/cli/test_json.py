"""--json of every verb: one JSON object on stdout, and nothing else there, also without results."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.checkpoint import weights_of
from clearformer.cli import VERBS, app
from clearformer.cli.json_object import finite, print_json
from clearformer.cli.options import Json
from clearformer.interop.torchvision.convert import export_weights
from clearformer.models.build import build_model, model_config

CliCall = Callable[..., Any]
TRAIN = ["--device", "cpu", "--set", "train.steps=2", "--set", "train.validate_every=2"]


@pytest.fixture
def files(tmp_path: Path, corpus: Path, run: Path, hub: Callable[..., Path]) -> dict[str, Any]:
    """Models and data for the commands, by the names that stand for them in COMMANDS."""
    from PIL import Image

    config = model_config("resnet18").changed(n_classes=3, depths=(1, 1), widths=(5, 7), stem_width=5)
    torch.manual_seed(0)
    torch.save(export_weights(weights_of(build_model(config)), config), tmp_path / "net.pth")
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "texts.txt").write_text("the dog sees\nthe cat\n")
    (tmp_path / "other.txt").write_text("the dog\na cat\n")
    names = {name: tmp_path / name for name in ("net.pth", "a.png", "empty.txt", "texts.txt", "other.txt")}
    names |= {"OUT": tmp_path / "out", "OUT.jsonl": tmp_path / "out.jsonl", "OUT.npy": tmp_path / "out.npy"}
    names |= {"RUN": run, "PAIRS": corpus, "TEST": corpus.with_name("test.tsv")}
    return names | {"GPT": hub("gpt2", "gpt"), "BERT": hub("bert", "bert")}


COMMANDS: dict[str, tuple[str, str]] = {
    "train, dry": ("train --pairs PAIRS --dry-run", "model"),
    "train": ("train --pairs PAIRS --out OUT TRAIN SMALL", "run"),
    "finetune": ("finetune --model RUN --pairs PAIRS --out OUT TRAIN", "run"),
    "evaluate": ("evaluate --model RUN --pairs TEST --device cpu", "bleu"),
    "evaluate, systems": ("evaluate --hypotheses texts.txt --hypotheses other.txt --refs texts.txt", "systems"),
    "translate": ("translate --model RUN dog", "translations"),
    "translate, nothing": ("translate --model RUN", "translations"),
    "translate, --out": ("translate --model RUN --input texts.txt --out OUT.jsonl", "out"),
    "generate": ("generate --model GPT --max-new 3 dog", "continuations"),
    "generate, empty file": ("generate --model GPT --input empty.txt", "continuations"),
    "generate, --out": ("generate --model GPT --max-new 3 --input texts.txt --out OUT.jsonl", "out"),
    "score": ("score --model GPT dog cat", "scores"),
    "score, nothing": ("score --model GPT", "scores"),
    "score, --input": ("score --model GPT --input texts.txt", "scores"),
    "score, --out": ("score --model GPT --input texts.txt --out OUT.jsonl", "out"),
    "fill": ("fill --model GPT ___", "words"),
    "repair": ("repair --model GPT dog", "repairs"),
    "embed": ("embed --model BERT dog", "vectors"),
    "embed, nothing": ("embed --model BERT", "vectors"),
    "embed, --out": ("embed --model BERT --input texts.txt --out OUT.npy", "out"),
    "inspect": ("inspect RUN", "layers"),
    "inspect, preset": ("inspect gpt3-175b", "layers"),
    "neighbours": ("neighbours --model RUN dog", "neighbours"),
    "plot": ("plot schedules --out a.png", "title"),
    "import": ("import GPT OUT", "run"),
    "import, classes": ("import net.pth OUT --classes cat,dog,bird", "run"),
    "export": ("export GPT OUT", "folder"),
    "card": ("card RUN --out OUT.jsonl", "card"),
    "doctor": ("doctor", "torch"),
    "bench": ("bench --list", "rows"),
}
ELSEWHERE = {
    "classify": "test_images.py", "transcribe": "test_speech.py", "merge": "test_exchange.py", "demo": "test_json.py",
    "compare": "test_compare.py", "sweep": "test_sweep.py",
}  # fmt: skip
"""Verbs whose models take longer to train, and the tests that read the object which --json prints."""


def test_every_verb_has_json_and_is_tested() -> None:
    tested = {command.split()[0] for command, _ in COMMANDS.values()}
    assert tested | {*ELSEWHERE} == {*VERBS}
    for verb, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        assert f'"{verb}"' in text
        assert '"--json"' in text
    for info in app.registered_commands:
        assert info.callback is not None
        assert inspect.signature(info.callback).parameters["json"].annotation == Json


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_one_object(cli: CliCall, files: dict[str, Any], small: list[str], name: str) -> None:
    line, key = COMMANDS[name]
    lists = {"TRAIN": TRAIN, "SMALL": small}
    words = [part for word in line.split() for part in lists.get(word, [files.get(word, word)])]
    shown = cli(*words, "--json")
    assert shown.code == 0, shown.err
    assert shown.out.count("\n") == 1
    value = json.loads(shown.out, parse_constant=pytest.fail)  # no NaN and no Infinity
    assert isinstance(value, dict)
    assert key in value
    if name.endswith((", nothing", "empty file")):
        assert value[key] == []


@pytest.mark.slow
def test_the_demo_as_json(cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = cli("demo", "--steps", "2", "--set", "train.validate_every=2", "--out", "demo", "--json")
    assert shown.code == 0, shown.err
    assert shown.out.count("\n") == 1
    assert json.loads(shown.out)["run"] == "demo"


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1.5, float("nan")], "b": {"c": (float("inf"), "é")}})
    assert capsys.readouterr().out == '{"a": [1.5, null], "b": {"c": [null, "é"]}}\n'
    assert finite({"n": 3, "t": True}) == {"n": 3, "t": True}
