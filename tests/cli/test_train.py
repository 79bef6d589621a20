import gzip
import json
import signal
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer

CliCall = Callable[..., Any]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_dry_run_prints_the_recipe_and_writes_nothing(cli: CliCall, corpus: Path) -> None:
    code, out, err = cli("train", "--pairs", corpus, "--dry-run", "--set", "train.steps=77")
    assert code == 0
    recipe = tomllib.loads(out)
    assert (recipe["train"]["steps"], recipe["model"]["kind"]) == (77, "transformer")
    assert "100 pairs" in err
    assert "77 steps" in err.replace("\n", " ")
    assert "runs/pairs-transformer-2" in err
    assert json.loads(cli("train", "--pairs", corpus, "--dry-run", "--set", "train.steps=77", "--json").out) == recipe
    assert list(Path().iterdir()) == []


def test_a_printed_recipe_can_be_trained(cli: CliCall, corpus: Path, here: Path, small: list[str]) -> None:
    (here / "mine.toml").write_text(cli("train", "--pairs", corpus, *small, "--dry-run").out, encoding="utf-8")
    result = cli("train", "mine.toml", "--set", "train.steps=2", "--json", "--out", "new/run", "--device", "cpu")
    report = json.loads(result.out)
    assert (result.code, report["run"], report["steps"]) == (0, "new/run", 2)
    assert report["valid"].keys() == {"loss", "bleu", "chrf"}
    assert cli("train", "mine.toml", "--out", "new/run").err == (
        "error: new/run already contains a run\n"
        "hint: resume it with `clearformer train --resume --out new/run`, or choose another --out\n"
    )


