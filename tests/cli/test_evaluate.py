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


@pytest.fixture
def outputs(tmp_path: Path) -> dict[str, Path]:
    """The output of two systems, and two references of each of thirty sentences."""
    lines = [f"the {colour} {thing} is here ." for colour in ("red", "green", "blue") for thing in "abcdefghij"]
    texts = {
        "good": [line.replace("here", "there") for line in lines],
        "bad": [line.replace("the", "one").replace("is", "was") for line in lines],
        "ref": lines,
        "ref2": [line.replace("here", "over there") for line in lines],
    }
    for name, rows in texts.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))
    return {name: tmp_path / f"{name}.txt" for name in texts}


def test_files_are_evaluated_without_a_model(cli: CliCall, outputs: dict[str, Path]) -> None:
    import sacrebleu

    files = ("--hypotheses", outputs["good"], "--refs", outputs["ref"], "--refs", outputs["ref2"])
    result = json.loads(cli("evaluate", *files, "--json").out)
    assert result.keys() == {"bleu", "chrf", "ter", "wer", "signatures", "sentences"}
    assert result == clearformer.evaluate(hypotheses=outputs["good"], refs=[outputs["ref"], outputs["ref2"]])
    good, *references = [outputs[name].read_text().splitlines() for name in ("good", "ref", "ref2")]
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(good, references, force=True).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(good, references).score)
    assert result["ter"] == pytest.approx(sacrebleu.corpus_ter(good, references).score)
    assert "nrefs:2" in result["signatures"]["ter"]
    lines = cli("evaluate", *files).out.splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "chrF", "TER", "wer", "30"]
    lower = json.loads(cli("evaluate", *files, "--lowercase", "--metrics", "bleu,rouge", "--json").out)
    assert lower.keys() == {"bleu", "rouge1", "rouge2", "rougeL", "signatures", "sentences"}
    assert "case:lc" in lower["signatures"]["bleu"]


def test_two_systems_are_compared(cli: CliCall, outputs: dict[str, Path]) -> None:
    files = ("--hypotheses", outputs["good"], "--hypotheses", outputs["bad"], "--refs", outputs["ref"])
    result = json.loads(cli("evaluate", *files, "--json").out)
    good, bad = result["systems"]
    assert (good["hypotheses"], bad["hypotheses"]) == (str(outputs["good"]), str(outputs["bad"]))
    assert result["samples"] == 1000
    assert all(0 < p <= 0.01 for p in bad["p_values"].values())
    lines = cli("evaluate", *files).out.splitlines()
    assert lines[0] == str(outputs["good"])
    assert lines[5] == str(outputs["bad"])
    assert lines[6].startswith(f"BLEU {bad['bleu']:.2f}   p {bad['p_values']['bleu']:.4f}   nrefs:1")
    assert " p " not in lines[1]


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["--hypotheses", "good.txt"], "--hypotheses needs references", "--refs FILE"),
        (["--hypotheses", "good.txt", "--refs", "rex.txt"], "rex.txt does not exist", "`ref.txt`"),
        (["--hypotheses", "goood.txt", "--refs", "ref.txt"], "goood.txt does not exist", "`good.txt`"),
        (
            ["--hypotheses", "good.txt", "--refs", "short.txt"],
            "short.txt has 1 line, but good.txt has 30",
            "same order",
        ),
        (
            ["--hypotheses", "good.txt", "--hypotheses", "short.txt", "--refs", "ref.txt"],
            "short.txt has 1 line",
            "line",
        ),
        (["--hypotheses", "good.txt", "--hypotheses", "good.txt", "--refs", "ref.txt"], "given twice", "once"),
        (["--hypotheses", "empty.txt", "--refs", "empty.txt"], "empty.txt is empty", "one hypothesis per line"),
        (["--hypotheses", "good.txt", "--refs", "ref.txt", "--metrics", "blue"], "no metric `blue`", "`bleu`"),
        (
            ["--hypotheses", "good.txt", "--refs", "ref.txt", "--beam", "2"],
            "--beam cannot be used with",
            "remove --beam",
        ),
        (["--hypotheses", "good.txt", "--refs", "ref.txt", "--errors", "2"], "--errors cannot be used with", "remove"),
        (["--hypotheses", "good.txt", "--refs", "ref.txt", "-m", "x"], "--hypotheses and --model cannot be", "--refs"),
        (["--hypotheses", "good.txt", "--pairs", "x.tsv"], "--hypotheses and --pairs cannot be", "--refs"),
        (["-m", "en-fr-small", "--pairs", "x.tsv", "--metrics", "ter"], "--metrics needs --hypotheses", "remove"),
        (["--pairs", "x.tsv"], "no model to evaluate", "--model RUN"),
    ],
)
def test_mistakes_with_files(
    cli: CliCall,
    outputs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("one\n")
    Path("empty.txt").write_text("")
    code, out, err = cli("evaluate", *arguments)
    assert (code, out) == (1, "")
    sentence, _, advice = err.partition("\nhint: ")
    assert problem in sentence
    assert hint in advice
