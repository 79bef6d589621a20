"""Labelled words to a classifier of words: from scratch, on a trained model, by command and from Python."""

import copy
import json
from math import sqrt
from pathlib import Path
from random import Random

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.classifier import Classifier
from clearformer.handles.tagger import Tagger
from clearformer.loading.open import open_model
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.verbs.load import load, load_as

from ..bounds import float32_bound_of
from .conftest import WORDS

pytestmark = pytest.mark.usefixtures("no_images")
SMALL = [
    "data.held_out=0.2",
    "data.held_out_test=0.2",
    "train.tokens=600",
    "train.steps=150",
    "train.validate_every=50",
    "train.patience=0",
]


def tag(words: list[str]) -> list[str]:
    """`film` after `old` is another film than elsewhere: a word alone does not tell."""
    before = ["", *words]
    return [("A" if previous == "old" else "B") if word == "film" else "O" for previous, word in zip(before, words)]


def sentences(n: int, seed: int) -> list[list[str]]:
    draw = Random(seed)
    found = []
    for _ in range(n):
        words = draw.choices(WORDS, k=draw.randint(1, 5))
        found.append([*words, draw.choice(("old", "new")), "film", *draw.choices(WORDS, k=draw.randint(0, 3))])
    return found


def conll(rows: list[list[str]]) -> str:
    return "\n".join("".join(f"{word}\tX\t{label}\n" for word, label in zip(words, tag(words))) for words in rows)


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "news.conll"
    path.write_text(conll(sentences(900, 3)))
    return path


@pytest.fixture(scope="module")
def run(tiny_bert: Path, news: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tagger"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.finetune(
            tiny_bert, labels=news, out=folder, settings=[*SMALL, "optim.lr=0.005", "model.dropout=0"], device="cpu"
        )
    return folder