@pytest.mark.usefixtures("here")
def test_finetuning_prints_a_folder_named_after_data_and_model(cli: CliCall, corpus: Path, run: Path) -> None:
    settings = ["--set", "train.steps=3", "--set", "train.tokens=101"]
    code, out, err = cli("finetune", "-m", run, "--pairs", corpus, *settings, "--device", "cpu")
    assert code == 0, err
    folder = Path(out.removesuffix("\n"))
    assert folder.parent == Path("runs")
    assert folder.name.startswith("pairs-small-")
    assert (folder / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    recipes = [clearformer.Recipe.read(path / "recipe.toml") for path in (folder, run)]
    assert recipes[0].optim.lr == pytest.approx(recipes[1].optim.lr / 10)
    assert cli("translate", "-m", folder, "the dog sees a tree.").out.strip()


def test_ctrl_c_saves_and_resume_goes_on(
    start: CliCall, cli: CliCall, corpus: Path, here: Path, small: list[str]
) -> None:
    endless = [
        *small,
        "--set",
        "train.steps=1000000",
        "--set",
        "train.log_every=1",
        "--set",
        "train.validate_every=1000000",
    ]
    with start(
        "train", "--pairs", corpus, "--out", "run", "--device", "cpu", *endless, stdout=-1, stderr=-1
    ) as process:
        wait_for(here / "run" / "metrics.jsonl")
        unfinished = cli("translate", "-m", "run", "hello")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert b"saved at step" in err
    assert b"--resume --out run" in err
    assert unfinished.code == 1
    assert unfinished.err.startswith("error: run has no trained weights yet")
    assert "--resume --out run" in unfinished.err.split("\nhint: ")[1]

    steps = [json.loads(line)["step"] for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    last = steps[-1] + 2
    result = cli("train", "--resume", "--out", "run", "--set", f"train.steps={last}", "--json", "--device", "cpu")
    assert result.code == 0, result.err
    assert json.loads(result.out)["steps"] == last
    lines = [json.loads(line) for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, last + 1))


def wait_for(metrics: Path) -> None:
    """Until three steps are logged."""
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


FILES = {
    "empty.tsv": b"",
    "blank.tsv": b"\n\n\t\n",
    "one.tsv": b"just one column\n",
    "latin.tsv": "été\tsummer\n".encode("latin-1"),
    "utf16.tsv": "a\tb\n".encode("utf-16-le"),
    "image.tsv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "cut.tsv.gz": gzip.compress(b"one\tun\n" * 999)[:-11],
    "good.tsv": b"one house\tune maison\n" * 40 + b"two trees\tdeux arbres\n" * 40,
    "three.en": b"a\nb\nc\n",
    "two.fr": b"a\nb\n",
    "named.jsonl": b'{"one": "a", "two": "b"}\n',
    "bad.jsonl": b'{"en": "a", "fr": 3}\n',
    "not.toml": b"[train\nsteps = 5\n",
    "binary.toml": b"\xff\xfe\0",
    "typo.toml": b'[data]\ntrain = {path = "good.tsv"}\n[model]\nn_head = 3\n',
    "table.toml": b'[data]\ntrain = {path = "good.tsv"}\n[trian]\nsteps = 3\n',
    "flat.toml": b'train = 5\n[data]\ntrain = {path = "good.tsv"}\n',
    "nodata.toml": b"[train]\nsteps = 5\n",
}

MISTAKES = {
    "nothing": ([], "no data to train on", "--pairs"),
    "missing file": (["--pairs", "god.tsv"], "god.tsv does not exist", "did you mean `good.tsv`?"),
    "missing test file": (["--pairs", "good.tsv", "--test", "nope.tsv"], "nope.tsv does not exist", "did you mean"),
    "folder": (["--pairs", "."], ". is a folder, not a file", "inside"),
    "empty": (["--pairs", "empty.tsv"], "empty.tsv is empty", "at least one pair"),
    "nothing left": (["--pairs", "blank.tsv"], "no pairs are left after filtering: kept 0 of 3 pairs", "columns"),
    "wrong columns": (["--pairs", "one.tsv"], "one.tsv:1: 1 column, but 2 are needed", "tabs"),
    "column number": (["--pairs", "good.tsv", "--columns", "0,2"], "good.tsv:1: 2 columns, but 3 are needed", "from 0"),
    "column name": (["--pairs", "good.tsv", "--columns", "en,fr"], "no column `en`", "one house"),
    "json numbers": (["--pairs", "named.jsonl"], "have names, not numbers", "one, two; choose with --columns"),
    "json type": (["--pairs", "bad.jsonl", "--columns", "en,fr"], "bad.jsonl:1: `fr` is of type int", "strings"),
    "mis-encoded": (["--pairs", "latin.tsv"], "latin.tsv:1: not UTF-8", "iconv"),
    "utf-16": (["--pairs", "utf16.tsv"], "utf16.tsv:1: binary data", "UTF-16"),
    "binary": (["--pairs", "image.tsv"], "image.tsv:1: not UTF-8", "convert"),
    "truncated": (["--pairs", "cut.tsv.gz"], "cut.tsv.gz: the compressed file is truncated", "again"),
    "misaligned": (["--pairs", "three.en,two.fr"], "three.en has 3 lines but two.fr has 2", "same line"),
    "both": (["good.tsv", "--pairs", "good.tsv"], "good.tsv and --pairs cannot be combined", "comma"),
    "vocabulary": (
        ["--pairs", "good.tsv", "--set", "text.vocab_size=5000"],
        "too small for vocab_size = 5000: kind = bpe finds only 52 tokens",
        "text.vocab_size to at most 52",
    ),
    "preset": (["--pairs", "good.tsv", "-m", "transformer-tinny"], "unknown preset `transformer-tinny`", "-tiny`?"),
    "set key": (
        ["--pairs", "good.tsv", "--set", "train.step=5"],
        "[train]: unknown key `step`",
        "did you mean `steps`?",
    ),
    "set table": (["--pairs", "good.tsv", "--set", "tran.steps=5"], "unknown table [tran]", "did you mean `train`?"),
    "set value": (
        ["--pairs", "good.tsv", "--set", "train.steps=many"],
        "steps = 'many' is not a whole number",
        "for example steps = ",
    ),
    "set form": (["--pairs", "good.tsv", "--set", "train.steps"], "expected table.key=value", "train.steps=500"),
    "set inside": (["--pairs", "good.tsv", "--set", "data.train.path.x=1"], "`path` is a value", "set `path` instead"),
    "set kind": (["--pairs", "good.tsv", "--set", "model.kind=trafo"], "unknown architecture `trafo`", "--plugin"),
    "no recipe": (["none.toml"], "none.toml cannot be read: No such file", "recipe"),
    "recipe folder": (["."], ". is a folder, not a recipe", "--images ."),
    "not toml": (["not.toml"], "not.toml is not valid TOML", "steps = 500"),
    "binary recipe": (["binary.toml"], "binary.toml cannot be read: it is not UTF-8", "recipe"),
    "recipe key": (["typo.toml"], "typo.toml: [model]: unknown key `n_head`", "did you mean `n_heads`?"),
    "recipe table": (["table.toml"], "table.toml: unknown table [trian]", "did you mean `train`?"),
    "recipe shape": (["flat.toml"], "flat.toml: `train` is not a table", "[train]"),
    "recipe without data": (["nodata.toml"], "nodata.toml: missing table [data]", "data.train.path"),
    "recipe and set": (
        ["typo.toml", "--set", "train.step=5"],
        "typo.toml with --set: [train]: unknown key `step`",
        "steps",
    ),
    "resume nothing": (["--resume", "--out", "nope"], "there is no run folder nope", "--out"),
    "resume elsewhere": (["--resume", "--out", "."], ". is not a run folder", "--out"),
    "device": (["--pairs", "good.tsv", "--device", "abacus"], "`abacus`", "cpu"),
    "out is a file": (["--pairs", "good.tsv", "--out", "good.tsv"], "good.tsv", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_sentence_and_a_hint(cli: CliCall, here: Path, mistake: str) -> None:
    for name, content in FILES.items():
        (here / name).write_bytes(content)
    arguments, problem, hint = MISTAKES[mistake]
    code, out, err = cli("train", *arguments, *(() if "--out" in arguments else ("--out", "run")))
    assert (code, out) == (1, "")
    complaint = err[err.index("error: ") :]
    sentence, _, advice = complaint.partition("\nhint: ")
    assert problem in sentence
    assert hint in advice
    assert complaint.count("\n") == 2
    assert not list(here.glob("run/*.safetensors"))
    assert all((here / name).read_bytes() == content for name, content in FILES.items())


def test_resuming_needs_a_folder(cli: CliCall) -> None:
    message = "error: --resume needs --out\nhint: clearformer train --resume --out RUN\n"
    assert cli("train", "--resume") == (1, "", message)


@pytest.mark.usefixtures("here")
def test_two_vocabularies_need_no_further_setting(cli: CliCall, corpus: Path) -> None:
    out = cli("train", "--pairs", corpus, "--set", "text.shared=false", "--dry-run").out
    assert tomllib.loads(out)["model"]["share"] == "decoder"
