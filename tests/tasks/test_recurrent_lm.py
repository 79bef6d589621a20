"""A recurrent language model on running text, through a real training."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.data.batch import TextBatch
from clearformer.data.store import DocumentStore
from clearformer.handles.gaps import fill, repair
from clearformer.loading.open import open_model
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.verbs.load import load

from ..bounds import float32_bound_of

RHYME = "one two buckle my shoe\nthree four knock at the door\n"

pytestmark = pytest.mark.usefixtures("no_images")


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(RHYME * 61)
    return path


def recipe(book: Path, kind: str = "char", **train: Any) -> Recipe:
    settings = {"steps": 20, "tokens": 7 * 11, "validate_every": 10, "save_every": 10, "log_every": 5, "ema": 0.9}
    table = {
        "data": {"train": {"path": str(book)}, "held_out": 0.2, "held_out_test": 0.1, "length": 11},
        "text": {"kind": kind, "min_frequency": 1} | ({"whitespace": "keep"} if kind == "char" else {}),
        "model": {"preset": "lstm", "d_model": 37, "dropout": 0.1, "init": 0.2},
        "optim": {"lr": 0.02},
        "schedule": {"warmup": 5},
        "train": settings | train,
    }
    return Recipe.parse(table, "test")


@pytest.fixture(scope="module")
def done(book, tmp_path_factory) -> Path:
    """A model of words."""
    out = tmp_path_factory.mktemp("run") / "rhyme"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        fit.train(recipe(book, "word", steps=120, validate_every=40), out, device="cpu")
    return out


def test_everything_that_a_gpt_does(done: Path) -> None:
    model = load(done)
    assert model.generate(["one two"], max_new=4)[0][0].text == " buckle my shoe three"
    assert model.generate(["one two", "knock"], max_new=4, beam=3)[1][0].text == " at the door one"
    assert "".join(model.stream("three four", max_new=3)) == " knock at the"
    right, wrong = model.score(["four knock at the door", "four knock at the shoe"])
    assert right.logprob > wrong.logprob
    assert fill(model, "three four ___ at the door")[0].word == "knock"
    assert repair(model, "three knock at the door")[0].text == "three four knock at the door"


def test_the_test_reads_the_whole_text_from_first_to_last(done: Path) -> None:
    """The report, `evaluate --text` and one long pass by hand agree."""
    import json

    store = DocumentStore(done / "data" / "test.safetensors")
    model = open_model(done).network.eval()
    tokens = torch.from_numpy(store.tokens.astype("int64"))[None]
    read = torch.cat([torch.tensor([[store.start_id]]), tokens[:, :-1]], dim=1)

    def loss(network: torch.nn.Module) -> torch.Tensor:
        return -network(TextBatch(read, tokens)).log_softmax(-1).gather(2, tokens[:, :, None]).mean()

    told = json.loads((done / "report.json").read_text())["test"]
    bound = float32_bound_of(model, loss, n_terms=2 * 37)  # what is read and what is remembered, in every gate
    assert told["loss"] == pytest.approx(loss(model).item(), abs=bound, rel=0)
    assert (told["perplexity"], told["tokens"]) == (pytest.approx(exp(told["loss"])), tokens.numel())


def test_evaluate_takes_other_text(done: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(RHYME * 3)
    told = clearformer.evaluate(done, text=tmp_path / "other.txt", device="cpu")
    assert told["tokens"] == 3 * 11 + 1
    assert told["perplexity"] < 2


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_cut_training_goes_on_bit_for_bit(book: Path, goes_on, accumulation: int) -> None:
    """In the middle of an epoch, with a state that has been carried through ten steps, and validations in between."""
    saved = goes_on(recipe(book, accumulation=accumulation, validate_every=5))
    assert {f"carried.{n}" for n in range(accumulation)} < saved


def test_the_state_tells(book: Path, tmp_path: Path) -> None:
    """Forgotten at every batch, the same training goes another way: that the runs above agree says something."""
    results = []
    for forgets in (False, True):
        trainer, task = fit.set_up(recipe(book), RunFolder(tmp_path / str(forgets)), torch.device("cpu"), World(), None)
        inner = trainer.objective

        def objective(model, batch, inner=inner, forgets=forgets):
            return inner(model, replace(batch, continues=None) if forgets else batch)

        trainer.objective = objective
        trainer.train(task.steps(World()))
        results.append(trainer.model.unembedding.weight.detach().clone())
    assert not results[0].allclose(results[1], atol=1e-4)


def run_ranks(arguments: list[str], size: int) -> None:
    """`clearformer train …` on so many processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "clearformer", "train", *arguments, "--device", "cpu"]
    ranks = [
        subprocess.Popen(command, env={**common, "WORLD_SIZE": str(size), "RANK": str(rank)}, stderr=subprocess.DEVNULL)
        for rank in range(size)
    ]
    assert [rank.wait(200) for rank in ranks] == [0] * size


@pytest.mark.slow
def test_two_ranks_carry_what_one_carries_in_two_blocks(book: Path, tmp_path: Path) -> None:
    """Straight on one rank; and ten steps on two, the rest on one, which takes over the batches of both."""
    (tmp_path / "recipe.toml").write_text(recipe(book, "char", precision="float64").dump(), encoding="utf-8")
    plain = [str(tmp_path / "recipe.toml"), "--set", "model.dropout=0", "--set", "schedule.steps=20"]
    two = ["--set", "train.accumulation=2"]
    run_ranks([*plain, *two, "--out", str(tmp_path / "one")], 1)
    run_ranks([*plain, "--set", "train.steps=10", "--out", str(tmp_path / "two")], 2)
    run_ranks(["--resume", "--set", "train.steps=20", "--out", str(tmp_path / "two")], 1)
    ours, theirs = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("one", "two"))
    assert {"carried.0", "carried.1"} < ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-6, atol=1e-9)


def test_documents_of_a_collection_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{a} and {b}\n" for a in "abcdefg" for b in "abcdefg"))
    table = recipe(path).tables()
    table["data"]["train"]["documents"] = "line"
    task = fit.prepare(Recipe.parse(table, "test"), RunFolder(tmp_path / "run"), World(), None, None)
    batch = task.steps(World()).load(0, 1, World())[0][0]
    assert batch.positions is not None
    assert batch.continues.any()


def test_train_text_without_configuration(book: Path, tmp_path: Path) -> None:
    small = ["model.d_model=23", "train.steps=6", "train.validate_every=6", "train.log_every=6"]
    chosen = clearformer.plan(text=book, model="lstm", device="cpu")
    assert (chosen.model.kind, chosen.model.cell, chosen.model.n_layers) == ("rnn-lm", "lstm", 2)
    assert chosen.train.tokens % chosen.data.length == 0
    assert clearformer.plan(text=book, model="gpt", device="cpu") == clearformer.plan(text=book, device="cpu")
    report = clearformer.train(text=book, model="gru", out=tmp_path / "run", settings=small, device="cpu")
    assert report["steps"] == 6
    assert load(tmp_path / "run").model.config.cell == "gru"
