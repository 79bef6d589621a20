"""The verbs that only look: inspect, neighbours, doctor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clearformer

CliCall = Callable[..., Any]


def test_inspect_prints_what_python_gives(cli: CliCall, run: Path) -> None:
    result = json.loads(cli("inspect", run, "--length", 5, "--json").out)
    assert result == clearformer.inspect(run, 5)
    assert {"parameters", "multiplications", "layers"} <= result.keys()
    assert result["layers"][0].keys() == {"name", "output", "parameters", "multiplications"}
    lines = cli("inspect", run, "--length", 5).out.splitlines()
    assert len(lines) == len(result["layers"]) + 2
    assert lines[-1].split() == ["total", f"{result['parameters']:,}", f"{result['multiplications']:,}"]


def test_inspect_suggests_a_preset(cli: CliCall) -> None:
    code, out, err = cli("inspect", "transformer-bse")
    assert (code, out) == (1, "")
    assert err == (
        "error: there is no run folder, preset or model called `transformer-bse`\n"
        "hint: did you mean `transformer-base`?\n"
    )


def test_neighbours(cli: CliCall, run: Path) -> None:
    result = json.loads(cli("neighbours", "-m", run, "dog", "-n", 3, "--json").out)
    twin = clearformer.load(run).neighbours("dog", 3)
    assert [(row["word"], row["cosine"]) for row in result["neighbours"]] == [(w, round(c, 6)) for w, c in twin]
    lines = cli("neighbours", "-m", run, "dog", "-n", 3).out.splitlines()
    assert [line.split() for line in lines] == [[f"{cosine:.3f}", word] for word, cosine in twin]


def test_a_word_without_neighbours(cli: CliCall, run: Path) -> None:
    code, out, err = cli("neighbours", "-m", run, "漢字")
    assert (code, out) == (1, "")
    assert err.startswith("error: `漢字` is not in the vocabulary\nhint: ")


def test_doctor(cli: CliCall) -> None:
    report = json.loads(cli("doctor", "--json").out)
    assert report["torch"] == clearformer.doctor()["torch"]
    assert all(line.startswith(("ok ", "note ")) for line in cli("doctor").out.splitlines())
