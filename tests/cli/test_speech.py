"""train on recordings, transcribe and evaluate --recordings, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import clearformer
from clearformer.errors import DataError

from ..tasks.tones import RECIPE, write_tones


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 60, 1)
    recipe = {"data": {"train": {"path": str(folder / "list-1.tsv")}, "held_out": 0.2}, **RECIPE}
    (folder / "tones.toml").write_text(tomli_w.dumps(recipe))
    return folder


@pytest.fixture(scope="module")
def ear(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "ear"
    clearformer.train(folder / "tones.toml", out=out, device="cpu")
    return out


def test_a_dry_run_writes_the_sound_down(cli, folder: Path) -> None:
    told = json.loads(cli("train", folder / "tones.toml", "--dry-run", "--json", "--set", "sound.hop=0.02").out)
    assert (told["sound"]["hop"], told["objective"]["kind"]) == (0.02, "ctc")


def test_transcribe_writes_lines_and_json(cli, ear: Path, folder: Path) -> None:
    files = [folder / f"1-{i}.wav" for i in range(3)]
    said = [line.split("\t")[1] for line in (folder / "list-1.tsv").read_text().splitlines()[:3]]
    shown = cli("transcribe", "--model", ear, *files)
    assert (shown.code, shown.out.splitlines()) == (0, said)
    told = json.loads(cli("transcribe", "-m", ear, "--json", *files).out)["recordings"]
    assert told == clearformer.transcribe(ear, files)
    assert [row["path"] for row in told] == list(map(str, files))
    assert set(told[0]["words"][0]) == {"word", "start", "end"}


def test_transcribe_answers_for_the_others_where_a_file_cannot_be_read(
    cli, ear: Path, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    sounds = [folder / "1-0.wav", folder / "1-1.wav"]
    files = [tmp_path / "text.wav", sounds[0], tmp_path / "none.wav", sounds[1]]
    code, out, err = cli("transcribe", "-m", ear, *files)
    assert (code, out) == (1, cli("transcribe", "-m", ear, *sounds).out)
    text, none = (line for line in err.splitlines() if line.startswith("error: "))
    assert "text.wav is not a recording in a supported format" in text
    assert "none.wav does not exist" in none
    code, out, _ = cli("transcribe", "-m", ear, "--json", *files)
    assert (code, json.loads(out)["recordings"]) == (1, clearformer.transcribe(ear, sounds))
    code, out, _ = cli("transcribe", "-m", ear, "--json", tmp_path / "none.wav")
    assert (code, json.loads(out)) == (1, {"recordings": []})
    with pytest.raises(DataError, match=r"text\.wav is not a recording"):
        clearformer.transcribe(ear, files)


def test_every_format_is_transcribed_evaluated_and_trained_on(cli, ear: Path, folder: Path, tmp_path: Path) -> None:
    """FLAC keeps every sample, so transcripts stay the same; MP3 starts at 8 kHz, so it is resampled."""
    soundfile = pytest.importorskip("soundfile")
    rows = [line.split("\t") for line in (folder / "list-1.tsv").read_text().splitlines()[:24]]
    for i, (name, word, _) in enumerate(rows):
        samples, rate = soundfile.read(folder / name)
        ending = ("flac", "wav", "ogg", "mp3")[i % 4]
        if ending in ("ogg", "mp3"):
            samples, rate = np.repeat(samples, 8), 8 * rate
        (tmp_path / "words" / word).mkdir(parents=True, exist_ok=True)
        path = tmp_path / "words" / word / f"{i}.{ending}"
        soundfile.write(path, samples, rate, **({"subtype": "FLOAT"} if ending == "wav" else {}))
    (tmp_path / "words" / "low" / "notes.txt").write_text("no recording")
    files = sorted((tmp_path / "words").glob("*/*.*[!t]"))
    assert len(files) == 24
    expected = [path.parent.name for path in files]
    assert cli("transcribe", "-m", ear, *files).out.splitlines() == expected
    assert clearformer.evaluate(ear, recordings=tmp_path / "words", device="cpu")["wer"] == 0
    sounds = [soundfile.read(path) for path in files]
    assert [row["text"] for row in clearformer.transcribe(ear, sounds)] == expected
    settings = ["train.steps=3", "train.validate_every=3", "model.d_model=8", "data.held_out=0.2"]
    report = clearformer.train(recordings=tmp_path / "words", out=tmp_path / "run", settings=settings, device="cpu")
    assert report["steps"] == 3


def test_evaluate_says_error_rates(cli, ear: Path, folder: Path) -> None:
    told = json.loads(
        cli("evaluate", "-m", ear, "--recordings", folder / "list-1.tsv", "--json", "--device", "cpu").out
    )
    assert told == clearformer.evaluate(ear, recordings=folder / "list-1.tsv", device="cpu")
    assert (told["words"], told["sentences"]) == (60, 60)
    lines = cli("evaluate", "-m", ear, "--recordings", folder / "list-1.tsv", "--device", "cpu").out.splitlines()
    assert lines == [f"wer {told['wer']:.4f}", f"cer {told['cer']:.4f}", "60 sentences", "60 words"]


def test_mistakes_are_one_sentence(cli, ear: Path, run: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "list.tsv").write_text("none.wav\tlow\n")
    cases = [
        (("transcribe", "-m", ear, tmp_path / "none.wav"), "none.wav does not exist"),
        (("transcribe", "-m", ear, tmp_path / "text.wav"), "text.wav is not a recording in a supported format"),
        (("transcribe", "-m", run, folder / "1-0.wav"), "is a translator: it cannot transcribe"),
        (("translate", "-m", ear, "x"), "is a speech recogniser: it cannot translate"),
        (("score", "-m", ear, "x"), "is a speech recogniser: it cannot score"),
        (
            ("evaluate", "-m", ear, "--recordings", tmp_path / "list.tsv"),
            f"list.tsv:1: {tmp_path / 'none.wav'} does not exist",
        ),
        (
            ("evaluate", "-m", ear, "--text", tmp_path / "list.tsv"),
            "is a speech recogniser: it cannot be evaluated on --text",
        ),
        (("train", folder / "tones.toml", "--set", "sound.mels=3"), "[sound]: unknown key `mels`"),
        (("export", ear, tmp_path / "out"), "transformers has no speech recogniser with recurrent layers"),
    ]
    for arguments, problem in cases:
        code, out, err = cli(*arguments)
        assert (code, out) == (1, "")
        assert problem in err
        assert "\nhint: " in err
    assert "hop = 1 s must be" in cli("train", folder / "tones.toml", "--set", "sound.hop=1").err
