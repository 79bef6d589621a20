"""What the readers accept, what they refuse, and the sentence they refuse it with."""

import gc
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from clearformer.data.pairs import Example, Filter, PairSource, Tally, read_pairs
from clearformer.errors import ConfigError, DataError

PAIRS = [Example("a dog", "un chien"), Example("two cats", "deux chats"), Example("tea", "thé")]


@pytest.fixture
def write(tmp_path: Path):
    """write("a.tsv.gz", lines or bytes) -> its path."""

    def write(name: str, content: bytes | Iterable[str]) -> Path:
        data = content if isinstance(content, bytes) else "".join(f"{line}\n" for line in content).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


def refused(path: Path | tuple[Path, Path], columns=(0, 1)) -> DataError:
    with pytest.raises(DataError) as caught:
        list(read_pairs(path, columns))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs.tsv.gz", "pairs.txt.gz"])
def test_tabs_divide_columns(write, name: str) -> None:
    path = write(name, [f"{a}\t{b}\tCC-BY" for a, b in PAIRS])
    assert list(read_pairs(path)) == PAIRS
    assert list(read_pairs(path, (2, 0)))[1] == Example("CC-BY", "two cats")


def test_named_columns_come_from_the_header(write) -> None:
    path = write("pairs.tsv", ["id\tfr\ten", *(f"{i}\t{b}\t{a}" for i, (a, b) in enumerate(PAIRS))])
    assert list(read_pairs(path, ("en", "fr"))) == PAIRS


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_are_aligned_by_line(write, suffix: str) -> None:
    paths = write("a.en" + suffix, [a for a, _ in PAIRS]), write("a.fr" + suffix, [b for _, b in PAIRS])
    assert list(read_pairs(paths)) == PAIRS


def test_json_lines(write) -> None:
    path = write("pairs.jsonl.gz", [json.dumps({"en": a, "n": 7, "fr": b}) for a, b in PAIRS])
    assert list(read_pairs(path, ("en", "fr"))) == PAIRS


def test_byte_order_mark_and_windows_line_ends_leave_no_trace(write) -> None:
    path = write("pairs.tsv", b"\xef\xbb\xbfa dog\tun chien\r\ntwo cats\tdeux chats\r\ntea\tth\xc3\xa9")
    assert list(read_pairs(path)) == PAIRS


def test_only_line_feeds_end_a_line(write) -> None:
    odd = "a\u2028b\x85c\x0bd\x0ce\rf"
    pairs = list(read_pairs((write("a.en", [odd, "tea"]), write("a.fr", ["un", "thé"]))))
    assert len(pairs) == 2
    assert pairs[1] == Example("tea", "thé")


def test_reading_streams(write) -> None:
    """A bad last line does not hinder the first: nothing is read ahead of need."""
    pairs = read_pairs(write("pairs.tsv", ["a\tb"] * 5000 + ["no tab"]))
    assert next(pairs) == Example("a", "b")


def test_a_blank_line_is_an_empty_pair(write) -> None:
    assert list(read_pairs(write("a.tsv", ["a\tb", "", "c\td"])))[1] == Example("", "")
    assert list(read_pairs(write("a.jsonl", ['{"x": "a", "y": "b"}', ""]), ("x", "y")))[1] == Example("", "")


def test_missing_file_suggests_its_neighbour(write) -> None:
    path = write("train.tsv", ["a\tb"])
    with pytest.raises(DataError, match=r"trian.tsv does not exist\nhint: did you mean `train.tsv`"):
        read_pairs(path.with_name("trian.tsv"))
    assert "does not exist" in refused((path, path.parent / "nowhere" / "b.tsv")).message


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert "is a folder" in refused(tmp_path).message


def test_unknown_suffix(write) -> None:
    assert "unsupported file type" in refused(write("pairs.doc", ["a,b"])).message


def test_too_few_columns(write) -> None:
    path = write("pairs.tsv", ["a\tb", "c d"])
    assert refused(path).message == f"{path}:2: 1 column, but 2 are needed"
    assert refused(path, (0, 4)).message == f"{path}:1: 2 columns, but 5 are needed"


@pytest.mark.parametrize(
    ("name", "lines", "columns"),
    [("a.tsv", ["a\tb", "c"], (0, 1)), ("b.tsv.gz", ["a\tb"], ("en", "fr")), ("c.jsonl", ["[]"], ("en", "fr"))],
)
def test_a_refused_file_is_closed_even_while_the_error_lives(write, name: str, lines: list[str], columns) -> None:
    path = write(name, lines)
    error = refused(path, columns)
    assert error.__traceback__ is not None
    assert is_closed(path)


def test_files_of_different_lengths_are_closed(write) -> None:
    paths = write("a.en", ["a", "b", "c"]), write("a.fr", ["a"])
    error = refused(paths)
    assert error.__traceback__ is not None
    assert all(map(is_closed, paths))


def is_closed(path: Path) -> bool:
    files = (thing for thing in gc.get_objects() if type(thing) is io.BufferedReader and not thing.closed)
    return not any(str(getattr(file, "name", None)) == str(path) for file in files)


def test_unknown_column_name_lists_the_header(write) -> None:
    error = refused(write("pairs.tsv", ["en\tfr", "a\tb"]), ("en", "de"))
    assert "`de`" in error.message
    assert error.hint == "the columns are en, fr; choose with --columns"


