"""Running text to a language model, through a real training."""

from dataclasses import replace
from math import exp, inf
from pathlib import Path

import pytest

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data.corpora import TextCorpora
from clearformer.data.store import DocumentStore
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.translator import Translator
from clearformer.metric import perplexity
from clearformer.models.build import build_model
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.verbs.load import load, load_as

PTB = Path(__file__).parents[2].parent / "shared" / "data" / "ptb"
RHYME = "one two buckle my shoe\nthree four knock at the door\n"


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(RHYME * 61)
    return path


def recipe(book: Path, **train) -> Recipe:
    table = {
        "data": {"train": {"path": str(book)}, "held_out": 0.2, "held_out_test": 0.1},
        "text": {"kind": "char", "whitespace": "keep", "min_frequency": 1},
        "model": {
            "kind": "gpt",
            "n_layers": 2,
            "d_model": 28,
            "d_ff": 46,
            "n_heads": 2,
            "max_length": 23,
            "dropout": 0.0,
        },
        "optim": {"lr": 0.02},
        "schedule": {"warmup": 5},
        "train": {"steps": 60, "tokens": 31 * 11, "validate_every": 20, "save_every": 10, "log_every": 10, "ema": 0.9}
        | train,
    }
    return Recipe.parse(table, "test")


@pytest.fixture(autouse=True)
def no_images(monkeypatch):
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture(scope="module")
def done(book, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "rhyme"
    fit.train(recipe(book, steps=160, validate_every=40), out, device="cpu")
    return out


def test_it_learns_to_say_a_rhyme(done: Path) -> None:
    model = load(done)
    assert isinstance(model, LanguageModel)
    said = model.generate(["two buckle"], max_new=30)[0][0].text
    assert said.startswith(" my shoe\nthree")
    right, wrong = model.score(["four knock at the door", "four knock at the shoe"])
    assert right.logprob > wrong.logprob


def test_the_report_tells_loss_and_perplexity_of_held_out_text(done: Path) -> None:
    import json

    report = json.loads((done / "report.json").read_text())
    assert report["test"]["perplexity"] == pytest.approx(exp(report["test"]["loss"]))
    assert report["test"]["tokens"] == len(DocumentStore(done / "data" / "test.safetensors").tokens)
    assert report["valid"]["loss"] < 1.0
    losses = [line["loss"] for line in read_metrics(done / "metrics.jsonl") if line["kind"] == "valid"]
    assert losses == sorted(losses, reverse=True)
    assert {path.name for path in (done / "data").iterdir()} == {f"{s}.safetensors" for s in ("train", "valid", "test")}


def test_a_perplexity_that_no_float_holds_is_infinite() -> None:
    assert perplexity(709.0) == exp(709.0)
    assert perplexity(710.0) == inf


def test_the_parts_of_a_book_are_the_book(book: Path) -> None:
    data = recipe(book).data
    parts = [list(data.read(split)) for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [1, 1, 1]
    assert "".join(part[0] for part in parts) == RHYME * 61
    assert len(parts[1][0]) / len(RHYME * 61) == pytest.approx(0.2, abs=0.01)


def test_of_a_collection_whole_documents_are_held_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"document {i}\n" for i in range(400)))
    data = TextCorpora.parse({"train": {"path": path, "documents": "line"}, "held_out": 0.25}, "[data]")
    train, valid, test = (list(data.read(split)) for split in ("train", "valid", "test"))
    assert sorted(train + valid) == sorted(f"document {i}" for i in range(400))
    assert 60 < len(valid) < 140
    assert test == []


