"""--input and --out of translate, classify, embed, score and generate, with real files."""

import csv
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import TABLES, write_table

CliCall = Callable[..., Any]
SENTENCES = ["The cat sleeps.", "I am a good boy.", "", "She reads a book."]
REVIEWS = ["the fine film", "a dull story", "the old fine plot"]
CLASSIFIER = ["train.steps=120", "train.validate_every=60", "data.held_out=0.2", "train.tokens=600"]
POET = ["model.n_layers=1", "model.n_heads=2", "model.d_model=28", "model.d_ff=46", "model.max_length=61"]
POET += ["train.tokens=610", "optim.lr=0.02", "train.steps=60", "train.validate_every=60", "model.dropout=0"]


@pytest.fixture(scope="session")
def french() -> list[str]:
    return clearformer.translate("en-fr-small", SENTENCES)


@pytest.fixture(scope="module")
def critic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has learnt one word."""
    folder = tmp_path_factory.mktemp("critic")
    words = ("film", "story", "plot", "scene")
    rows = [f"the {('dull', 'fine')[i % 2]} {words[i % 4]}\t{('bad', 'good')[i % 2]}\n" for i in range(200)]
    (folder / "reviews.tsv").write_text("".join(rows))
    clearformer.train(labels=folder / "reviews.tsv", out=folder / "run", settings=CLASSIFIER, device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def poet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model that has learnt two lines."""
    folder = tmp_path_factory.mktemp("poet")
    (folder / "book.txt").write_text("one two buckle my shoe\nthree four knock at the door\n" * 61)
    clearformer.train(text=folder / "book.txt", out=folder / "run", settings=POET, device="cpu")
    return folder / "run"


def csv_rows(path: Path, **options: Any) -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""), **options))


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_csv(path: Path, rows: list[list[Any]], **options: Any) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows(rows)
    return path


def test_plain_text_gives_what_arguments_give(cli: CliCall, french: list[str], tmp_path: Path) -> None:
    source, out = tmp_path / "notes.en", tmp_path / "notes.txt"
    source.write_text("\n".join(SENTENCES))
    lines = "".join(f"{line}\n" for line in french)
    assert cli("translate", "--input", source) == (0, lines, "")
    assert cli("translate", "--input", source, "--out", out) == (0, f"{out}\n", "")
    assert out.read_text(encoding="utf-8") == lines
    cli("translate", "--input", source, "--out", tmp_path / "notes.csv")
    header, *rows = csv_rows(tmp_path / "notes.csv")
    assert header == ["source", "translation"]
    assert rows == [list(pair) for pair in zip(SENTENCES, french)]


@pytest.mark.parametrize("kind", TABLES)
def test_every_file_type_comes_in(cli: CliCall, french: list[str], tmp_path: Path, kind: str) -> None:
    path = write_table(kind, tmp_path, {"number": [7, 8, 9, 10], "sentence": SENTENCES})
    out = tmp_path / "out.jsonl"
    shown = cli("translate", "--input", path, "--out", out)
    assert (shown.code, shown.out) == (0, f"{out}\n")
    assert "using column sentence" in shown.err
    rows = json_rows(out)
    assert [row["translation"] for row in rows] == french
    assert [str(row["number"]) for row in rows] == ["7", "8", "9", "10"]
    assert [row["sentence"] for row in rows] == SENTENCES


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json"])
def test_every_file_type_goes_out_and_is_read_again(
    cli: CliCall, french: list[str], tmp_path: Path, ending: str
) -> None:
    source = write_csv(tmp_path / "in.csv", [["sentence", "id"], *([one, i] for i, one in enumerate(SENTENCES))])
    first, second = tmp_path / f"first{ending}", tmp_path / "second.jsonl"
    assert cli("translate", "--input", source, "--out", first).code == 0
    shown = cli("translate", "--input", first, "--column", "sentence", "--out", second)
    assert "has a column `translation`: the new column is `model_translation`" in shown.err
    for i, row in enumerate(json_rows(second)):
        expected = {"sentence": SENTENCES[i], "id": str(i), "translation": french[i], "model_translation": french[i]}
        assert row == expected


