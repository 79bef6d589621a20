"""What is cut, dropped, split and skipped is counted, shown by row, and chosen by the user."""

from pathlib import Path

import numpy as np
import pytest

import clearformer
from clearformer.data import pair_blocks
from clearformer.data.corpora import PairCorpora
from clearformer.data.labels import Changed, Labelled, LabelRows, LabelSource
from clearformer.data.pair_blocks import Fractions
from clearformer.data.pairs import Example, Filter, Tally, cut_text, split_pair
from clearformer.data.parallel import encode_pairs
from clearformer.data.recordings import RecordingSource
from clearformer.data.store import PairStore, Ragged
from clearformer.data.tally import Examples, Skipped, short
from clearformer.data.text import TextSource
from clearformer.errors import ConfigError, DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer


def test_the_first_three_of_each_outcome_are_shown() -> None:
    examples, later = Examples(), Examples()
    for number in (9, 2, 7, 2, 5):
        examples.note("too_long", number, f"text {number}")
    later.note("too_long", 1, "text of another block")
    later.note("empty", 4, "")
    examples.merge(later, 3)
    assert examples.lines("line") == [
        "  empty: line 7",
        "  too long: line 2 “text 2”, line 4 “text of another block”, line 5 “text 5”",
    ]
    assert examples.lines("row", 2)[0] == "  empty: row 8"
    assert short("a\nb") == "a b"
    assert short("word " * 99) == "word " * 11 + "word…"
    assert len(short("x" * 10**6)) == 60


def test_long_pairs_are_dropped_cut_or_split() -> None:
    whole, long = Example("a dog", "ein Hund"), Example("One dog here. Two cats.", "Ein Hund hier. Zwei Katzen.")
    odd = Example("One dog here. Two cats.", "Ein Hund hier und zwei Katzen")
    results = {}
    for too_long in ("drop", "cut", "split"):
        tally = Tally()
        kept = list(Filter(max_chars=15, too_long=too_long).keep(iter([whole, long, odd]), tally))
        results[too_long] = kept, tally.describe(), tally.examples.lines()
        assert len(tally.numbers) == len(kept)
        assert tally.total == 3
    kept, text, lines = results["drop"]
    assert (kept, text) == ([whole], "kept 1 of 3 pairs (0 empty, 2 too long, 0 of unequal length)")
    assert lines[0].startswith("  too long: row 2 “One dog here. Two cats. → Ein Hund hier. Zwei Katzen.”, row 3 “")
    kept, text, _ = results["cut"]
    assert kept == [whole, Example("One dog here.", "Ein Hund hier."), Example("One dog here.", "Ein Hund hier")]
    assert text == "kept 3 of 3 pairs; 2 cut"
    kept, text, _ = results["split"]
    assert kept == [whole, Example("One dog here.", "Ein Hund hier."), Example("Two cats.", "Zwei Katzen.")]
    assert text == "kept 3 of 4 pairs (0 empty, 1 too long, 0 of unequal length); 1 split into 2"
    assert cut_text("abcdef", 4) == "abcd"
    assert cut_text("ab cd", 5) == "ab cd"
    assert split_pair(whole) == []


def test_ragged_rows_are_cut() -> None:
    rows = Ragged.of([[1, 2, 3], [], [4], [5, 6, 7, 8]]).cut(2)
    assert (rows.flat.tolist(), rows.lengths.tolist()) == ([1, 2, 4, 5, 6], [2, 0, 1, 2])


def corpus(folder: Path) -> list[str]:
    """A .csv file with a header and 60 pairs: one is empty, four are too long in tokens, one in characters."""
    lines = [f"word{i} dog,wort{i} Hund" for i in range(60)]
    lines[10] = ",leer"
    for i in (20, 33, 41, 52):
        lines[i] = f"One dog{i} ran. Two cats sat.,Ein Hund{i} lief. Zwei Katzen da."
    lines[45] = f"{'dog ' * 40},{'Hund ' * 40}"
    (folder / "pairs.csv").write_text("en,de\n" + "\n".join(lines) + "\n")
    return lines


