"""A speech recogniser with nothing configured: what is chosen, what is learnt, what is refused."""

from pathlib import Path

import pytest

import clearformer
from clearformer import fit
from clearformer.errors import ConfigError
from clearformer.recipe import Recipe

from ..tones import write_tones

SMALL = ["model.n_layers=1", "model.d_model=26", "model.dropout=0", "sound.n_mels=11", "sound.window=0.032"]
SMALL += ["sound.hop=0.016", "optim.lr=0.02", "train.tokens=300", "train.steps=150", "train.validate_every=50"]


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tones")
    return write_tones(folder, 61, 1), write_tones(folder, 29, 2)


@pytest.fixture(scope="module")
def run(tones: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tones"
    clearformer.train(recordings=tones[0], out=out, settings=SMALL, device="cpu")
    return out


def test_words_are_the_vocabulary_where_there_are_few(
    tones: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = clearformer.plan(recordings=tones[0])
    assert (recipe.text.kind, recipe.sound.rate, recipe.model.preset) == ("word", 2000, "speech-lstm")
    said = capsys.readouterr().err.replace("\n", " ")
    for words in ("recordings, about", "speech-lstm", "2,000 Hz", "word tokens", "peak learning rate 0.003"):
        assert words in said


def test_letters_are_where_there_are_many(tones: tuple[Path, Path], tmp_path: Path) -> None:
    names = [line.split("\t")[0] for line in tones[0].read_text().splitlines()]
    lines = [f"{tones[0].parent / name}\tword{i} number{i}\n" for i, name in enumerate(names)]
    (tmp_path / "many.tsv").write_text("".join(lines))
    assert clearformer.plan(recordings=tmp_path / "many.tsv").text.kind == "char"


def test_it_hears_and_is_tuned_further(run: Path, tones: tuple[Path, Path], tmp_path: Path) -> None:
    before = clearformer.evaluate(run, recordings=tones[1], device="cpu")
    assert before["wer"] < 0.2
    short = ["train.steps=20", "train.tokens=300"]
    clearformer.finetune(run, recordings=tones[1], out=tmp_path / "more", settings=short, device="cpu")
    tuned, old = (Recipe.read(path / "recipe.toml") for path in (tmp_path / "more", run))
    assert (tuned.model, tuned.text, tuned.sound) == (old.model, old.text, old.sound)
    assert clearformer.evaluate(tmp_path / "more", recordings=tones[1], device="cpu")["wer"] <= before["wer"] + 0.05


def test_what_cannot_hear_is_refused(run: Path, tones: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a model for causal-lm, not for speech"):
        clearformer.plan(recordings=tones[0], model="gpt2")
    with pytest.raises(ConfigError, match="has no attention layers"):
        clearformer.finetune(run, recordings=tones[1], method="prefix", out=tmp_path / "x", device="cpu")
    (tmp_path / "recipe.toml").write_text('[origin]\nsource = "elsewhere"\n[model]\nkind = "gpt"\n')
    with pytest.raises(ConfigError, match="is a model for causal-lm, not for speech"):
        clearformer.finetune(tmp_path, recordings=tones[1], device="cpu")
