"""Recordings to a model of speech: learnt, resumed to the bit, heard again from files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer import fit
from clearformer.data.audio import read_sound
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.recipe import Recipe, override
from clearformer.verbs.load import load, load_as

from .tones import RATE, RECIPE, tone, write_tones, write_wav

pytestmark = pytest.mark.usefixtures("no_images")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    for n, seed in ((60, 1), (23, 2)):
        write_tones(folder, n, seed)
    return folder


def recipe(folder: Path, *settings: str) -> Recipe:
    strings = {"speaker": 2, "join": (1, 4), "silence": (0.0, 0.1)}
    data: dict[str, Any] = {
        "root": folder,
        "train": {"path": "list-1.tsv", **strings, "strings": 50},
        "valid": {"path": "list-2.tsv", **strings, "strings": 29},
        "test": {"path": "list-2.tsv", "speaker": 2},
    }
    return Recipe.parse(override({"data": data, **RECIPE}, settings), "tones")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tones"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.train(recipe(folder), out=out, device="cpu")
    return out


def test_tones_are_learnt_from_strings_of_them(run: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert report["valid"]["wer"] < 0.1
    assert set(report["valid"]) == {"wer", "cer", "loss"}
    assert report["test"]["wer"] < 0.1
    assert (report["test"]["words"], report["test"]["sentences"]) == (23, 23)
    saved = Recipe.read(run / "recipe.toml")
    assert saved.sound is not None
    assert (saved.sound.n_mels, saved.model.channels, saved.model.vocab) == (11, 11, 7)


def test_words_are_heard_where_they_are(run: Path, tmp_path: Path) -> None:
    said, gap = ["mid", "low", "low", "high"], np.zeros(int(0.2 * RATE))
    samples = np.concatenate([part for word in said for part in (gap, tone(word, 0.2))])
    model = load(run)
    assert isinstance(model, Transcriber)
    (told,) = model.transcribe([write_wav(tmp_path / "string.wav", samples)])
    assert told.text == " ".join(said)
    for i, word in enumerate(told.words):
        assert word.word == said[i]
        assert 0.4 * i + 0.1 < word.start < word.end < 0.4 * i + 0.5
    other = np.interp(np.arange(0, len(samples), RATE / 8000), np.arange(len(samples)), samples)
    (again,) = model.transcribe([write_wav(tmp_path / "other.wav", other, 8000)])  # at another rate
    assert again.text == told.text
    assert model.transcribe([]) == []


def test_batch_equals_singles(run: Path, folder: Path) -> None:
    model = load_as(Transcriber, run)
    paths = sorted(folder.glob("2-*.wav"))
    assert model.transcribe(paths) == [model.transcribe([path])[0] for path in paths]
    sounds = [read_sound(path, RATE, 1) for path in paths]
    assert model.transcribe(sounds) == model.transcribe(paths)


def test_evaluate_and_transcribe_are_verbs(run: Path, folder: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    scores = clearformer.evaluate(run, recordings=folder / "list-2.tsv", device="cpu")
    assert scores == {name: report["test"][name] for name in ("wer", "cer", "words", "sentences")}
    (row,) = clearformer.transcribe(run, [folder / "2-0.wav"])
    assert row["path"] == str(folder / "2-0.wav")
    assert row["text"] == " ".join(word["word"] for word in row["words"])


@pytest.mark.parametrize("model", ["speech-rnn", "speech-transformer"])
def test_a_training_goes_on_to_the_bit(goes_on: Callable, folder: Path, model: str) -> None:
    sizes = ["model.n_heads=1", "model.d_ff=31"] if model == "speech-transformer" else []
    settings = [f"model.kind={model}", *sizes, "model.dropout=0.1", "train.steps=20", "train.validate_every=10"]
    settings += ["sound.distort.speed=1.2", "sound.distort.snr=[5, 20]", "sound.distort.time_masks=1"]
    saved = goes_on(recipe(folder, *settings, "schedule.steps=20", "train.log_every=10", "train.save_every=10"))
    assert "model.subsample.convs.1.weight" in saved


def test_a_training_goes_on_from_another(run: Path, folder: Path, tmp_path: Path) -> None:
    settings = [f"tuning.base={run}", "train.steps=2", "train.validate_every=1", "optim.lr=0.00001", "train.ema=0"]
    report = clearformer.train(recipe(folder, *settings), out=tmp_path / "on", device="cpu")
    assert report["valid"]["wer"] < 0.1


def test_a_part_is_held_out_where_there_is_no_list_for_it(folder: Path, tmp_path: Path) -> None:
    data = {"train": {"path": folder / "list-1.tsv"}, "held_out": 0.2, "held_out_test": 0.1}
    found = Recipe.parse({"data": data, **RECIPE}, "tones").data
    parts = [{one.path for one in found.read(split)} for split in ("train", "valid", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 60
    assert all(parts)


def test_mistakes_are_said(run: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.wav").write_bytes(write_wav(tmp_path / "a.wav", np.zeros(7)).read_bytes())
    with pytest.raises(DataError, match=r"short\.wav is too short"):
        clearformer.transcribe(run, [tmp_path / "short.wav"])
    with pytest.raises(CheckpointError, match="is a speech recogniser, not a translator"):
        load_as(Translator, run)
    with pytest.raises(ConfigError, match=r"train\.tokens = 5 is too small for a recording of"):
        clearformer.train(recipe(folder, "train.tokens=5"), out=tmp_path / "small", device="cpu")
    with pytest.raises(DataError, match="does not exist"):
        clearformer.train(recipe(folder, "data.test.path=none.tsv"), out=tmp_path / "none", device="cpu")
    (folder / "cut.wav").write_bytes((folder / "2-1.wav").read_bytes()[:99])
    (folder / "cut.tsv").write_text("cut.wav\tlow\tann\n")
    with pytest.raises(DataError, match=r"cut\.wav is truncated"):
        clearformer.train(recipe(folder, "data.valid.path=cut.tsv"), out=tmp_path / "cut", device="cpu")