@pytest.mark.parametrize("too_long", ["drop", "cut", "split"])
def test_tokens_decide_too_and_workers_agree(too_long: str, tmp_path: Path, monkeypatch) -> None:
    lines = corpus(tmp_path)
    tokenizer = train_tokenizer(lines, TextConfig(kind="word", min_frequency=1))
    rule = {"max_tokens": 5, "max_chars": 100, "too_long": too_long}
    source = {"path": tmp_path / "pairs.csv", "columns": ("en", "de")}
    data = PairCorpora.parse({"train": source, "filter": rule}, "")
    reports, stored = [], []
    for n in (1, 2):
        monkeypatch.setattr(pair_blocks, "MIN_BYTES", 0)
        monkeypatch.setattr(pair_blocks, "usable_threads", lambda n=n: n)
        monkeypatch.setattr(pair_blocks, "CHUNK", 8192 if n == 1 else 7)
        folder = tmp_path / str(n)
        folder.mkdir()
        reports.append(encode_pairs(data, [tokenizer, tokenizer], Fractions(valid=0.1), folder))
        stored.append([(folder / f"{name}.safetensors").read_bytes() for name in ("train", "valid")])
    assert stored[0] == stored[1]
    assert reports[0] == reports[1]
    report, *examples = reports[0]
    expected = {
        "drop": "train: kept 54 of 60 pairs (1 empty, 5 too long, 0 of unequal length)",
        "cut": "train: kept 59 of 60 pairs (1 empty, 0 too long, 0 of unequal length); 5 cut",
        "split": "train: kept 62 of 64 pairs (1 empty, 1 too long, 0 of unequal length); 4 split into 8",
    }[too_long]
    assert report.startswith(expected)
    assert examples[0] == "  empty: row 12 “→ leer”"
    changed = {"drop": "too long", "cut": "cut", "split": "split"}[too_long]
    line = next(line for line in examples if line.startswith(f"  {changed}: "))
    assert [part for part in ("row 22", "row 35", "row 43", "row 54") if part in line] == ["row 22", "row 35", "row 43"]
    lengths = [PairStore(tmp_path / "1" / f"{name}.safetensors").lengths for name in ("train", "valid")]
    assert max(rows.max() for rows in lengths) <= 5
    n_stored = sum(map(len, lengths))
    assert n_stored == {"drop": 54, "cut": 59, "split": 62}[too_long]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(["a b c d e f g h"], TextConfig(kind="word", min_frequency=1))


def test_long_texts_are_cut_dropped_or_split(tokenizer: Tokenizer) -> None:
    examples = [Labelled("a b", None, "x"), Labelled("a b c d e f g h", None, "y"), Labelled("c", None, "x")]
    classes = np.array([0, 1, 0])
    rows, texts = {}, {}
    for too_long in ("cut", "drop", "split"):
        changed = Changed()
        rows[too_long] = LabelRows.of(examples, classes, tokenizer, 5, too_long, changed)
        texts[too_long] = changed.describe(5, too_long)
    assert rows["cut"].tokens.lengths.tolist() == [4, 5, 3]
    assert rows["drop"].classes.tolist() == [0, 0]
    assert rows["split"].classes.tolist() == [0, 1, 1, 1, 0]
    ids = rows["split"].tokens
    inner = [row[1:-1].tolist() for row in np.split(ids.flat, np.cumsum(ids.lengths)[:-1])]
    assert [token for row in inner[1:4] for token in row] == tokenizer.encode(["a b c d e f g h"])[0]
    assert rows["split"].segments.lengths.tolist() == ids.lengths.tolist()
    assert texts["drop"] == ["  1 text of more than 5 tokens was dropped:", "    “a b c d e f g h”"]
    assert Changed().describe(5, "cut") == []
    pair = [Labelled("a b c d e f g h", "a", "x")]
    with pytest.raises(ConfigError, match="is for single texts, but the examples are pairs"):
        LabelRows.of(pair, classes[:1], tokenizer, 5, "split")


def test_blank_rows_are_counted_where_they_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("a\tx\n\nb\ty\n\t\n\n\n")
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n\n{"text": " "}\n{"text": "b"}\n')
    (tmp_path / "a.wav").touch()
    (tmp_path / "sounds.tsv").write_text("a.wav\tlow\n\n")
    skipped = [Skipped(), Skipped(), Skipped()]
    examples = list(LabelSource(path=tmp_path / "labels.tsv").read(skipped[0]))
    assert [example.where for example in examples] == [f"{tmp_path}/labels.tsv:{n}" for n in (1, 3)]
    assert len(list(TextSource(path=tmp_path / "text.jsonl").read(skipped[1]))) == 2
    assert len(list(RecordingSource(path=tmp_path / "sounds.tsv").read(skipped[2]))) == 1
    first = f"{tmp_path}/labels.tsv"
    assert skipped[0].describe() == [f"skipped 4 blank rows: {first}:2, {first}:4, {first}:5, …"]
    assert [each.n for each in skipped] == [4, 2, 1]
    assert skipped[2].describe() == [f"skipped 1 blank row: {tmp_path}/sounds.tsv:2"]


def test_training_says_what_it_changed(tmp_path: Path, capsys) -> None:
    rows = [(f"{word} {i} " * (40 if i == 13 else 1), word) for i in range(60) for word in ("good", "bad")]
    settings = ["train.steps=2", "train.validate_every=2", "data.max_tokens=50", "data.held_out=0.3"]
    lengths = {}
    for too_long in ("cut", "drop", "split"):
        chosen = [*settings, f"data.too_long={too_long}"]
        clearformer.train(labels=[*rows, ("", "")], out=tmp_path / too_long, settings=chosen, device="cpu")
        err = capsys.readouterr().err
        done = {"cut": "cut", "drop": "dropped", "split": "split"}[too_long]
        assert f"were {done}:\n" in err or f"was {done}:\n" in err
        assert "skipped 1 blank row: " in err
        lengths[too_long] = LabelRows.load(tmp_path / too_long / "data" / "train.safetensors").tokens.lengths
    assert len(lengths["drop"]) < len(lengths["cut"]) < len(lengths["split"])
    assert max(map(max, lengths.values())) == 50
    chosen = ["data.max_tokens=3", "data.too_long=drop"]
    with pytest.raises(DataError, match="every training text has more than 3 tokens"):
        clearformer.train(labels=rows, out=tmp_path / "none", settings=chosen, device="cpu")
