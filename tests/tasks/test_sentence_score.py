"""Sentences to a judge of sentences, through a real training."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import load_tensors
from clearformer.errors import ConfigError
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.loading.open import open_model
from clearformer.recipe import Recipe
from clearformer.verbs.inspect import inspect
from clearformer.verbs.load import load, load_as


@pytest.fixture(scope="module")
def sentences(tmp_path_factory) -> Path:
    """Article, noun, verb, article, noun: a word replaced, unless by one of its kind, or left out, breaks the order."""
    chance, path = Random(0), tmp_path_factory.mktemp("text") / "sentences.txt"
    nouns, verbs = ("dog", "cat", "bird", "fish", "man", "girl"), ("sees", "likes", "hears", "finds")
    rows = ((chance.choice(nouns), chance.choice(verbs), chance.choice(nouns)) for _ in range(500))
    path.write_text("\n".join(f"the {a} {verb} the {b}" for a, verb, b in rows))
    return path


def recipe(path: Path, model: dict[str, Any] | None = None, **train) -> Recipe:
    table = {
        "data": {"train": {"path": str(path), "documents": "line"}, "held_out": 0.2, "held_out_test": 0.1},
        "text": {"kind": "word", "min_frequency": 1},
        "model": {
            "kind": "bert", "n_layers": 2, "d_model": 36, "d_ff": 46, "n_heads": 3, "max_length": 13, "dropout": 0.0,
            "attention_dropout": 0.0, "residual": "pre",
        } | (model or {}),
        "objective": {"kind": "sentence-score"},
        "optim": {"lr": 0.005},
        "schedule": {"warmup": 5},
        "train": {"steps": 20, "tokens": 403, "validate_every": 20, "save_every": 10, "ema": 0.9} | train,
    }  # fmt: skip
    return Recipe.parse(table, "test")


@pytest.fixture(autouse=True)
def no_images(monkeypatch):
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture(scope="module")
def done(sentences: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "scorer"
    fit.train(recipe(sentences, steps=200, validate_every=100), out, device="cpu")
    return out


def test_it_tells_real_sentences_from_changed_ones(done: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    for scores in (report["valid"], report["test"]):
        assert scores["accuracy"] > 0.75
        assert scores["loss"] < 0.5


def test_it_begins_with_an_encoder_that_has_no_such_head(sentences: Path, tmp_path: Path) -> None:
    """The body of a BERT that says words, its sizes unsaid, and a head of its own; and back again."""
    said = recipe(sentences, steps=10).tables()
    said["text"] |= {"extra": ["[MASK]"]}
    words = Recipe.parse(said | {"objective": {"kind": "masked-lm"}}, "test")
    fit.train(words, tmp_path / "words", device="cpu")
    for name, base, objective in (("judge", "words", "sentence-score"), ("again", "judge", "masked-lm")):
        sizes = {"model": {"kind": "bert"}, "tuning": {"method": "full", "base": str(tmp_path / base)}}
        still = {"optim": {"lr": 1e-9}, "train": said["train"] | {"steps": 1, "ema": 0.0}}
        fit.train(
            Recipe.parse(said | sizes | still | {"objective": {"kind": objective}}, "test"),
            tmp_path / name,
            device="cpu",
        )
    before, judge, again = (
        load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("words", "judge", "again")
    )
    body = [name for name in before if not name.startswith("word_head.")]
    assert len(body) > 20
    for after in (judge, again):
        for name in body:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-7)
    assert {name.split(".")[0] for name in judge.keys() - before.keys()} == {"pooler", "next_sentence_head"}
    assert again.keys() == before.keys()


def test_score_ranks_by_it(done: Path) -> None:
    judge = load(done)
    assert isinstance(judge, SentenceScorer)
    texts = ["the dog the dog sees", "the dog sees the man", "the sees the man"]
    rows = clearformer.score(done, texts)
    assert rows[0]["text"] == "the dog sees the man"
    assert set(rows[0]) == {"text", "logprob", "tokens", "perplexity"}
    assert rows[0]["logprob"] <= 0
    judge.model = open_model(done).network.double().eval()
    singles = [judge.score([text])[0].logprob for text in texts]
    assert [row.logprob for row in judge.score(texts)] == pytest.approx(singles, abs=1e-10)


def test_evaluate_scores_a_file_as_the_test_split(done: Path, tmp_path: Path) -> None:
    report = json.loads((done / "report.json").read_text())
    test = tmp_path / "test.txt"
    test.write_text("\n".join(Recipe.read(done / "recipe.toml").data.read("test")))
    assert clearformer.evaluate(done, text=test, device="cpu") == pytest.approx(report["test"])


def test_it_fills_gaps_by_the_score_of_the_sentence(done: Path) -> None:
    """The order of its sentences is article, noun, verb: a noun fits after an article, and a verb before one."""
    candidates = ["dog", "sees", "the"]
    rows = clearformer.fill(done, "the ___ sees the man", candidates=candidates)
    assert rows[0]["word"] == "dog"
    scores = {row["text"]: row["logprob"] for row in clearformer.score(done, [row["text"] for row in rows])}
    assert {row["text"]: row["logprob"] for row in rows} == pytest.approx(scores)
    assert clearformer.fill(done, "the dog ___ the man", n=1)[0]["word"] in ("sees", "likes", "hears", "finds")
    repairs = clearformer.repair(done, "the dog the man", n=3)
    assert {row["text"] for row in repairs} & {
        f"the dog {verb} the man" for verb in ("sees", "likes", "hears", "finds")
    }


@pytest.mark.parametrize(
    ("base", "pooling"), [({"kind": "rnn-lm", "cell": "rnn-notes", "n_layers": 1}, "last"), ({"kind": "birnn"}, "ends")]
)
def test_the_notes_scorer_is_an_rnn_with_one_probability(
    base: dict[str, Any], pooling: str, sentences: Path, tmp_path: Path
) -> None:
    """h_t = σ(U x_t + W h_(t−1) + b), ŷ = σ(V h_T + c); and the same with a bidirectional network."""
    table = recipe(sentences, steps=150, validate_every=150).tables()
    sizes = {"d_model": 46, "dropout": 0.0, "max_length": 13}
    table["model"] = {"kind": "classifier", "base": base | sizes, "pooling": pooling, "dropout": 0.0}
    table["optim"] |= {"lr": 0.01}
    scorer = Recipe.parse(table, "test")
    fit.train(scorer, tmp_path / "scorer", device="cpu")
    report = json.loads((tmp_path / "scorer" / "report.json").read_text())
    assert report["valid"]["loss"] < 0.69, "less than log 2, the loss of a coin"
    judge = load(tmp_path / "scorer")
    assert isinstance(judge, SentenceScorer)
    assert judge.model.config.n_classes == 2
    fillings = judge.fill("the ___ sees the man", candidates=["dog", "sees"])
    assert {filling.word for filling in fillings} == {"dog", "sees"}
    with pytest.raises(ConfigError, match="one vector per sentence"):
        Recipe.parse(table | {"model": table["model"] | {"pooling": "none"}}, "test")


def test_it_has_no_head_for_words(done: Path) -> None:
    assert load_as(SentenceScorer, done).name == "scorer"
    names = [layer["name"] for layer in inspect(done)["layers"]]
    assert "next_sentence_head" in names
    assert not any(name.startswith("word_head") for name in names)


def test_a_cut_training_goes_on_bit_for_bit(sentences: Path, goes_on) -> None:
    goes_on(recipe(sentences))


def test_a_model_without_the_head_is_refused(sentences: Path) -> None:
    with pytest.raises(ConfigError, match="needs a BERT with a next-sentence head, or a classifier"):
        recipe(sentences, {"next_sentence_head": False})
