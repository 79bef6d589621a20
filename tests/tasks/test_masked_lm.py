"""Text to a BERT and a RoBERTa, through a real training."""

import json
import shutil
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors, save_tensors
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.text_encoder import TextEncoder
from clearformer.recipe import Recipe
from clearformer.tasks.masked_lm import MaskedLMTask
from clearformer.tasks.sampled_text import SampledBatches
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.verbs.inspect import inspect
from clearformer.verbs.load import load

VERBS = {"sees": "trees", "likes": "bones", "hears": "songs"}
ANIMALS = ("dog", "cat", "bird", "fish")


@pytest.fixture(scope="module")
def tales(tmp_path_factory) -> Path:
    """Four hundred tales of two sentences: the second begins with "then", the first with "once"."""
    chance = Random(0)

    def sentence(opening: str) -> str:
        verb = chance.choice(list(VERBS))
        return f"{opening} the {chance.choice(ANIMALS)} {verb} {VERBS[verb]} and {chance.choice(ANIMALS)}"

    path = tmp_path_factory.mktemp("text") / "tales.txt"
    path.write_text("\n\n".join(f"{sentence('once')}\n{sentence('then')}" for _ in range(400)))
    return path


def recipe(path: Path, objective: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **train) -> Recipe:
    table = {
        "data": {"train": {"path": str(path), "documents": "paragraph"}, "held_out": 0.2, "held_out_test": 0.1},
        "text": {"kind": "word", "min_frequency": 1, "extra": ["[MASK]"]} | (text or {}),
        "model": {
            "kind": "bert", "n_layers": 2, "d_model": 36, "d_ff": 46, "n_heads": 3, "max_length": 19, "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        "objective": objective or {},
        "optim": {"lr": 0.01},
        "schedule": {"warmup": 5},
        "train": {"steps": 20, "tokens": 19 * 31, "validate_every": 20, "save_every": 10, "ema": 0.9} | train,
    }  # fmt: skip
    return Recipe.parse(table, "test")


@pytest.fixture(autouse=True)
def no_images(monkeypatch):
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture(scope="module")
def done(tales, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "tales"
    hard = recipe(tales, {"next_sentence": True}, steps=300, validate_every=300, tokens=19 * 61)
    fit.train(hard, out, device="cpu")
    return out


def opened(tales: Path, folder: Path, objective: dict[str, Any] | None = None, **train) -> MaskedLMTask:
    task = fit.prepare(recipe(tales, objective, **train), RunFolder(folder), World(), None, None)
    assert isinstance(task, MaskedLMTask)
    return task


def test_it_finds_words_and_tells_what_follows(done: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    # By frequency alone: of seven words "the", "and", one of two openings, of three verbs and things, two animals.
    unigram = -sum(n * p * log(p) for n, p in ((2, 1 / 7), (2, 1 / 14), (6, 1 / 21), (4, 2 / 28)))
    for scores in (report["valid"], report["test"]):
        assert scores["loss"] < 0.7 * unigram
        assert scores["perplexity"] == pytest.approx(exp(scores["loss"]))
        assert scores["accuracy"] > 0.5
        # Half of the strangers begin with "once", which never follows; the others cannot be told.
        assert 0.6 < scores["next_sentence"] < 0.9


def test_the_words_hidden_for_validation_never_change(done: Path, tales: Path, tmp_path: Path) -> None:
    task, other = opened(tales, tmp_path / "a"), opened(tales, tmp_path / "b", tokens=19 * 7, seed=3)
    one, two = list(task.fixed("valid")), list(other.fixed("valid"))
    assert sum(map(len, one)) == len(task.rows("valid").lengths)
    assert len(one) == len(two)
    assert all(a.tokens.equal(b.tokens) and a.labels.equal(b.labels) for a, b in zip(one, two))  # type: ignore[attr-defined]


def test_evaluate_scores_a_file_as_the_test_split(done: Path, tmp_path: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    test = tmp_path / "test.txt"
    test.write_text("\n\n".join(Recipe.read(done / "recipe.toml").data.read("test")))
    assert clearformer.evaluate(done, text=test, device="cpu") == pytest.approx(report["test"])


def test_a_model_without_a_head_for_words_embeds_texts(tiny_bert: Path, tales: Path, tmp_path: Path) -> None:
    """One without a mask token, too."""
    assert isinstance(load(tiny_bert), TextEncoder)
    with pytest.raises(DataError, match="no mask token"):
        clearformer.evaluate(tiny_bert, text=tales, device="cpu")
    bare = shutil.copytree(tiny_bert, tmp_path / "bare")
    (bare / "recipe.toml").write_text(Recipe.read(bare / "recipe.toml", ["model.word_head=false"]).dump())
    weights, facts = load_tensors(bare / "model.safetensors")
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("word_head.")}
    save_tensors(bare / "model.safetensors", body, facts)
    assert load(bare).embed(["the cat"]).shape == (1, 32)
    with pytest.raises(CheckpointError, match="bare is a text encoder without a language-model head"):
        clearformer.evaluate(bare, text=tales, device="cpu")


def test_every_epoch_hides_other_words_of_the_same_text(tales: Path, tmp_path: Path) -> None:
    task = opened(tales, tmp_path)
    steps = task.steps(World())

    def whole(epoch: int) -> list[str]:
        batches = [batch for position in range(steps.count(epoch)) for batch in steps.load(epoch, position, World())[0]]
        rows: list[str] = []
        for batch in batches:
            assert isinstance(batch, EncoderBatch)
            hidden.setdefault(epoch, set()).update(map(tuple, batch.tokens.tolist()))
            rows += map(str, torch.where(batch.labels < 0, batch.tokens, batch.labels).tolist())
        return sorted(rows)

    hidden: dict[int, set[tuple[int, ...]]] = {}
    assert whole(0) == whole(1)
    assert len(hidden[0] & hidden[1]) < 0.3 * len(hidden[0])


def test_two_ranks_see_what_one_sees(tales: Path, tmp_path: Path) -> None:
    rows = opened(tales, tmp_path, accumulation=2).rows("train")
    steps = Steps(SampledBatches(rows, 19 * 31, 3), 2)
    alone, count = steps.load(1, 2, World())
    for rank in (0, 1):
        (part,), same = steps.load(1, 2, World(rank, 2))
        assert same == count == sum(batch.n_tokens for batch in alone)
        assert part.tokens.equal(alone[rank].tokens)  # type: ignore[attr-defined]


def test_a_cut_training_goes_on_bit_for_bit(tales: Path, goes_on) -> None:
    goes_on(recipe(tales, {"next_sentence": True, "whole_word": True}))


def test_a_head_that_learns_nothing_is_not_built(done: Path, tales: Path, tmp_path: Path) -> None:
    assert any(layer["name"] == "next_sentence_head" for layer in inspect(done)["layers"])
    task = opened(tales, tmp_path)
    assert (task.recipe.model.next_sentence_head, task.recipe.model.pooler) == (False, False)
    assert [metric.name for metric in task.metrics(task.recipe)] == ["loss", "perplexity", "accuracy"]


def test_a_text_whose_words_are_never_drawn_has_no_loss_but_no_nan(tales: Path, tmp_path: Path) -> None:
    task = opened(tales, tmp_path, {"rate": 1e-9})
    batches, count = task.steps(World()).load(0, 0, World())
    assert (batches[0].n_tokens, count) == (0, 1)
    assert np.isfinite(task.rows("train").lengths).all()


def test_mistakes_are_said(tales: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no mask token") as caught:
        fit.train(recipe(tales, text={"extra": []}), tmp_path / "a", device="cpu")
    assert caught.value.hint == 'add one in the recipe: text.extra = ["[MASK]"]'
    (tmp_path / "one.txt").write_text("\n\n".join(f"word number{i}" for i in range(40)))
    with pytest.raises(DataError, match="no document has two sentences"):
        fit.train(recipe(tmp_path / "one.txt", {"next_sentence": True}), tmp_path / "b", device="cpu")
    table = recipe(tales, {"next_sentence": True}).tables()
    table["model"]["next_sentence_head"] = False
    with pytest.raises(ConfigError, match="the model has no next-sentence head"):
        Recipe.parse(table, "test")
    table = recipe(tales).tables()
    for length, said in ((20, "data.length = 20 is more than model.max_length = 19"), (2, "rows of 2 tokens")):
        table["data"]["length"] = length
        with pytest.raises((ConfigError, DataError), match=said):
            fit.train(Recipe.parse(table, "test"), tmp_path / f"length{length}", device="cpu")