def test_files_of_their_own_are_not_held_out(book: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("other words")
    data = TextCorpora.parse(
        {"root": tmp_path, "train": {"path": book}, "valid": {"path": "other.txt"}, "test": {"path": "other.txt"}}, "x"
    )
    assert list(data.read("train")) == [RHYME * 61]
    assert list(data.read("valid")) == list(data.read("test")) == ["other words"]


def test_a_cut_training_goes_on_bit_for_bit(book: Path, goes_on) -> None:
    goes_on(recipe(book, steps=20))


def test_documents_begin_and_end_and_the_pages_of_a_book_do_not(done: Path, tmp_path: Path) -> None:
    """A prompt is read as a text of the training was: after BOS, or from the middle of things."""
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{a} and {b}\n" for a in "abcdefg" for b in "abcdefg"))
    recipe_of_lines = recipe(lines, steps=4, validate_every=4).data.changed(
        train={"path": lines, "documents": "line"}, held_out_test=0.0
    )
    fit.train(replace(recipe(lines, steps=4, validate_every=4), data=recipe_of_lines), tmp_path / "run", device="cpu")
    book, collection = load(done), load(tmp_path / "run")
    tok = collection.tokenizer
    assert collection.encode("a") == [tok.bos_id, *tok.encode(["a"])[0]]
    assert book.encode("o") == book.tokenizer.encode(["o"])[0]
    assert [model.score(["a"])[0].tokens for model in (book, collection)] == [1, 2]
    store = DocumentStore(tmp_path / "run" / "data" / "train.safetensors")
    assert store.start_id == tok.bos_id


def test_a_language_model_is_not_a_translator(done: Path) -> None:
    with pytest.raises(CheckpointError, match="is a language model, not a translator") as caught:
        load_as(Translator, done)
    verbs = "generate, score, fill, repair, embed, evaluate, neighbours, plot"
    assert caught.value.hint == f"a language model supports {verbs}"


def test_mistakes_are_said(done: Path, book: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.metric = `bleu` is not a metric of this task"):
        fit.prepare(recipe(book, metric="bleu"), RunFolder(tmp_path), World(), None, None)
    (tmp_path / "short.txt").write_text("a b c a b c")
    with pytest.raises(ConfigError, match="--beam cannot be used with --text"):
        clearformer.evaluate(done, text=book, beam=3, device="cpu")
    with pytest.raises(DataError, match="do not fill one window"):
        fit.train(recipe(tmp_path / "short.txt"), tmp_path / "run", device="cpu")


def test_joined_lines_may_be_looked_back_at(book: Path, tmp_path: Path) -> None:
    table = recipe(book).tables()
    lines = {"path": str(book), "documents": "line"}
    table["data"] = {"joined": True, "train": lines, "valid": lines}
    task = fit.prepare(Recipe.parse(table, "test"), RunFolder(tmp_path), World(), None, None)
    batches, _ = task.steps(World()).load(0, 0, World())
    assert batches[0].documents is None  # type: ignore[attr-defined]
    eos = task.tokenizer.eos_id
    assert (batches[0].tokens == eos).any(1).any()  # type: ignore[attr-defined]


@pytest.mark.skipif(not PTB.exists(), reason="needs ../shared/data/ptb")
@pytest.mark.data
def test_the_penn_treebank_has_its_known_counts(tmp_path: Path) -> None:
    """10,000 kinds of token with <eos>, and the numbers of tokens that every paper on it counts."""
    ptb = Recipe.read(Path(__file__).parents[2] / "recipes" / "ptb-gpt.toml", [f"data.root={PTB}"])
    task = fit.prepare(ptb, RunFolder(tmp_path), World(), None, None)
    stores = {split: DocumentStore(tmp_path / "data" / f"{split}.safetensors") for split in ("train", "valid", "test")}
    assert {split: len(store.tokens) for split, store in stores.items()} == {
        "train": 929_589, "valid": 73_760, "test": 82_430,
    }  # fmt: skip
    kinds = set(stores["train"].tokens.tolist())
    assert len(kinds) == 10_000
    assert set(stores["valid"].tokens.tolist()) | set(stores["test"].tokens.tolist()) <= kinds
    tokenizer = task.tokenizer
    assert tokenizer.vocab_size == 10_002
    assert kinds == {*range(10_002)} - {tokenizer.pad_id, tokenizer.bos_id}
    assert {tokenizer.unk_id, tokenizer.eos_id, tokenizer.id_of("N")} < kinds
    assert sum(p.numel() for p in build_model(task.recipe.model).parameters()) < 20e6