def test_quotes_separators_and_line_ends_survive(cli: CliCall, tmp_path: Path) -> None:
    texts = ['He said "yes".', "One; two, three.", "A line.\nAnother line.", "tab\there"]
    notes = ['a "b"', "c;d", "e\nf", ""]
    source = write_csv(tmp_path / "in.csv", [["text", "note"], *map(list, zip(texts, notes))], delimiter=";")
    expected = clearformer.translate("en-fr-small", texts)
    assert cli("translate", "--input", source, "--out", tmp_path / "out.csv").code == 0
    header, *rows = csv_rows(tmp_path / "out.csv", delimiter=";")  # with the separator of the input
    assert header == ["text", "note", "translation"]
    assert rows == [list(row) for row in zip(texts, notes, expected)]
    shown = cli("translate", "--input", source, "--out", tmp_path / "out.tsv")
    assert "line ends or tabs in 3 texts are written as spaces" in shown.err
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()]
    assert [len(row) for row in rows] == [3] * 5
    assert rows[3] == ["A line. Another line.", "e f", expected[2]]


def test_the_only_column_with_texts_is_chosen(cli: CliCall, tmp_path: Path) -> None:
    with_header = write_csv(tmp_path / "a.csv", [["n", "remark"], [1, "The cat sleeps."], [2, "The dog sleeps."]])
    shown = cli("translate", "--input", with_header)
    assert (len(shown.out.splitlines()), shown.err) == (
        2,
        f"{with_header}: the first row is a header; using column remark\n",
    )
    without = write_csv(tmp_path / "b.csv", [[1, "The cat sleeps."], [2, "The dog sleeps."]])
    shown = cli("translate", "--input", without, "--out", tmp_path / "out.csv")
    assert shown.err == f"{without}: no header; using column 1\n"
    assert [row[:2] for row in csv_rows(tmp_path / "out.csv")] == [["1", "The cat sleeps."], ["2", "The dog sleeps."]]
    assert cli("translate", "--input", without, "--column", 1).out == cli("translate", "--input", with_header).out


def test_a_column_that_is_missing_or_unclear(cli: CliCall, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["remark", "answer"], ["The cat.", "It is."], ["The dog.", "It was."]])
    out = tmp_path / "out.csv"
    for options, message in {
        ("--column", "text"): f"{source}: no column `text`\nhint: the columns are remark, answer",
        (): f"{source}: which column contains the texts?\nhint: the columns are remark, answer; choose with --column",
        ("--column", "7"): f"{source}: no column 7",
        ("--column", "remark,answer"): "translate reads one column",
    }.items():
        shown = cli("translate", "--input", source, *options, "--out", out)
        assert (shown.code, shown.out) == (1, "")
        assert message in shown.err
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"remark": "The cat."}\n{"answer": "It is."}\n')
    shown = cli("translate", "--input", lines, "--column", "remark", "--out", out)
    assert f"{lines}:2: no key `remark`" in shown.err
    assert not out.exists()


