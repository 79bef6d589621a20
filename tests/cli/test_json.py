"""--json of every verb: one JSON object on stdout, and nothing else there, also without results."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.cli import VERBS, app
from clearformer.cli.json_object import finite, print_json
from clearformer.cli.options import Json
from clearformer.interop.torchvision.convert import export_weights
from clearformer.models.build import build_model, model_config

from ..tasks.tones import RECIPE, write_tones

CliCall = Callable[..., Any]
SHORT = [
    "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=28", "model.d_ff=46", "model.n_heads=2",
    "model.max_length=67", "data.filter.max_tokens=61", "text.vocab_size=97", "text.min_frequency=1",
]  # fmt: skip
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
    (tmp_path / "films.tsv").write_text("".join(f"a good film {i}\tgood\na bad film {i}\tbad\n" for i in range(60)))
    (tmp_path / "compare.toml").write_text(f"settings = {SHORT}\nbudget.steps = 2\ncontenders.a.recipe = 'a.toml'\n")
    (tmp_path / "a.toml").write_text(f"[data]\ntrain = {{path = '{corpus}'}}\ntest = {{path = '{corpus}'}}\n")
    names |= {name: tmp_path / name for name in ("films.tsv", "compare.toml")}
    return names | {"GPT": hub("gpt2", "gpt"), "BERT": hub("bert", "bert")}


@pytest.fixture(scope="module")
def models(run: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Models that have to be trained first, for the commands that name them: two steps each."""
    folder = tmp_path_factory.mktemp("trained")
    short = {"device": "cpu", "settings": ["train.steps=2", "train.validate_every=2"]}
    films = [(f"a {label} film {i}", label) for i in range(30) for label in ("good", "bad")]
    tales = [f"The dog {i} sees. The cat {i} sleeps. The man {i} eats." for i in range(60)]
    sizes = ["model.n_layers=1", "model.d_model=28", "model.d_ff=46", "model.n_heads=2", "text.vocab_size=300"]
    reading = [*short["settings"], *sizes, "objective.next_sentence=true", "data.sentences=mark"]

    def eye(out: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 9, 9), "uint8")
        clearformer.train(images=(pixels, np.arange(40) % 2), out=out, **short)

    def ear(out: Path) -> None:
        write_tones(folder, 40, 1)
        recipe = {"data": {"train": {"path": str(folder / "list-1.tsv")}, "held_out": 0.2}, **RECIPE}
        (folder / "tones.toml").write_text(tomli_w.dumps(recipe))
        clearformer.train(folder / "tones.toml", out=out, **short)

    trainings: dict[str, Callable[[Path], object]] = {
        "CRITIC": lambda out: clearformer.train(labels=films, out=out, **short),
        "READER": lambda out: clearformer.train(text=tales, model="bert", out=out, device="cpu", settings=reading),
        "EYE": eye,
        "EAR": ear,
        "LORA": lambda out: clearformer.finetune(run, pairs=corpus, method="lora", out=out, **short),
    }

    def trained(line: str) -> dict[str, Path]:
        for name in trainings.keys() & line.split():
            if not (folder / name).exists():
                trainings[name](folder / name)
        return {name: folder / name for name in trainings} | {"a.wav": folder / "1-0.wav"}

    return trained


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
    "follows": ("follows --model READER dog cat", "next"),
    "merges": ("merges low lower", "merges"),
    "notes": ("notes apple", "examples"),
    "verify": ("verify RUN", "faults"),
    "repair": ("repair --model GPT dog", "repairs"),
    "embed": ("embed --model BERT dog", "vectors"),
    "embed, nothing": ("embed --model BERT", "vectors"),
    "embed, --out": ("embed --model BERT --input texts.txt --out OUT.npy", "out"),
    "inspect": ("inspect RUN", "layers"),
    "inspect, preset": ("inspect gpt3-175b", "layers"),
    "lens": ("lens attention --model RUN dog", "layers"),
    "lens, list": ("lens list --model RUN", "activations"),
    "neighbours": ("neighbours --model RUN dog", "neighbours"),
    "plot": ("plot schedules --out a.png", "title"),
    "import": ("import GPT OUT", "run"),
    "import, classes": ("import net.pth OUT --classes cat,dog,bird", "run"),
    "export": ("export GPT OUT", "folder"),
    "card": ("card RUN --out OUT.jsonl", "card"),
    "doctor": ("doctor", "torch"),
    "bench": ("bench --list", "rows"),
    "classify": ("classify --model CRITIC film", "texts"),
    "classify, nothing": ("classify --model CRITIC", "texts"),
    "classify, --out": ("classify --model CRITIC --input texts.txt --out OUT.jsonl", "out"),
    "classify, images": ("classify --model EYE a.png", "images"),
    "transcribe": ("transcribe --model EAR a.wav", "recordings"),
    "merge": ("merge LORA OUT", "base"),
    "compare": ("compare compare.toml --out OUT --device cpu", "runs"),
    "sweep": ("sweep --labels films.tsv --over optim.lr=0.001,0.002 --out OUT --model textcnn TRAIN", "table"),
    "plan": ("plan --pairs PAIRS --device h100", "memory_mb"),
    "data": ("data build --pairs PAIRS --out OUT", "shards"),
    "demo": ("demo --steps 2 --set train.validate_every=2 --out OUT", "run"),
}
SLOW = {"demo", "compare", "sweep"}  # they train in processes of their own, or for longer


ENDLESS = {"serve", "studio"}
"""Verbs that run until they are stopped have no result."""


def test_every_verb_has_json_and_is_tested() -> None:
    assert {command.split()[0] for command, _ in COMMANDS.values()} == {*VERBS} - ENDLESS
    for info in app.registered_commands:
        assert info.callback is not None
        if info.callback.__name__ in ENDLESS:
            continue
        assert inspect.signature(info.callback).parameters["json"].annotation == Json


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in COMMANDS]
)
def test_json_is_one_object(
    cli: CliCall,
    files: dict[str, Any],
    models: Callable[[str], dict[str, Path]],
    small: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    line, key = COMMANDS[name]
    files |= models(line)
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


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1.5, float("nan")], "b": {"c": (float("inf"), "é")}})
    assert capsys.readouterr().out == '{"a": [1.5, null], "b": {"c": [null, "é"]}}\n'
    assert finite({"n": 3, "t": True}) == {"n": 3, "t": True}
