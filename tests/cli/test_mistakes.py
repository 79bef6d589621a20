"""What people get wrong, through the real command: one sentence, and what to type instead."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import GRIDS, TABLES, write_table

CliCall = Callable[..., Any]
ROOT = Path(__file__).parents[2]
FILMS = [(f"a {word} film {i}", label) for i in range(60) for word, label in (("fine", "good"), ("dull", "bad"))]
COLUMNS = {"text": [text for text, _ in FILMS], "label": [label for _, label in FILMS]}


def refused(cli: CliCall, *arguments: object, code: int = 1) -> str:
    """The error of a command, on one line: a sentence and a hint."""
    result = cli(*arguments)
    assert (result.code, result.out) == (code, ""), result
    assert result.err.count("\nhint: ") == 1, result.err
    assert "Traceback" not in result.err
    return " ".join(result.err.split())


# Files and texts


@pytest.mark.parametrize(
    ("verb", "model"),
    [
        ("translate", "run"),
        ("generate", "gpt2"),
        ("score", "gpt2"),
        ("fill", "gpt2"),
        ("repair", "gpt2"),
        ("embed", "bert"),
    ],
)
def test_a_file_name_is_no_sentence(
    cli: CliCall, verb: str, model: str, run: Path, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = run if model == "run" else hub(model)
    for name in ("notes.txt", "a.csv", "a.jpeg"):
        Path(name).write_text("the dog\n")
        assert f"`{name}` is a file, and {verb} takes texts" in refused(cli, verb, "--model", folder, name)
    assert "--input a.jpeg" not in refused(cli, verb, "--model", folder, "a.jpeg")
    has_input = verb not in ("fill", "repair")
    assert ("--input notes.txt" in refused(cli, verb, "--model", folder, "notes.txt")) == has_input


def test_a_file_that_does_not_exist_is_a_text_with_a_note(cli: CliCall, run: Path) -> None:
    result = cli("translate", "--model", run, "none.txt")
    assert result.code == 0
    assert "note: there is no file `none.txt`, so translate takes it as a text" in result.err
    assert cli("translate", "--model", run, "a dog. see none.txt").err == ""


@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_data_is_no_recipe(cli: CliCall, verb: str, tmp_path: Path) -> None:
    over = ["--over", "optim.lr=1,2"] if verb == "sweep" else []
    path = write_table("csv", tmp_path, COLUMNS)
    error = refused(cli, verb, path, *over)
    assert f"{path} is a data file, not a recipe hint: give it with the option for its data: --labels {path}" in error
    assert f"--images {tmp_path}" in refused(cli, verb, tmp_path, *over)


def test_an_option_without_its_dashes(cli: CliCall) -> None:
    error = refused(cli, "train", "labels", "a.csv", code=2)
    assert "unexpected extra argument" in error
    assert "hint: did you mean `--labels`?" in error


# Columns


@pytest.mark.parametrize("kind", TABLES)
def test_a_header_is_recognised_in_a_list_of_recordings(cli: CliCall, kind: str, tmp_path: Path) -> None:
    from ..tasks.tones import tone, write_wav

    names = [write_wav(tmp_path / f"{i}.wav", tone("low", 0.2)).name for i in range(20)]
    path = write_table(kind, tmp_path, {"id": list("ab") * 10, "transcript": ["low"] * 20, "file": names})
    place = tmp_path if path.is_file() else path
    for name in names if place != tmp_path else ():
        (tmp_path / name).rename(place.parent / name)
    result = cli("train", "--recordings", path, "--dry-run", "--device", "cpu")
    printed = " ".join(result.err.split())
    assert result.code == 0, printed
    assert "using columns file and transcript" in printed
    assert ("is a header" in printed) == (kind in GRIDS)


@pytest.mark.parametrize("kind", GRIDS)
def test_a_header_of_unknown_names_is_noticed(cli: CliCall, kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"comment_text": COLUMNS["text"], "mood": COLUMNS["label"]})
    printed = " ".join(cli("train", "--labels", path, "--dry-run", "--device", "cpu").err.split())
    assert "the first row is read as an example, but no other row has its label, `mood`" in printed
    options = ["--text-columns", "comment_text", "--label-column", "mood"]
    assert f"if it is a header: {' '.join(options)}" in printed
    printed = cli("train", "--labels", path, *options, "--dry-run", "--device", "cpu").err
    assert "is read as an example" not in printed


def test_rows_without_a_header_get_no_note(cli: CliCall, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in FILMS))
    (tmp_path / "b.tsv").write_text("".join(f"{text}\tname {i}\n" for i, (text, _) in enumerate(FILMS)))
    for name in ("a.tsv", "b.tsv"):
        result = cli("train", "--labels", tmp_path / name, "--dry-run", "--device", "cpu")
        assert "is read as an example" not in result.err


def test_one_chosen_column_leaves_the_other_to_its_name(cli: CliCall, tmp_path: Path) -> None:
    path = write_table("semicolons.csv", tmp_path, {"review": COLUMNS["text"], "sentiment": COLUMNS["label"]})
    result = cli("train", "--labels", path, "--label-column", "sentiment", "--dry-run", "--device", "cpu")
    assert result.code == 0, result.err
    assert "using columns review and sentiment, separated by semicolons" in " ".join(result.err.split())
    error = refused(cli, "train", "--labels", path, "--label-column", "mood", "--dry-run")
    assert "the header has no column `mood` hint: the columns are review, sentiment" in error


# Names and settings


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
@pytest.mark.parametrize(
    "command",
    [
        "translate --model NAME hello", "classify --model NAME hello", "evaluate --model NAME --labels a.tsv",
        "finetune --model NAME --labels a.tsv", "inspect NAME", "export NAME out", "card NAME", "merge NAME out",
        "plot attention --model NAME hello --out a.png",
    ],
)  # fmt: skip
def test_a_name_of_hugging_face_without_a_folder(
    cli: CliCall, command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(cli, *command.replace("NAME", name).split())
    if not command.startswith(("inspect", "merge")) or "/" in name:  # the others know names of their own
        assert f"hf download {name} --local-dir bert-base-uncased" in error
    assert not [*tmp_path.iterdir()]


def test_a_wrong_setting_of_a_sweep_is_one_of_over(cli: CliCall, tmp_path: Path) -> None:
    path = write_table("tsv", tmp_path, COLUMNS)
    result = cli("sweep", "--labels", path, "--over", "optim.lrr=1,2", "--out", tmp_path / "out")
    assert result.code == 1
    assert "error: --over: [optim]: unknown key `lrr`\nhint: did you mean `lr`?" in result.err


# Packages that are not installed

RUN = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from clearformer.cli import app
app(sys.argv[2:], prog_name="clearformer")
"""
LOGGED = "train --pairs pairs.tsv --device cpu --out run --set train.loggers="
EXTRAS = {
    "plots": ("matplotlib", "plot schedules --out a.png"),
    "images": ("PIL", "train --images photos --dry-run"),
    "tensorboard": ("tensorboard", f"{LOGGED}tensorboard"),
    "mlflow": ("mlflow", f"{LOGGED}mlflow"),
    "wandb": ("wandb", f"{LOGGED}wandb"),
    "ctranslate2": ("ctranslate2", "translate --engine ctranslate2 hello"),
    "onnx": ("onnx", "export en-fr-small out --format onnx"),
    "parquet": ("pyarrow", "train --pairs a.parquet --dry-run"),
    "excel": ("openpyxl", "train --pairs a.xlsx --dry-run"),
    "zstd": ("zstandard", "train --pairs a.tsv.zst --dry-run"),
    "audio": ("soundfile", "train --recordings words --dry-run"),
    "remote": ("fsspec", "train --pairs s3://bucket/built --dry-run"),
    "serve": ("fastapi", "serve"),
    "studio": ("uvicorn", "studio --no-open"),
}
FOR_DEVELOPERS = {"all", "browser", "docs", "test"}


def test_every_extra_has_a_command() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRAS} == {*extras} - FOR_DEVELOPERS


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_package_is_named_with_its_extra(extra: str, tmp_path: Path) -> None:
    """The import fails in a process of its own, as it does where the package is not installed."""
    (tmp_path / "pairs.tsv").write_text("".join(f"the dog {i}\tle chien {i}\n" for i in range(211)))
    for name in ("a.parquet", "a.xlsx", "a.tsv.zst"):
        (tmp_path / name).write_bytes(b"x")
    for word in ("cat", "dog"):
        (tmp_path / "photos" / word).mkdir(parents=True)
        (tmp_path / "photos" / word / "a.png").write_bytes(b"x")
        (tmp_path / "words" / word).mkdir(parents=True)
        (tmp_path / "words" / word / "a.flac").write_bytes(b"fLaC" + bytes(np.arange(99, dtype="uint8")))
    package, command = EXTRAS[extra]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", RUN, package, *command.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    error = result.stderr[result.stderr.index("error: ") :]
    sentence, _, hint = error.partition("\nhint: ")
    assert "not installed" in sentence
    assert f"pip install 'clearformer[{extra}]'" in hint
    assert not (tmp_path / "run").exists()