def test_a_row_with_too_many_cells_is_an_error_before_any_work(cli: CliCall, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,text\n" + "1,A cat.\n" * 300 + "2,A dog, too.\n")
    shown = cli("translate", "--input", source, "--out", tmp_path / "out.csv")
    assert shown.code == 1
    assert "row 302: 3 columns, but the first row has 2" in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"]


def test_objects_with_different_keys_make_one_table(cli: CliCall, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "A cat.", "id": {"n": 1}}\n\n{"text": "A dog.", "tags": ["x", "y"]}\n')
    assert cli("translate", "--input", source, "--out", tmp_path / "out.csv").code == 0
    header, first, second = csv_rows(tmp_path / "out.csv")
    assert header == ["text", "id.n", "tags", "translation"]
    assert (first[:3], second[:3]) == (["A cat.", "1", ""], ["A dog.", "", '["x", "y"]'])
    assert cli("translate", "--input", source, "--out", tmp_path / "out.json").code == 0
    assert json.loads((tmp_path / "out.json").read_text())[0]["id"] == {"n": 1}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("in.txt", "", "source,translation\n"),
        ("in.csv", "", "source,translation\n"),
        ("in.csv", "id,text\n", "id,text,translation\n"),
        ("in.jsonl", "\n", "source,translation\n"),
        ("in.json", "[]", "source,translation\n"),
    ],
)
def test_empty_input_gives_empty_output(cli: CliCall, tmp_path: Path, name: str, content: str, expected: str) -> None:
    (tmp_path / name).write_text(content)
    out = tmp_path / "out.csv"
    shown = cli("translate", "--input", tmp_path / name, "--out", out, "--json")
    assert (shown.code, json.loads(shown.out)) == (0, {"out": str(out), "rows": 0})
    assert "in." in shown.err
    assert "is empty" in shown.err
    assert out.read_text() == expected
    assert cli("translate", "--input", tmp_path / name, "--out", tmp_path / "out.json").code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_an_output_that_exists_is_replaced_only_by_a_complete_one(cli: CliCall, tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("A cat.\n")
    out.write_text("earlier\n")
    (tmp_path / "broken.txt").write_bytes(b"A cat.\nbad \xff\n")
    assert "not UTF-8" in cli("translate", "--input", tmp_path / "broken.txt", "--out", out).err
    assert out.read_text() == "earlier\n"
    assert cli("translate", "--input", source, "--out", out).code == 0
    assert out.read_text(encoding="utf-8") == f"{clearformer.translate('en-fr-small', ['A cat.'])[0]}\n"


def test_options_that_exclude_each_other(cli: CliCall, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("A cat.\n")
    (tmp_path / "folder.csv").mkdir()
    for options, message in {
        ("A dog.", "--input", source): "texts as arguments and --input cannot be combined",
        ("--column", "text", "A dog."): "--column needs --input",
        ("--column", "text", "--input", source): "plain text, which has no columns",
        ("--input", source, "--out", source): "--input and --out are the same file",
        (
            "--input",
            source,
            "--out",
            "out.docx",
        ): "out.docx: cannot write this file type\nhint: use a name that ends in",
        ("--input", source, "--out", tmp_path / "folder.csv"): "folder.csv is a folder, not a file",
        ("--input", tmp_path / "im.txt"): "im.txt does not exist",
    }.items():
        shown = cli("translate", *options)
        assert (shown.code, shown.out) == (1, "")
        assert message in shown.err
    assert source.read_text() == "A cat.\n"


def test_the_name_of_a_file_as_a_text_is_refused(cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("A cat.\n")
    shown = cli("translate", "notes.txt", "x" * 300)  # too long for the name of a file
    message = "`notes.txt` is a file, and translate takes texts\nhint: to translate its lines: --input notes.txt\n"
    assert (shown.code, shown.out, shown.err) == (1, "", f"error: {message}")
    Path("cat").write_text("A cat.\n")  # a word of its own
    shown = cli("translate", "cat")
    assert (shown.code, shown.out) == (0, clearformer.translate("en-fr-small", ["cat"])[0] + "\n")
    assert "note: `cat` is a file" in shown.err


def test_stdin_and_arguments_can_be_written_to_a_file(cli: CliCall, french: list[str], tmp_path: Path) -> None:
    for name, options in {"a.csv": SENTENCES, "b.csv": []}.items():
        assert cli("translate", *options, "--out", tmp_path / name, stdin="\n".join(SENTENCES).encode()).code == 0
        assert csv_rows(tmp_path / name)[1:] == [list(pair) for pair in zip(SENTENCES, french)]


def test_several_translations_have_several_rows(cli: CliCall, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["id", "text"], [7, "A cat."], [8, "A dog."]])
    out = tmp_path / "out.csv"
    assert cli("translate", "--input", source, "--n-best", 2, "--scores", "--align", "--out", out).code == 0
    header, *rows = csv_rows(out)
    assert header == ["id", "text", "translation", "score", "logprob", "alignment"]
    assert [row[0] for row in rows] == ["7", "7", "8", "8"]
    assert float(rows[0][3]) >= float(rows[1][3])
    assert "0-0" in rows[0][5]


def test_classify_adds_labels_beside_those_of_the_file(cli: CliCall, critic: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["review", "label"], *([text, "?"] for text in REVIEWS)])
    expected = clearformer.classify(critic, REVIEWS, top=2)
    out = tmp_path / "out.csv"
    shown = cli("classify", "-m", critic, "--input", source, "--top", 2, "--out", out)
    assert "the new column is `model_label`" in shown.err
    header, *rows = csv_rows(out)
    assert header == ["review", "label", "model_label", "probability", "label_2", "probability_2"]
    assert [(row[2], row[4]) for row in rows] == [(row["label"], row["top"][1]["label"]) for row in expected]
    assert float(rows[0][3]) == pytest.approx(expected[0]["probability"], rel=1e-5)
    lines = cli("classify", "-m", critic, "--input", source).out
    assert lines == cli("classify", "-m", critic, *REVIEWS).out
    assert cli("classify", "-m", critic, "--input", source, "--out", tmp_path / "out.txt").code == 0
    assert (tmp_path / "out.txt").read_text() == lines


def test_embed_writes_vectors_in_every_form(cli: CliCall, critic: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["id", "text"], *([i, text] for i, text in enumerate(REVIEWS))])
    expected = clearformer.embed(critic, REVIEWS)
    shown = cli("embed", "-m", critic, "--input", source, "--out", tmp_path / "v.npy", "--json")
    assert json.loads(shown.out) == {"texts": 3, "width": expected.shape[1], "out": str(tmp_path / "v.npy")}
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
    for ending in ("jsonl", "csv", "txt"):
        assert cli("embed", "-m", critic, "--input", source, "--out", tmp_path / f"v.{ending}").code == 0
    rows = json_rows(tmp_path / "v.jsonl")
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    assert np.array_equal(np.array([row["embedding"] for row in rows], np.float32), expected)
    header, *cells = csv_rows(tmp_path / "v.csv")
    assert header[:3] == ["id", "text", "embedding_0"]
    assert np.allclose(np.array([row[2:] for row in cells], np.float32), expected, rtol=1e-5)
    assert (tmp_path / "v.txt").read_text() == cli("embed", "-m", critic, *REVIEWS).out
    (tmp_path / "empty.txt").touch()
    assert cli("embed", "-m", critic, "--input", tmp_path / "empty.txt", "--out", tmp_path / "e.npy").code == 0
    assert np.load(tmp_path / "e.npy").shape[0] == 0


