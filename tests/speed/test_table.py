"""The table on stdout: one line per peer, with medians, ranges and ratios, and a line for everything left out."""

import re
from typing import Any

import pytest

from clearformer.speed.table import print_results


def side(title: str, median: float, low: float, high: float) -> dict[str, Any]:
    return {"title": title, "median": median, "range": [low, high], "values": [low, median, high]}


RESULTS: dict[str, Any] = {
    "versions": {"clearformer": "1.0", "torch": "2.11", "device": "a GPU"},
    "ceilings": [
        {
            "device": "a GPU", "precision": "bfloat16", "matmul_tflops": 787.0, "memory_gb_per_s": 4100.0,
            "dispatch_us": 2.5,
        }
    ],
    "rows": {
        "decode": {
            "work": "translate", "unit": "tokens/s", "device": "cuda", "ratios": {"hf": 1.5, "ct2": 0.75},
            "engines": {
                "here": side("clearformer", 1500, 1400, 1600),
                "hf": side("Hugging Face", 1000, 900, 1100),
                "ct2": side("CTranslate2", 2000, 1900, 2100),
                "absent": {"title": "Absent", "skipped": "absent not installed"},
            },
        },
        "cold": {
            "work": "start", "unit": "s", "device": "cpu", "ratios": {},
            "engines": {"here": side("clearformer", 2.5, 2, 3)},
        },
        "bad": {
            "work": "fail", "unit": "s", "device": "cpu", "error": "no memory",
            "engines": {"here": {"title": "clearformer", "error": "no memory"}},
        },
        "gpu": {"work": "train", "unit": "tokens/s", "device": "cuda", "engines": {}, "skipped": "there is no GPU"},
    },
}  # fmt: skip


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_rows_parse(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(RESULTS)
    lines = capsys.readouterr().out.splitlines()
    rows = {tuple(cells(line)) for line in lines}
    assert (
        "translate (cuda)",
        "1,500 tokens/s",
        "1,400–1,600",
        "Hugging Face",
        "1,000 tokens/s",
        "900–1,100",
        "1.50×",
    ) in rows
    assert ("CTranslate2", "2,000 tokens/s", "1,900–2,100", "0.75×") in rows
    assert ("start (cpu)", "2.50 s", "2.00–3.00", "–") in rows
    assert ("fail (cpu)", "failed") in rows
    assert ("train (cuda)", "skipped") in rows


def test_ceilings_and_versions_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(RESULTS)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "clearformer 1.0, torch 2.11"
    assert second.startswith("a GPU: 787 TFLOP/s in bfloat16 matrix products, 4,100 GB/s of memory, 2.5 µs")


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(RESULTS)
    out = capsys.readouterr().out
    assert "decode: Absent is skipped: absent not installed\n" in out
    assert "bad: clearformer failed: no memory\n" in out
    assert "gpu is skipped: there is no GPU\n" in out


def test_the_last_losses_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    entry = RESULTS["rows"]["cold"] | {"losses": {"step": [5, 10], "here": [6.0, 5.5], "nanogpt": [6.1, 5.25]}}
    print_results({**RESULTS, "rows": {"gpt": entry}, "interrupted": True})
    out = capsys.readouterr().out
    assert "gpt: loss at step 10: 5.500 here, 5.250 nanogpt\n" in out
    assert out.endswith("interrupted: the rows above were measured\n")
