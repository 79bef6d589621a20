import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer

CliCall = Callable[..., Any]
SENTENCES = ["the dog sees a tree.", "a bird finds the river."]


def test_arguments_and_stdin_give_what_python_gives(cli: CliCall, run: Path) -> None:
    expected = clearformer.load(run).translate(SENTENCES)
    assert len(set(expected)) == 2
    by_argument = cli("translate", "-m", run, *SENTENCES)
    by_stdin = cli("translate", "-m", run, stdin="\n".join(SENTENCES).encode())  # no line feed at the end
    assert by_argument == by_stdin == (0, "".join(f"{line}\n" for line in expected), "")


def test_blank_lines_stay_where_they_are(cli: CliCall, run: Path) -> None:
    lines = cli("translate", "-m", run, stdin=b"\nthe dog sees a tree.\r\n\n   \nthe cat likes a book.\n").out.split(
        "\n"
    )
    assert [bool(line) for line in lines] == [False, True, False, False, True, False]


def test_nothing_in_nothing_out(cli: CliCall, run: Path) -> None:
    assert cli("translate", "-m", run) == (0, "", "")
    assert json.loads(cli("translate", "-m", run, "--json").out) == {"translations": []}


def test_n_best_with_scores_and_alignment(cli: CliCall, run: Path) -> None:
    rows = [
        row.split("\t")
        for row in cli("translate", "-m", run, "--n-best", 3, "--scores", "--align", SENTENCES[0]).out.splitlines()
    ]
    candidates = clearformer.load(run).candidates(SENTENCES[:1], n=3)[0]
    assert [row[2] for row in rows] == [candidate.text for candidate in candidates]
    assert [row[0] for row in rows] == [f"{candidate.score:.4f}" for candidate in candidates]
    assert [row[1] for row in rows] == [f"{candidate.logprob:.4f}" for candidate in candidates]
    assert all(link.count("-") == 1 for row in rows for link in row[3].split())


def test_json_is_one_object(cli: CliCall, run: Path) -> None:
    rows = json.loads(cli("translate", "-m", run, "--json", "--align", *SENTENCES, "").out)["translations"]
    assert [row["source"] for row in rows] == [*SENTENCES, ""]
    tokens = {"source_tokens", "target_tokens", "source_pieces", "target_pieces"}
    assert rows[0].keys() == {"source", "translation", "score", "logprob", "links", *tokens}
    assert rows[0]["source_tokens"] == rows[0]["source_pieces"]
    assert all(0 <= s < len(rows[0]["source_tokens"]) for s, _ in rows[0]["links"])
    assert (rows[2]["translation"], rows[2]["links"]) == ("", [])


def test_sampling_is_repeated_by_its_seed(cli: CliCall, run: Path) -> None:
    def sample(*more: object) -> str:
        out: str = cli("translate", "-m", run, "--n-best", 5, "--temperature", 3, *more, SENTENCES[0]).out
        return out

    assert sample("--seed", 1) == sample("--seed", 1) != sample("--seed", 2)


def test_samples_are_the_same_however_a_pipe_is_read(cli: CliCall, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once as arguments, in one read of stdin, and in one read a line."""
    from clearformer.cli import options

    lines = [*SENTENCES, "", SENTENCES[0], "the cat likes a book."]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    command = ("translate", "-m", run, "--n-best", 2, "--temperature", 3, "--seed", 1)
    at_once, piped = cli(*command, *lines).out, cli(*command, stdin=stdin).out
    monkeypatch.setattr(options, "ready_lines", lambda stream: ([line.rstrip(b"\n")] for line in stream))
    assert at_once == piped == cli(*command, stdin=stdin).out
    rows = at_once.splitlines()
    assert rows[:2] != rows[6:8], "the same sentence on another line is sampled anew"


def test_a_blank_line_has_as_many_rows_as_the_others(cli: CliCall, run: Path) -> None:
    rows = cli("translate", "-m", run, "--n-best", 3, "--scores", stdin=b"the dog sees a tree.\n\n").out.splitlines()
    assert len(rows) == 6
    assert rows[3:] == ["0.0000\t0.0000\t"] * 3


def test_saying_what_to_sample_from_means_to_sample(cli: CliCall, run: Path) -> None:
    sampled = cli("translate", "-m", run, "--n-best", 2, "--top-k", 1, "--scores", SENTENCES[0]).out.splitlines()
    assert len(sampled) == 2
    assert sampled[0] == sampled[1]  # the likeliest word each time, twice; a beam's two branches differ


@pytest.mark.parametrize(
    ("bad", "problem", "hint"),
    [(b"the \xff cat", "not UTF-8 (byte 5 of the line is 0xff)", "iconv"), (b"a\0b", "binary data", "UTF-16")],
)
def test_a_line_that_is_not_text_ends_it_after_those_before(
    cli: CliCall, run: Path, bad: bytes, problem: str, hint: str
) -> None:
    code, out, err = cli("translate", "-m", run, stdin=b"the dog sees a tree.\n" + bad + b"\nthe cat likes a book.\n")
    assert code == 1
    assert out.count("\n") == 1
    assert err.startswith(f"error: stdin:2: {problem}")
    assert hint in err.split("\nhint: ")[1]


def test_a_closed_stdin(cli: CliCall, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearformer.cli.options import read_inputs
    from clearformer.errors import ConfigError

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match="stdin is closed"):
        next(read_inputs([]))


@pytest.mark.filterwarnings("default")
def test_a_very_long_line_is_cut_with_a_note(cli: CliCall, run: Path) -> None:
    code, out, err = cli("translate", "-m", run, stdin=b"the dog sees " * 1000 + b"\nthe dog sees a tree.\n")
    assert (code, out.count("\n")) == (0, 2)
    assert err.startswith("note: 'the dog sees ")
    assert err.endswith(" tokens and was cut to the first 66\n")  # max_length = 67, one for EOS
    assert err.count("\n") == 1


def test_a_device_that_is_not_there(cli: CliCall, run: Path) -> None:
    code, out, err = cli("translate", "-m", run, "--device", "abacus", "hello")
    assert (code, out) == (1, "")
    assert "`abacus`" in err
    assert "\nhint: " in err
