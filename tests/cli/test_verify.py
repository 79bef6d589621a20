"""clearformer verify, and --verify when a model is opened."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearformer.checksums import CHECKSUMS

CliCall = Callable[..., Any]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 2
    path.write_bytes(data)


@pytest.fixture(autouse=True)
def no_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARFORMER_VERIFY", "")


def test_a_trained_run_is_as_written(cli: CliCall, copy: Path) -> None:
    result = cli("verify", copy)
    assert (result.code, result.err) == (0, "")
    names = json.loads((copy / CHECKSUMS).read_text())
    files = [p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file() and p.name != CHECKSUMS]
    assert sorted(names) == sorted(files)
    assert f"{len(files)} files as written" in result.out


@pytest.mark.parametrize("name", ["model.safetensors", "last.safetensors", "tokenizer.json", "data/train.safetensors"])
def test_a_flipped_bit_is_named_and_can_be_accepted(cli: CliCall, copy: Path, name: str) -> None:
    flip(copy / name)
    result = cli("verify", copy)
    assert result.code == 1
    assert result.out == f"{copy / name} is not what was written: its checksum differs\n"
    assert json.loads(cli("verify", copy, "--json").out)["faults"] == [result.out.strip()]
    assert cli("verify", copy, "--accept").code == 0
    assert cli("verify", copy).code == 0


def test_models_are_verified_when_opened(cli: CliCall, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("--verify", "translate", "--model", copy, "the dog sees a tree.").code == 0
    monkeypatch.setenv("CLEARFORMER_VERIFY", "")  # a command of its own
    flip(copy / "report.json")
    assert cli("translate", "--model", copy, "the dog sees a tree.").code == 0
    result = cli("--verify", "translate", "--model", copy, "the dog sees a tree.")
    assert result.code == 1
    assert f"error: {copy / 'report.json'} is not what was written" in result.err
    assert f"hint: copy the folder again; clearformer verify {copy} lists all faults" in result.err


def test_a_folder_of_an_earlier_version_can_be_sealed(cli: CliCall, copy: Path) -> None:
    (copy / CHECKSUMS).unlink()
    result = cli("verify", copy)
    assert result.code == 1
    assert f"{copy} has no checksums.json" in result.err
    assert "--accept" in result.err
    assert cli("verify", copy, "--accept").code == 0
    assert cli("--verify", "inspect", copy).code == 0


def test_damaged_training_data_is_named_when_a_run_is_resumed(cli: CliCall, copy: Path) -> None:
    flip(copy / "data" / "train.safetensors")
    result = cli("train", "--resume", "--out", copy, "--set", "train.steps=70")
    assert result.code == 1
    assert f"{copy / 'data' / 'train.safetensors'} is not what was written" in result.err
