"""clearformer notes: list, compute one, compute and check all."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import clearformer
from clearformer.worked import EXAMPLES
from clearformer.worked.example import Figure, line_of

CliCall = Callable[..., Any]


def test_notes_lists_the_examples(cli: CliCall) -> None:
    lines = cli("notes").out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
    listed = json.loads(cli("notes", "--json").out)["examples"]
    assert [row["name"] for row in listed] == list(EXAMPLES)


def test_one_example_shows_both_figures_and_the_line_of_code(cli: CliCall) -> None:
    from clearformer.layers.attention import MultiHeadAttention

    code, out, err = cli("notes", "apple")
    assert (code, err) == (0, "")
    assert "Watch · W   [10, 6]  [10, 6]" in out
    assert out.splitlines()[-1] == f"code: {line_of(MultiHeadAttention.remember)}"


def test_a_slip_shows_both_figures_and_says_so(cli: CliCall) -> None:
    lines = cli("notes", "inception").out.splitlines()
    [row] = [i for i, line in enumerate(lines) if line.startswith("with bottlenecks")]
    assert lines[row].split()[-2:] == ["358,000,000", "271,351,808"]
    assert lines[row + 1] == "    a slip in the notes: their six terms sum to 271 million"


def test_json_is_what_python_gives(cli: CliCall) -> None:
    result = json.loads(cli("notes", "ball", "--json").out)
    assert result == clearformer.notes("ball")
    assert result["agrees"]
    [example] = result["examples"]
    assert example["figures"][3] == {"what": "p₁", "notes": 0.75, "here": 0.75, "slip": "", "agrees": True}


def test_all_examples_are_checked(cli: CliCall) -> None:
    code, out, _ = cli("notes", "--all")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(EXAMPLES) + 1
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert lines[-1].endswith("0 figures not as expected")


@pytest.fixture
def wrong_apple(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example `apple` with another figure than the notes have."""
    wrong = replace(EXAMPLES["apple"], figures=lambda: iter([Figure("Apple · W", [8, 9], [8, 8])]))
    monkeypatch.setitem(EXAMPLES, "apple", wrong)


@pytest.mark.usefixtures("wrong_apple")
def test_a_figure_that_disagrees_is_an_error(cli: CliCall) -> None:
    code, out, _ = cli("notes", "apple")
    assert code == 1
    assert "[8, 9]  NOT AS EXPECTED" in out
    code, out, _ = cli("notes", "--all")
    assert code == 1
    assert "FAILED  apple" in out
    assert "apple: Apple · W: [8, 9] here, [8, 8] in the notes" in out
    code, out, _ = cli("notes", "apple", "--json")
    assert (code, json.loads(out)["agrees"]) == (1, False)


def test_an_unknown_example_and_two_wishes(cli: CliCall) -> None:
    code, out, err = cli("notes", "aple")
    assert (code, out) == (1, "")
    assert err == "error: the notes have no worked example `aple`\nhint: did you mean `apple`?\n"
    code, out, err = cli("notes", "apple", "--all")
    assert (code, out) == (1, "")
    assert err == "error: both --all and the example `apple` are given\nhint: give one of them\n"
