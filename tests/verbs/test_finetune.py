"""A language model goes on with another book: what it learns, what it keeps, and what it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

import clearformer
from clearformer import fit
from clearformer.checkpoint import load_tensors
from clearformer.errors import CheckpointError, ConfigError
from clearformer.recipe import Recipe

FIRST = "one two buckle my shoe\nthree four knock at the door\n"
SECOND = "four shoes at the door\nbuckle three hemmed wool\n"  # of the letters of the first
SIZES = [
    "model.n_layers=2", "model.n_heads=2", "model.d_model=28", "model.d_ff=46", "model.max_length=61",
    "model.dropout=0", "model.attention_dropout=0", "optim.lr=0.02", "schedule.warmup=5", "train.tokens=610",
    "train.steps=100", "train.validate_every=100", "train.ema=0.9",
]  # fmt: skip
LSTM = ["model.d_model=13", "model.n_layers=1", "train.steps=3", "train.validate_every=3"]


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("books")
    for name, lines in (("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.txt").write_text(lines * 61)
    return folder / "first.txt", folder / "second.txt"


@pytest.fixture(scope="module")
def poet(books: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "poet"
    clearformer.train(text=books[0], out=folder, settings=SIZES, device="cpu")
    return folder


@pytest.mark.parametrize(("method", "share"), [("full", 0.5), ("lora", 0.5), ("prefix", 0.8)])
def test_the_second_book_becomes_likelier(
    poet: Path, books: tuple[Path, Path], tmp_path: Path, method: str, share: float
) -> None:
    weights = (poet / "model.safetensors").read_bytes()
    before = clearformer.evaluate(poet, text=books[1], device="cpu")
    report = clearformer.finetune(poet, text=books[1], method=method, out=tmp_path / "run", device="cpu")
    after = clearformer.evaluate(tmp_path / "run", text=books[1], device="cpu")
    assert after["perplexity"] < share * before["perplexity"]
    assert report["valid"]["perplexity"] == pytest.approx(after["perplexity"], rel=0.2)
    assert (poet / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (poet / "tokenizer.json").read_bytes()
    saved, old = (load_tensors(folder / "model.safetensors")[0].keys() for folder in (tmp_path / "run", poet))
    assert saved == old if method == "full" else saved.isdisjoint(old)
    if method == "prefix":
        with pytest.raises(CheckpointError, match="by prefix tuning and cannot be the base model of another run"):
            clearformer.finetune(tmp_path / "run", text=books[0], out=tmp_path / "third", device="cpu")
        assert not (tmp_path / "third" / "data").exists()
    if method == "lora":
        clearformer.merge(tmp_path / "run", tmp_path / "merged")
        merged = clearformer.evaluate(tmp_path / "merged", text=books[1], device="cpu")
        assert merged["loss"] == pytest.approx(after["loss"], abs=1e-6)


def test_letters_that_it_does_not_know_are_counted(
    poet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sums.txt").write_text("2+2 four\n" * 101)
    settings = ["train.steps=1", "data.held_out=0.5"]
    clearformer.finetune(poet, text=tmp_path / "sums.txt", out=tmp_path / "run", settings=settings, device="cpu")
    assert "train: 455 tokens in 1 document, 34 % unknown" in capsys.readouterr().err


def test_an_lstm_goes_on_whole_or_not_at_all(books: tuple[Path, Path], tmp_path: Path) -> None:
    clearformer.train(text=books[0], model="lstm", out=tmp_path / "lstm", settings=LSTM, device="cpu")
    for method, said in (("lora", "no layer `q` to adapt"), ("prefix", "has no attention layers")):
        with pytest.raises(ConfigError, match=rf"{said}(?s:.*)--method full"):
            clearformer.finetune(tmp_path / "lstm", text=books[1], method=method, out=tmp_path / method, device="cpu")
        assert not (tmp_path / method).exists()
    report = clearformer.finetune(
        tmp_path / "lstm", text=books[1], out=tmp_path / "run", settings=["train.steps=31"], device="cpu"
    )
    before, after = (clearformer.evaluate(tmp_path / name, text=books[1], device="cpu") for name in ("lstm", "run"))
    assert after["loss"] < before["loss"]
    assert report["steps"] == 31


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "bert"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_model_from_elsewhere_goes_on_too(hub: Callable[..., Path], tmp_path: Path, kind: str, method: str) -> None:
    """Its tables have rows to spare, and its folder does not say what it was trained by."""
    specials = {"t5": [f"<extra_id_{n}>" for n in range(2)], "bert": ["[MASK]"]}.get(kind, [])
    base = hub(kind, specials=specials)
    text = tmp_path / "other.txt"
    text.write_text("the dog sees a tree\na man hears the river\n" * 61)
    settings = ["train.steps=7", "data.length=29", "train.tokens=290"]
    report = clearformer.finetune(
        base, text=text, test=text, method=method, out=tmp_path / "run", settings=settings, device="cpu"
    )
    assert report["test"]["loss"] > 0
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert recipe.objective.kind == {"t5": "span-corruption", "bert": "masked-lm"}.get(kind, "causal-lm")
    assert recipe.tuning is not None
    assert recipe.tuning.method == method
