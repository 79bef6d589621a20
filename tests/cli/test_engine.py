"""--engine, and the line of `doctor` about engines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer
from clearformer.generation import engine_cache

CliCall = Callable[..., Any]
SENTENCE = "the dog sees a tree."


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


@pytest.mark.parametrize("verb", ["translate", "generate"])
def test_an_unknown_engine_is_refused(cli: CliCall, run: Path, verb: str) -> None:
    code, _, err = cli(verb, "-m", run, "--engine", "compile", SENTENCE)
    assert (code, err) == (1, "error: unknown engine `compile`\nhint: did you mean `compiled`?\n")


def test_torch_translates_plainly(cli: CliCall, run: Path, cache: Path) -> None:
    assert cli("translate", "-m", run, "--engine", "torch", SENTENCE) == cli("translate", "-m", run, SENTENCE)
    assert not cache.exists()


def test_ctranslate2_translates_and_evaluates(cli: CliCall, run: Path, corpus: Path) -> None:
    pytest.importorskip("ctranslate2")
    expected = cli("translate", "-m", run, "--beam", 1, SENTENCE).out
    code, out, err = cli("translate", "-m", run, "--engine", "ctranslate2", "--beam", 1, SENTENCE)
    assert (code, out) == (0, expected)
    assert "converting the model for CTranslate2" in err
    words = ("evaluate", "-m", run, "--pairs", corpus.with_name("test.tsv"), "--beam", 1)
    assert cli(*words, "--engine", "ctranslate2").out == cli(*words).out
    assert "converting" not in cli("translate", "-m", run, "--engine", "ctranslate2", SENTENCE).err


def test_without_a_compiler_compiled_is_one_sentence(cli: CliCall, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    code, out, err = cli("translate", "-m", run, "--engine", "compiled", SENTENCE)
    assert (code, out) == (1, "")
    assert err.startswith("error: compiled decoding needs a C++ compiler\nhint: ")
    assert cli("translate", "-m", run, SENTENCE).code == 0


def test_doctor_counts_the_engines(cli: CliCall, cache: Path) -> None:
    line = f"0 compiled engines and 0 CTranslate2 models in {cache}\n"
    assert f"ok    {line}" in cli("doctor").out
    engine_cache.store({"engine": "compiled"}, lambda draft: None)
    assert f"ok    1 compiled engine and 0 CTranslate2 models in {cache}\n" in cli("doctor").out
    cache.chmod(0o777)
    assert f"in {cache}; they are not used: others may write to {cache}\n" in cli("doctor").out
    assert clearformer.doctor()["engines"]["stored"] == {"compiled": 1, "ctranslate2": 0}
