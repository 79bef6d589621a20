"""Text, and pairs with a prefix, to a T5, through a real training."""

import json
from itertools import pairwise
from math import log
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.batch import IGNORE, Batch
from clearformer.data.store import PairStore
from clearformer.errors import DataError
from clearformer.handles.translator import Translator
from clearformer.recipe import Recipe
from clearformer.tasks.span_corruption import SpanCorruptionTask, SpanRows, sentinels
from clearformer.tasks.task import Request
from clearformer.tasks.translation import TranslationTask
from clearformer.text import TextConfig, train_tokenizer
from clearformer.training.distributed import World
from clearformer.verbs.load import load

ROUND = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
EXTRA = [f"<extra_id_{n}>" for n in range(5)]
SIZES: dict[str, Any] = {
    "n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 38, "d_ff": 46, "n_heads": 3, "d_head": 14, "dropout": 0.0,
    "attention_dropout": 0.0, "activation_dropout": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def counting(tmp_path_factory) -> Path:
    """Lines that count in a round from anywhere: what is missing, its neighbours tell."""
    chance, path = Random(0), tmp_path_factory.mktemp("text") / "counting.txt"
    starts = [(chance.randrange(11), chance.randrange(7, 19)) for _ in range(500)]
    path.write_text("\n".join(" ".join(ROUND[(s + i) % 11] for i in range(n)) for s, n in starts))
    return path


def recipe(path: Path, kind: str = "t5", extra: list[str] = EXTRA, length: int = 19, **train) -> Recipe:
    sizes = SIZES if kind == "t5" else {key: value for key, value in SIZES.items() if key != "d_head"} | {"d_model": 36}
    table = {
        "data": {"train": {"path": str(path), "documents": "line"}, "held_out": 0.2, "length": length},
        "text": {"kind": "word", "min_frequency": 1, "extra": extra},
        "model": {"kind": kind, "max_length": 23, **sizes},
        "objective": {"kind": "span-corruption"},
        "optim": {"lr": 0.01},
        "schedule": {"warmup": 5},
        "train": {"steps": 20, "tokens": 19 * 31, "validate_every": 20, "save_every": 10, "ema": 0.9} | train,
    }
    return Recipe.parse(table, "test")


@pytest.fixture(autouse=True)
def no_images(monkeypatch):
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.mark.parametrize("kind", ["t5", "transformer"])
def test_it_learns_what_is_missing(counting: Path, tmp_path: Path, kind: str) -> None:
    fit.train(recipe(counting, kind, steps=150, validate_every=75), tmp_path / "run", device="cpu")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["valid"]["loss"] < 0.4 * log(11)  # by frequency alone, about log 11 for each word
    model = load(tmp_path / "run")
    assert isinstance(model, Translator)
    scores = clearformer.evaluate(tmp_path / "run", text=counting, device="cpu")
    assert scores["loss"] < 0.4 * log(11)
    assert scores["tokens"] > 500
    assert model.start_id == (0 if kind == "t5" else 1)


def test_batches_put_back_together_are_the_text(counting: Path, tmp_path: Path) -> None:
    task = fit.prepare(recipe(counting), RunFolder(tmp_path), World(), None, None)
    assert isinstance(task, SpanCorruptionTask)
    rows = task.rows("valid")
    assert isinstance(rows, SpanRows)
    marks, tok = set(rows.sentinels), task.tokenizer
    batch = rows.batch(np.arange(len(rows.lengths)), np.random.default_rng(3))
    assert batch.source.size(1) <= 19
    lines = set(counting.read_text().splitlines())
    for source, mask, target, labels in zip(batch.source, batch.source_mask, batch.target, batch.labels):
        assert target[0] == tok.pad_id == 0  # a T5 begins with padding
        assert source[mask][-1] == tok.eos_id
        real = labels[labels != IGNORE].tolist()
        assert real[-1] == tok.eos_id
        lost: dict[int, list[int]] = {}
        for token in real[:-1]:
            mark = token if token in marks else mark  # noqa: F821
            lost.setdefault(mark, []).extend([] if token in marks else [token])
        whole = [t for token in source[mask][:-1].tolist() for t in (lost[token] if token in marks else [token])]
        text = tok.decode([whole])[0]
        assert any(text in line for line in lines)  # of one document alone
    assert sum(rows.lengths - 1) == rows.words.n_text_tokens


def test_spans_are_a_function_of_seed_epoch_and_position(counting: Path, tmp_path: Path) -> None:
    task = fit.prepare(recipe(counting), RunFolder(tmp_path), World(), None, None)
    assert isinstance(task, SpanCorruptionTask)
    one, two = task.steps(World()), task.steps(World())
    (a,), n = one.load(2, 1, World())
    (b,), same = two.load(2, 1, World())
    assert isinstance(a, Batch)
    assert isinstance(b, Batch)
    assert a.source.equal(b.source)
    assert a.labels.equal(b.labels)
    assert n == same == a.n_tokens
    fixed = [[batch.source for batch in task.fixed("valid")] for _ in range(2)]  # type: ignore[attr-defined]
    assert all(x.equal(y) for x, y in zip(*fixed))


def test_a_cut_training_goes_on_bit_for_bit(counting: Path, goes_on) -> None:
    goes_on(recipe(counting))


def test_text_to_text_with_prefixes_trains_from_the_command_and_answers(tmp_path: Path) -> None:
    """Two tasks told apart by how the source begins: say it again, or backwards."""
    chance = Random(0)
    rows = []
    for _ in range(400):
        words = chance.sample(ROUND[:5], 2)
        rows += [
            (f"repeat: {' '.join(words)}", " ".join(words)),
            (f"reverse: {' '.join(words)}", " ".join(words[::-1])),
        ]
    (tmp_path / "tasks.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    settings = [f"model.{key}={value}" for key, value in SIZES.items()]
    settings += ["text.kind=word", "text.min_frequency=1", "optim.lr=0.01", "schedule.warmup=10", "train.tokens=600"]
    settings += ["train.steps=300", "train.validate_every=300", "train.ema=0.9", "decode.beam=2"]
    clearformer.train(
        pairs=tmp_path / "tasks.tsv", model="t5-small", out=tmp_path / "run", settings=settings, device="cpu"
    )
    model = load(tmp_path / "run")
    assert model.start_id == model.target_tokenizer.pad_id
    assert model.translate(["repeat: two four", "reverse: two four"]) == ["two four", "four two"]


def test_a_pretrained_t5_learns_a_task_that_the_recipe_names(counting: Path, tmp_path: Path) -> None:
    """The same name stands before every source: those of training, of validation and of whoever asks."""
    fit.train(recipe(counting), tmp_path / "base", device="cpu")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in pairwise(ROUND)) * 13)
    settings = ["data.prefix=eleven ten", "optim.lr=0.01", "train.steps=80", "train.validate_every=80", "train.ema=0.9"]
    report = clearformer.finetune(
        tmp_path / "base", pairs, valid=pairs, out=tmp_path / "run", settings=settings, device="cpu"
    )
    assert report["valid"]["chrf"] > 90
    model, saved = load(tmp_path / "run"), Recipe.read(tmp_path / "run" / "recipe.toml")
    assert (saved.objective.kind, saved.data.filter.max_tokens) == ("translation", 22)
    first = model.source_tokenizer.encode(["eleven ten"])[0]
    store = PairStore(tmp_path / "run" / "data" / "train.safetensors")
    assert store.rows(np.arange(3))[0].flat[:2].tolist() == first
    assert model.translate(["two", ""]) == ["three", ""]
    asked = model.score(["two"], ["three"])
    assert model.align("two", "three").source[:2] == model.source_tokenizer.pieces(first)
    model.prefix = ""
    assert model.score(["eleven ten two"], ["three"]) == asked
    assert model.score(["two"], ["three"]) != asked
    request = Request({"train": {"path": pairs}}, None, [], "cpu", Recipe.parse)
    again = TranslationTask.plan_finetune(request, tmp_path / "run", saved).recipe
    assert again.data.prefix == "eleven ten"


def test_sentinels_are_found_in_order() -> None:
    lines = ["a b <extra_id_1>"]
    tokenizer = train_tokenizer(lines, TextConfig(kind="word", min_frequency=1, extra=("<extra_id_1>", "<extra_id_0>")))
    assert sentinels(tokenizer) == [5, 4]
    assert sentinels(train_tokenizer(lines, TextConfig(kind="word", min_frequency=1))) == []


def test_mistakes_are_said(counting: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="texts of 18 tokens need 2 sentinels, but the tokenizer has 1"):
        fit.train(recipe(counting, extra=EXTRA[:1]), tmp_path / "few", device="cpu")
    with pytest.raises(DataError, match="too short for span corruption"):
        fit.train(recipe(counting, length=2), tmp_path / "short", device="cpu")
