import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer

CliCall = Callable[..., Any]


def test_json_gives_scores_signatures_and_sentences(cli: CliCall, run: Path, corpus: Path) -> None:
    test = corpus.with_name("test.tsv")
    result = json.loads(cli("evaluate", "-m", run, "--pairs", test, "--json").out)
    assert result.keys() == {"bleu", "chrf", "signatures", "sentences"}
    assert result["sentences"] == 7
    assert "nrefs:1" in result["signatures"]["bleu"]
    report = json.loads((run / "report.json").read_text())
    assert result["bleu"] == pytest.approx(report["test"]["bleu"])
    twin = clearformer.evaluate(run, test)
    assert result == {name: value for name, value in twin.items() if name != "translations"}


def test_plain_output_and_translations_written(cli: CliCall, run: Path, corpus: Path, tmp_path: Path) -> None:
    pairs = f"{corpus.with_name('test.en')},{corpus.with_name('test.fr')}"
    out = tmp_path / "new" / "out.fr"
    lines = cli("evaluate", "-m", run, "--pairs", pairs, "--out", out, "--beam", 1).out.splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "chrF", "7"]
    english = corpus.with_name("test.en").read_text().splitlines()
    assert out.read_text().splitlines() == clearformer.load(run).translate(english, beam=1)


def test_the_best_of_several_references_counts(cli: CliCall, run: Path, corpus: Path, tmp_path: Path) -> None:
    english = corpus.with_name("test.en").read_text().splitlines()
    (tmp_path / "wrong.tsv").write_text("".join(f"{line}\tnon, pas du tout ainsi\n" for line in english))
    (tmp_path / "own.fr").write_text("".join(f"{line}\n" for line in clearformer.load(run).translate(english)))
    given = ("evaluate", "-m", run, "--pairs", tmp_path / "wrong.tsv", "--json")
    assert json.loads(cli(*given).out)["bleu"] < 50
    result = json.loads(cli(*given, "--refs", tmp_path / "own.fr").out)
    assert result["bleu"] == pytest.approx(100)
    assert "nrefs:2" in result["signatures"]["bleu"]


@pytest.mark.parametrize(
    ("more", "problem", "hint"),
    [
        (["--refs", "short.fr"], "short.fr has 1 line for 7 pairs", "for each pair"),
        (["--refs", "none.fr"], "none.fr does not exist", "short.fr"),
        (["--tokenize", "13b"], "tokenize = '13b': no such tokenizer; did you mean `13a`?", "tokenizer of sacrebleu"),
        (["--columns", "0,2"], "2 columns, but 3 are needed", "counted from 0"),
        (["--columns", "en"], "--columns en: expected two columns", "0,1"),
        (["--pairs", "a,b,c"], "a,b,c: expected one file or two, not 3", "aligned line by line"),
        (["--pairs", "short.fr"], "unsupported file type", "two files"),
        (["--model", "no-such-run"], "there is no model `no-such-run`", "--out folder of a run"),
    ],
)
def test_mistakes(
    cli: CliCall,
    run: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    problem: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.fr").write_text("un\n")
    code, out, err = cli("evaluate", "-m", run, "--pairs", corpus.with_name("test.tsv"), *more)
    assert (code, out) == (1, "")
    sentence, _, advice = err.partition("\nhint: ")
    assert problem in sentence
    assert hint in advice