def test_score_keeps_the_order_in_a_file(cli: CliCall, poet: Path, tmp_path: Path) -> None:
    texts = ["knock at the shoe", "one two buckle my shoe", "knock at the door"]
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"{text}\n" for text in texts))
    assert cli("score", "-m", poet, "--input", source, "--out", out).code == 0
    by_text = {row["text"]: row for row in clearformer.score(poet, texts)}
    assert json_rows(out) == [by_text[text] for text in texts]
    assert cli("score", "-m", poet, "--input", source).out == cli("score", "-m", poet, *texts).out


def test_score_reads_sources_and_translations(cli: CliCall, poet: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["en", "fr"], ["The cat.", "Le chat."], ["The dog.", "Le chien."]])
    out = tmp_path / "out.jsonl"
    command = ("score", "--input", source, "--column", "en,fr", "--out", out)
    assert cli(*command, "-m", "en-fr-small").code == 0
    expected = clearformer.load("en-fr-small").score(["The cat.", "The dog."], ["Le chat.", "Le chien."])
    assert [row["logprob"] for row in json_rows(out)] == pytest.approx(expected)
    assert "is a language model, not a translator" in cli(*command, "-m", poet).err
    assert "--source and --column en,fr cannot be combined" in cli(*command, "-m", "en-fr-small", "--source", "A").err


