"""One small trained run for the whole session, and the command line called in this process."""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

import clearformer
from clearformer.cli import app

SUBJECTS = {
    "the dog": "le chien",
    "the cat": "le chat",
    "the man": "l'homme",
    "a bird": "un oiseau",
    "a girl": "une fille",
}
VERBS = {"sees": "voit", "likes": "aime", "hears": "entend", "finds": "trouve", "follows": "suit"}
OBJECTS = {"a tree": "un arbre", "the river": "la rivière", "the dog": "le chien", "a book": "un livre"}

SMALL = [
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "model.d_model=28",
    "model.d_ff=46",
    "model.max_length=67",
    "data.filter.max_tokens=61",
    "model.dropout=0",
    "text.vocab_size=97",
    "optim.lr=0.01",
    "schedule.warmup=10",
    "train.tokens=257",
    "train.steps=60",
    "train.validate_every=30",
    "train.save_every=30",
    "train.ema=0",
    "decode.beam=2",
]


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred pairs as one .tsv, and the first of them as test.tsv, test.en and test.fr beside it."""
    rows = product(SUBJECTS.items(), VERBS.items(), OBJECTS.items())
    pairs = [(f"{s} {v} {o}.", f"{sujet} {verbe} {objet}.") for (s, sujet), (v, verbe), (o, objet) in rows]
    folder = tmp_path_factory.mktemp("corpus")
    for name, part in (("pairs", pairs), ("test", pairs[:7])):
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")
    for side, suffix in enumerate(("en", "fr")):
        (folder / f"test.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs[:7]), encoding="utf-8")
    return folder / "pairs.tsv"


@pytest.fixture(scope="session")
def small() -> list[str]:
    """Arguments that make any training a short one."""
    return [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(scope="session")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run folder, to be read only."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    clearformer.train(pairs=corpus, test=corpus.with_name("test.tsv"), out=folder, settings=SMALL, device="cpu")
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """clearformer ARGUMENTS < stdin, in this process."""

    def call(*arguments: str | Path, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            app([str(argument) for argument in arguments], prog_name="clearformer")
        return Result(int(stop.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def start() -> Callable[..., "subprocess.Popen[bytes]"]:
    """clearformer ARGUMENTS as a process of its own, where signals and pipes are real."""

    def call(*arguments: str | Path, **streams: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "clearformer", *map(str, arguments)]
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **streams)  # type: ignore[call-overload]

    return call