def test_a_rule_that_needs_the_context_is_learnt(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert report["test"]["accuracy"] > 0.96
    assert report["test"]["macro_f1"] > 0.85  # 0.6 without the word before
    assert set(report["valid"]) == {"accuracy", "macro_f1", "loss"}
    recipe = Recipe.read(run / "recipe.toml")
    assert (recipe.model.pooling, recipe.objective.kind) == ("none", "token-classification")
    model = load(run)
    assert isinstance(model, Tagger)
    assert model.classes == ["A", "B", "O"]
    told = model.tag([["the", "old", "film"], [], ["a", "film"]])
    assert [[verdicts[0].label for verdicts in words] for words in told] == [["O", "O", "A"], [], ["O", "B"]]
    assert sum(verdict.probability for verdict in told[0][2]) == pytest.approx(1)
    assert model.tag([]) == []


def test_batch_equals_singles_and_long_sentences_are_judged_whole(run: Path) -> None:
    model = load_as(Tagger, run)
    model.model = open_model(run).network.double().eval()
    rows = [*sentences(11, 7), ["film"] * 61]  # of which the model reads 21 at a time
    together = model.logits(rows)
    torch.testing.assert_close(together, torch.cat([model.logits([row]) for row in rows]), atol=1e-10, rtol=0)
    assert len(together) == sum(map(len, rows))


def test_evaluate_counts_words(run: Path, tmp_path: Path) -> None:
    rows = sentences(31, 9)
    (tmp_path / "test.conll").write_text(conll(rows))
    scores = clearformer.evaluate(run, labels=tmp_path / "test.conll", device="cpu")
    assert scores["examples"] == sum(map(len, rows)) == sum(map(sum, scores["confusion"]))
    assert (scores["sentences"], scores["classes"]) == (31, ["A", "B", "O"])
    right = [
        found[0].label == label for row, told in zip(rows, load(run).tag(rows)) for found, label in zip(told, tag(row))
    ]
    assert scores["accuracy"] == pytest.approx(sum(right) / len(right))
    assert 0 < scores["macro_f1"] <= 1
    swapped = "\n".join("".join(f"{label} {word}\n" for word, label in zip(row, tag(row))) + "\n" for row in rows)
    (tmp_path / "swapped.conll").write_text(swapped)
    again = clearformer.evaluate(run, labels=tmp_path / "swapped.conll", text_columns=1, label_column=0, device="cpu")
    assert again == scores


def test_from_scratch_and_from_json_without_configuration(tmp_path: Path) -> None:
    path = tmp_path / "news.jsonl"
    lines = [json.dumps({"tokens": row, "labels": tag(row)}) for row in sentences(300, 5)]
    path.write_text("\n".join(lines))
    recipe = clearformer.plan(labels=path)
    assert (recipe.model.pooling, recipe.text.lowercase) == ("none", False)
    report = clearformer.train(labels=path, out=tmp_path / "run", settings=SMALL, device="cpu")
    assert report["test"]["accuracy"] > 0.9
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == ["A", "B", "O"]


@pytest.mark.parametrize("method", ["lora", "prefix", "head"])
def test_every_method_tunes_it(tiny_bert: Path, news: Path, tmp_path: Path, method: str) -> None:
    settings = [*SMALL, "train.steps=4", "train.validate_every=4"]
    report = clearformer.finetune(
        tiny_bert, labels=news, method=method, out=tmp_path / "run", settings=settings, device="cpu"
    )
    assert report["trainable"] < report["parameters"] / 3
    assert len(load(tmp_path / "run").tag([["the", "film"]])[0]) == 2


def test_the_loss_is_a_mean_over_words(run: Path, news: Path) -> None:
    """Training divides by the words of a step, so that its loss is that of validation."""
    task = fit.prepare(Recipe.read(run / "recipe.toml"), RunFolder(run), World(), None, None)
    batches, count = task.steps(World()).load(0, 0, World())
    assert count == sum(batch.n_tokens for batch in batches)
    assert count > len(batches[0])


def test_mistakes_are_said(run: Path, news: Path, reviews: Path, tiny_bert: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.conll").write_text("the X O\nfilm X C\n")
    with pytest.raises(DataError, match="not occur in the training data: `C`"):
        clearformer.evaluate(run, labels=tmp_path / "odd.conll", device="cpu")
    with pytest.raises(DataError, match="1 label in the test data does not occur in the training data: `C`"):
        clearformer.finetune(tiny_bert, labels=news, test=tmp_path / "odd.conll", out=tmp_path / "no", device="cpu")
    with pytest.raises(DataError, match="unsupported file type for labelled words"):
        clearformer.evaluate(run, labels=reviews, device="cpu")
    with pytest.raises(DataError, match="labels words, not pairs"):
        clearformer.classify(run, ["a film"], ["a plot"])
    with pytest.raises(CheckpointError, match="is a tagger: it cannot score"):
        clearformer.score(run, ["a film"])
    with pytest.raises(CheckpointError, match="is a tagger, not a classifier"):
        load_as(Classifier, run)
    with pytest.raises(ConfigError, match="--beam cannot be used with --labels"):
        clearformer.evaluate(run, labels=news, beam=2, device="cpu")


def climb(words: list[str]) -> list[float]:
    """How high one has come after each word: what a word's value is, all words before it decide."""
    heights, height = [], 0.0
    for word in words:
        height += {"up": 0.5, "down": -0.5}.get(word, 0.0)
        heights.append(height)
    return heights


def climbs(n: int, seed: int) -> list[list[str]]:
    draw = Random(seed)
    return [draw.choices(("up", "down", "rest"), k=draw.randint(1, 7)) for _ in range(n)]


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_a_recurrent_network_learns_the_value_of_every_word(tmp_path: Path, cell: str) -> None:
    """The notes' Σ_t (ŷ_t − y_t)²."""
    rows = [{"tokens": words, "labels": climb(words)} for words in climbs(500, 3)]
    (tmp_path / "climb.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = ["data.regression=true", "text.kind=word", "model.base.d_model=26", "model.base.dropout=0"]
    settings += ["model.dropout=0", "optim.lr=0.01", "optim.weight_decay=0", *SMALL]
    report = clearformer.train(
        labels=tmp_path / "climb.jsonl", model=cell, out=tmp_path / "run", settings=settings, device="cpu"
    )
    assert report["test"]["loss"] < 0.05  # squared steps; the values' own variance is near 1
    assert set(report["valid"]) == {"loss", "pearson"}
    model, words = load(tmp_path / "run"), ["up", "up", "rest", "down", "up"]
    assert isinstance(model, Tagger)
    (told,) = model.values([words])
    assert told == pytest.approx(climb(words), abs=0.5)
    (row,) = clearformer.classify(tmp_path / "run", [" ".join(words)])
    assert [one["word"] for one in row["words"]] == words
    assert [one["value"] for one in row["words"]] == pytest.approx(told)
    test = climbs(31, 7)
    (tmp_path / "test.conll").write_text(
        "\n".join("".join(f"{w} {y}\n" for w, y in zip(words, climb(words))) for words in test)
    )
    scores = clearformer.evaluate(tmp_path / "run", labels=tmp_path / "test.conll", device="cpu")
    squares = [
        (ours - right) ** 2 for words, row in zip(test, model.values(test)) for ours, right in zip(row, climb(words))
    ]
    loss = sum(squares) / len(squares)

    def values(network: torch.nn.Module) -> torch.Tensor:
        twin = copy.copy(model)
        twin.model = network
        return twin.logits(test)

    off = float32_bound_of(open_model(tmp_path / "run").network.eval(), values, n_terms=52)  # features of both ways
    assert scores["loss"] == pytest.approx(loss, abs=2 * off * sqrt(loss))  # (y + δ)² − y² = 2 y δ, and y is √loss
    assert (scores["sentences"], scores["examples"]) == (31, len(squares))