@pytest.mark.parametrize(("n", "m"), [(7, 5), (5, 7), (0, 3)])
def test_files_of_different_lengths_say_both(write, n: int, m: int) -> None:
    en, fr = write("a.en", ["a"] * n), write("a.fr", ["b"] * m)
    assert refused((en, fr)).message == f"{en} has {n} lines but {fr} has {m}"


def test_binary_data(write) -> None:
    path = write("a.tsv", b"a\tb\nc\0\td\n")
    assert refused(path).message.startswith(f"{path}:2: binary data")
    assert "iconv -f UTF-16" in str(refused(write("b.tsv", "a\tb\n".encode("utf-16-le"))))


def test_not_utf8(write) -> None:
    path = write("a.tsv", "a\tb\nthé\td\n".encode("latin1"))
    error = refused(path)
    assert error.message == f"{path}:2: not UTF-8 (byte 3 of the line is 0xe9)"
    assert "iconv" in str(error.hint)


def test_truncated_gzip(write) -> None:
    path = write("a.tsv.gz", [f"{i * i}\t{i}" for i in range(997)])
    path.write_bytes(path.read_bytes()[:-101])
    assert "truncated" in refused(path).message


@pytest.mark.parametrize("damage", [b"plain\ttext\n", None])
def test_damaged_gzip(write, damage: bytes | None) -> None:
    path = write("a.tsv.gz", [f"{i * i}\t{i}" for i in range(997)])
    data = bytearray(path.read_bytes())
    data[50:90] = bytes(40)
    path.write_bytes(damage or data)
    assert "damaged" in refused(path).message


@pytest.mark.parametrize(
    ("name", "columns"), [("a.tsv", (0, 1)), ("a.tsv.gz", (0, 1)), ("a.tsv", ("en", "de")), ("a.jsonl", ("en", "de"))]
)
def test_empty_corpus(write, name: str, columns) -> None:
    assert "is empty" in refused(write(name, b""), columns).message


def test_a_header_alone_is_an_empty_corpus(write) -> None:
    assert "is empty" in refused(write("a.tsv", ["en\tde"]), ("en", "de")).message
    assert "is empty" in refused((write("a", b""), write("b", b""))).message


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ('{"en": "a",', "not valid JSON", "one complete JSON object"),
        ("[" * 200_000, "too deeply nested", "write fewer levels"),
        ('["a", "b"]', "a JSON list", "one complete JSON object"),
        ('{"en": "a", "fr": "b"}', "no key `de`", "the keys of the object are en, fr"),
        ('{"en": "a", "de": 7}', "`de` is of type int", "strings"),
    ],
)
def test_bad_json(write, line: str, message: str, hint: str) -> None:
    path = write("a.jsonl", ['{"en": "a", "de": "b"}', line])
    error = refused(path, ("en", "de"))
    assert error.message.startswith(f"{path}:2: ")
    assert message in error.message
    assert hint in str(error.hint)


def test_half_a_surrogate_pair_becomes_a_character(write) -> None:
    path = write("a.jsonl", ['{"en": "a", "de": "b \\ud83d"}'])
    assert list(read_pairs(path, ("en", "de"))) == [Example("a", "b \ufffd")]


def test_json_needs_names(write) -> None:
    assert "have names, not numbers" in refused(write("a.jsonl", ["{}"])).message


def test_a_recipe_describes_a_source(write) -> None:
    path = write("pairs.tsv", ["en\tfr", *map("\t".join, PAIRS)])
    assert list(PairSource.parse({"path": str(path), "columns": ["en", "fr"]}, "x.toml: [data]").read()) == PAIRS
    two = PairSource.parse({"path": ["a.en", "a.fr"]}, "x.toml: [data]")
    assert two.path == (Path("a.en"), Path("a.fr"))
    assert two.columns == (0, 1)
    with pytest.raises(ConfigError):
        PairSource.parse({"path": "a.tsv", "columns": [0, -1]}, "x.toml: [data]")


def test_filter_counts_what_it_drops() -> None:
    rule = Filter(max_chars=11, max_tokens=3, max_ratio=3)
    examples = [
        Example("a" * 3, "b" * 9),
        Example("a" * 3, "b" * 10),
        Example("", "b"),
        Example("a", ""),
        Example("a" * 11, "b" * 12),
        Example("a" * 11, "b" * 11),
    ]
    tally = Tally()
    assert list(rule.keep(iter(examples), tally)) == [examples[0], examples[5]]
    assert tally == Tally(kept=2, empty=2, too_long=1, unequal=1)
    assert tally.describe() == "kept 2 of 6 pairs (2 empty, 1 too long, 1 of unequal length)"

    assert rule.fit(np.array([3, 1]), np.array([1, 4]), tally).tolist() == [True, False]
    assert tally.describe() == "kept 1 of 6 pairs (2 empty, 2 too long, 1 of unequal length)"


def test_tally_writes_thousands() -> None:
    assert (
        Tally(28873, 12, 3, 112).describe()
        == "kept 28,873 of 29,000 pairs (12 empty, 3 too long, 112 of unequal length)"
    )
    assert Tally(kept=29000).describe() == "kept 29,000 of 29,000 pairs"


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(DataError, match="no pairs are left after filtering: kept 0 of 1 pair"):
        list(Filter().keep(iter([Example("", "b")]), Tally()))
