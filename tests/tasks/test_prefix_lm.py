"""Lines whose first half says what the second is, through a real training."""

import json
from pathlib import Path
from random import Random

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.batch import IGNORE
from clearformer.handles.language_model import LanguageModel
from clearformer.recipe import Recipe
from clearformer.tasks.prefix_lm import PrefixLMTask
from clearformer.training.distributed import World
from clearformer.verbs.load import load

SOUNDS = {"dog": "bark", "cat": "mew", "cow": "moo", "hen": "cluck", "owl": "hoot"}


def recipe(path: Path, **train: int) -> Recipe:
    sizes = {"n_layers": 2, "d_model": 28, "d_ff": 61, "n_heads": 2, "max_length": 31}
    return Recipe.parse(
        {
            "data": {"train": {"path": str(path), "documents": "line"}, "held_out_test": 0.1},
            "text": {"kind": "char", "min_frequency": 1},
            "model": {"kind": "gpt", **sizes, "dropout": 0.0, "attention_dropout": 0.0},
            "objective": {"kind": "prefix-lm"},
            "optim": {"lr": 0.01},
            "schedule": {"warmup": 10},
            "train": {"steps": 200, "tokens": 31 * 23, "validate_every": 100, "log_every": 50, "ema": 0.9} | train,
        },
        "test",
    )


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, draw = tmp_path_factory.mktemp("text") / "lines.txt", Random(3)
    filled = [f"{''.join(draw.choices('xyz', k=draw.randint(0, 5)))}{word}={SOUNDS[word]}\n" for word in [*SOUNDS] * 61]
    path.write_text("".join(draw.sample(filled, len(filled))))
    return path


@pytest.fixture(scope="module")
def done(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "sounds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        fit.train(recipe(lines), out, device="cpu")
    return out


def prepared(recipe: Recipe, folder: Path) -> PrefixLMTask:
    task = fit.prepare(recipe, RunFolder(folder), World(), None, None)
    assert isinstance(task, PrefixLMTask)
    return task


def test_it_learns_to_answer_a_prompt_that_it_reads_both_ways(done: Path) -> None:
    model = load(done)
    assert isinstance(model, LanguageModel)
    assert model.model.config.prompt == "full"
    prompts = [f"{before}{word}=" for before, word in zip(("", "zy", "xyz"), SOUNDS)]
    answers = list(SOUNDS.values())[:3]
    assert [said[0].text for said in model.generate(prompts, max_new=9)] == answers
    assert [model.generate([prompt], max_new=9)[0][0].text for prompt in prompts] == answers


def test_what_is_judged_is_what_comes_after_the_prefix(done: Path, lines: Path, tmp_path: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    windows = prepared(Recipe.read(done / "recipe.toml"), done).split("test")
    assert 0 < report["test"]["tokens"] < windows.n_tokens
    (places,) = windows.whole()
    assert report["test"]["tokens"] == int((windows.batch(places).labels != IGNORE).sum())
    whole = clearformer.evaluate(done, text=lines, device="cpu")  # each word of each line, as of any language model
    assert whole["tokens"] > 0
    assert whole["loss"] > report["test"]["loss"]  # what comes first is anybody's guess


def test_validation_is_the_same_for_every_seed_and_batch_size(lines: Path, tmp_path: Path) -> None:
    found = []
    for i, changes in enumerate(({}, {"seed": 7}, {"tokens": 31})):
        windows = prepared(recipe(lines, **changes), tmp_path / str(i)).split("valid")
        found.append(torch.cat([windows.batch(places).labels for places in windows.whole()]))
    assert found[0].equal(found[1])
    assert found[0].equal(found[2])


def test_the_count_of_a_step_is_that_of_all_its_batches(lines: Path, tmp_path: Path) -> None:
    task = prepared(recipe(lines, accumulation=3), tmp_path)
    batches, count = task.steps(World()).load(0, 0, World())
    assert len(batches) == 3
    assert count == sum(int((batch.labels != IGNORE).sum()) for batch in batches)  # type: ignore[attr-defined]
    for batch in batches:
        assert batch.documents is not None  # type: ignore[attr-defined]
        assert batch.context.any(1).all()  # type: ignore[attr-defined]
