"""clearformer bench: the list of rows, and one row that every machine can measure."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CliCall = Callable[..., Any]


def test_list(cli: CliCall) -> None:
    lines = cli("bench", "--list").out.splitlines()
    assert "train-gpt2             cuda  train GPT-2 124M, 32 × 1024 tokens per step" in lines
    rows = json.loads(cli("bench", "--list", "--json").out)["rows"]
    assert [line.split()[0] for line in lines] == [row["name"] for row in rows]
    assert next(row for row in rows if row["name"] == "cpu-decode-tiny")["peers"] == [
        "clearformer, engine torch",
        "Hugging Face",
        "CTranslate2 float32",
        "CTranslate2 int8",
    ]


def test_an_unknown_row(cli: CliCall, tmp_path: Path) -> None:
    code, out, err = cli("bench", "--only", "train-gpt3", "--out", tmp_path / "bench.json")
    assert (code, out) == (1, "")
    assert err == "error: --only train-gpt3: there is no such row\nhint: did you mean `train-gpt2`?\n"


def test_update_keeps_other_rows_of_the_same_machine(
    cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # without a GPU, these rows are skipped at once
    out = tmp_path / "bench.json"

    def rows_after(*options: str) -> list[str]:
        assert cli("bench", "--out", out, *options).code == 0
        return list(json.loads(out.read_text())["rows"])

    assert rows_after("--only", "train-gpt2", "--update") == ["train-gpt2"]
    assert rows_after("--only", "train-base", "--update") == ["train-gpt2", "train-base"]
    assert rows_after("--only", "train-base") == ["train-base"]
    results = json.loads(out.read_text())
    results["versions"]["torch"] = "1.0"
    out.write_text(json.dumps(results))
    code, _, err = cli("bench", "--out", out, "--only", "train-gpt2", "--update")
    assert code == 1
    assert err.startswith(f"error: {out} was measured with torch 1.0, not 2.")
    out.write_text("[]")
    _, _, err = cli("bench", "--out", out, "--only", "train-gpt2", "--update")
    assert err == f"error: {out} holds no results of bench\nhint: choose another --out\n"


@pytest.mark.slow
def test_a_real_row(cli: CliCall, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    code, printed, _ = cli("bench", "--quick", "--only", "translate-cold", "--out", out)
    assert code == 0
    lines = map(str.strip, printed.splitlines())
    (line,) = [line for line in lines if line.startswith("clearformer translate, a sentence, cold (cpu)")]
    entry = json.loads(out.read_text())["rows"]["translate-cold"]
    assert f"{entry['engines']['here']['median']:.2f} s" in line
    assert line.endswith(f"{entry['ratios']['import-torch']:.2f}×")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_measured(
    start: Callable[..., "subprocess.Popen[bytes]"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # without a GPU, the first row is skipped at once
    out, names = tmp_path / "bench.json", "train-gpt2,translate-cold"
    with start("bench", "--quick", "--only", names, "--out", out, "--json", stdout=-1, stderr=-1) as process:
        for line in process.stderr or ():
            if line.startswith(b"translate-cold ("):
                break
        process.send_signal(number)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    results = json.loads(out.read_text())
    assert json.loads(printed) == results
    assert results["interrupted"]
    assert list(results["rows"]) == ["train-gpt2"]