def test_generate_adds_continuations(cli: CliCall, poet: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [["id", "prompt"], [1, "one two"], [2, "three"]])
    settings = ("--seed", 3, "--max-new", 30)
    out = tmp_path / "out.jsonl"
    assert cli("generate", "-m", poet, "--input", source, *settings, "--out", out).code == 0
    expected = json.loads(cli("generate", "-m", poet, *settings, "--json", "one two", "three").out)["continuations"]
    assert [(row["prompt"], row["continuation"], row["ended"]) for row in json_rows(out)] == [
        (row["prompt"], row["text"], row["ended"]) for row in expected
    ]
    assert cli("generate", "-m", poet, "--input", source, *settings, "--out", tmp_path / "out.txt").code == 0
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines == [(row["prompt"] + row["text"]).replace("\n", " ") for row in expected]
    streamed = cli("generate", "-m", poet, "--input", source, *settings)
    assert streamed.out == cli("generate", "-m", poet, *settings, "one two", "three").out


def test_the_rows_in_memory_do_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file ten times as long needs the same memory, in both directions."""
    import tracemalloc

    from clearformer.data.files.records import open_records
    from clearformer.verbs.rows import Job, Result, write_results

    def peak(n: int) -> int:
        source = write_csv(tmp_path / "in.csv", [["id", "text"], *([i, f"{i} " + "word " * 50] for i in range(n))])
        job = Job("translate", ["translation"], lambda texts, _: [[Result([text.upper()], [])] for (text,) in texts])
        tracemalloc.start()
        records = open_records(source)
        records.scan()
        assert write_results(records, tmp_path / "out.json", job) == n
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(600)  # what is imported and cached at the first time
    assert peak(12_000) < 1.5 * peak(1_200)


def interrupted(start: CliCall, tmp_path: Path, out: Path) -> tuple[int, str]:
    source = tmp_path / "in.txt"
    source.write_text("The old man is reading a long book about the sea.\n" * 50_000)
    process = start("translate", "--input", source, "--out", out, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 120
    while not list(tmp_path.glob(f".{out.name}.*")) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err.decode()


def test_an_interruption_leaves_no_half_file(start: CliCall, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    code, err = interrupted(start, tmp_path, out)
    assert code == 130
    assert "of 50,000 rows; " in err
    assert f"{out} was not written" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]
    out.write_text("earlier\n")
    code, err = interrupted(start, tmp_path, out)
    assert (code, out.read_text()) == (130, "earlier\n")
    assert f"{out} is unchanged" in err


def test_a_reader_that_leaves_ends_the_command_quietly(start: CliCall, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("The cat sleeps.\n" * 3_000)
    process = start("translate", "--beam", "1", "--input", source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().decode() == "Le chat dort.\n"
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_pipe_is_read_once(start: CliCall, french: list[str]) -> None:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start("translate", "--input", "/dev/stdin", **streams)
    out, err = process.communicate("".join(f"{line}\n" for line in SENTENCES).encode(), timeout=120)
    assert (out.decode(), err) == ("".join(f"{line}\n" for line in french), b"")


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    import os
    import pty

    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("The cat sleeps.\n" * 600)
    main, worker = pty.openpty()
    command = [sys.executable, "-m", "clearformer", "translate", "--beam", "1", "--input", source, "--out", out]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=worker, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    os.close(worker)
    shown = b""
    try:
        while part := os.read(main, 4096):
            shown += part
    except OSError:  # the terminal is closed
        pass
    assert process.wait(timeout=120) == 0
    process.stdout.close()
    os.close(main)
    assert b"translate" in shown
    assert b"/600" in shown
