"""Every file type gives every task the same examples, and a damaged file is refused with one sentence."""

import sys
from pathlib import Path
from random import Random

import pytest

from clearformer.data.files.open import describe_columns
from clearformer.data.labels import Labelled, LabelSource, named_columns
from clearformer.data.pairs import Example, named_pair_columns, read_pairs
from clearformer.data.recordings import RecordingSource, named_recording_columns
from clearformer.data.tags import Tagged, TagSource, is_tagged
from clearformer.data.text import TextSource, named_text_column
from clearformer.data.text_sample import sample_texts
from clearformer.errors import DataError

sys.path.insert(0, str(Path(__file__).parents[2]))
from table_files import GRIDS, MEMORIES, NAMED, TABLES, write_table

ENGLISH = ['a "dog", she said; then', "two cats", "", "tea & <b>", "7", "1+1", '"', "end"] * 11
FRENCH = ["un chien, dit-elle; puis", "deux « chats »", "rien", "thé", "sept", "un 'et' un", "guillemet", ""] * 11
PAIRS = [Example(*pair) for pair in zip(ENGLISH, FRENCH)]


@pytest.mark.parametrize("kind", [*TABLES, *MEMORIES])
def test_pairs(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"en": ENGLISH, "fr": FRENCH})
    columns = named_pair_columns(path)
    assert columns == (("source", "target") if kind in ("xliff", "2.xlf") else ("en", "fr"))
    assert list(read_pairs(path, columns)) == PAIRS
    assert list(read_pairs(path, columns[::-1])) == [Example(b, a) for a, b in PAIRS]
    header = "the first line is a header; " if kind.startswith("tsv") else "the first row is a header; "
    said = describe_columns(path, columns)
    assert said.startswith(f"{path}: {header if kind in GRIDS else ''}using columns {columns[0]} and {columns[1]}")
    assert said.endswith(
        {"semicolons.csv": ", separated by semicolons", "tabs.csv": ", separated by tabs"}.get(kind, columns[1])
    )


@pytest.mark.parametrize("kind", TABLES)
def test_labels(kind: str, tmp_path: Path) -> None:
    texts = [text or "nothing" for text in ENGLISH]
    labels = [["good", "bad", "0"][i % 3] for i in range(len(texts))]
    path = write_table(kind, tmp_path, {"sentiment": labels, "id": list(range(len(texts))), "review": texts})
    columns = named_columns(path)
    assert columns == {"text": "review", "label": "sentiment"}
    expected = [Labelled(text, None, label) for text, label in zip(texts, labels)]
    assert list(LabelSource(path=path, **columns).read()) == expected
    sample = sample_texts(path, None, 10**6)
    assert (sample.texts, sample.labels) == (texts, labels)
    swapped = LabelSource(path=path, text=("review", "sentiment"), label="sentiment").read()
    assert next(swapped) == Labelled(texts[0], labels[0], labels[0])


@pytest.mark.parametrize("kind", TABLES)
def test_numeric_labels(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"text": ["a", "b", "c"], "label": [3, 1, 2]})
    assert [example.label for example in LabelSource(path=path, **named_columns(path)).read()] == ["3", "1", "2"]


@pytest.mark.parametrize("kind", TABLES)
def test_text(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"url": ["x"] * len(ENGLISH), "content": ENGLISH})
    column = named_text_column([path])
    assert column == "content"
    source = TextSource(path=path, column=column)
    assert list(source.read()) == [text for text in ENGLISH if text]
    assert source.is_collection


@pytest.mark.parametrize("kind", TABLES)
def test_recordings(kind: str, tmp_path: Path) -> None:
    names = [f"wavs/{i}.wav" for i in range(7)]
    (tmp_path / "wavs").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"RIFF")
    path = write_table(kind, tmp_path, {"client": ["ann"] * 7, "path": names, "sentence": ["one two"] * 7})
    columns = named_recording_columns(path)
    assert columns == {"sound": "path", "text": "sentence"}
    recordings = list(RecordingSource(path=path, **columns, speaker="client").read())
    assert [(r.path, r.text, r.speaker) for r in recordings] == [(tmp_path / name, "one two", "ann") for name in names]


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("key", ["labels", "ner_tags"])
def test_words(kind: str, key: str, tmp_path: Path) -> None:
    words, labels = [["EU", "rejects"], ["Peter"]], [["ORG", "O"], ["PER"]]
    path = write_table(kind, tmp_path, {"tokens": words, key: labels})
    assert is_tagged(path)
    assert list(TagSource(path=path).read()) == [Tagged(*map(tuple, pair)) for pair in zip(words, labels)]


@pytest.mark.parametrize("kind", ["csv", "xlsx", "jsonl", "json", "parquet", "dataset"])
def test_cells_with_line_ends(kind: str, tmp_path: Path) -> None:
    texts = ['first\n\nsecond, "third"\n', "\n a\tb", "x\n"]
    path = write_table(kind, tmp_path, {"text": texts, "label": ["a", "b", "c"]})
    assert list(TextSource(path=path).read()) == texts
    assert next(LabelSource(path=path, **named_columns(path)).read()).text == 'first second, "third"'


@pytest.mark.parametrize("kind", ["tsv", "csv", "semicolons.csv", "xlsx"])
def test_columns_by_number(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"a dog": ["tea"], "x": ["CC-BY"], "un chien": ["thé"]})
    assert named_pair_columns(path) == (0, 1)
    assert list(read_pairs(path, (0, 2))) == [Example("a dog", "un chien"), Example("tea", "thé")]
    assert list(LabelSource(path=path, text=2, label=0).read())[1] == Labelled("thé", None, "tea")
    assert list(TextSource(path=path, column=1).read()) == ["x", "CC-BY"]
    with pytest.raises(DataError, match=r"(:|, row )1: 3 columns, but 6 are needed"):
        list(read_pairs(path, (0, 5)))


@pytest.mark.parametrize("kind", [*TABLES, *MEMORIES])
def test_an_unknown_column_lists_the_columns_and_the_option(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"en": ["a"], "fr": ["b"]})
    with pytest.raises(DataError) as caught:
        list(read_pairs(path, ("en", "de") if kind not in ("xliff", "2.xlf") else ("source", "de")))
    assert "`de`" in caught.value.message
    names = "source, target" if kind in ("xliff", "2.xlf") else "en, fr"
    assert f"{names}; choose with --columns" in str(caught.value.hint)


@pytest.mark.parametrize("kind", [*NAMED, *MEMORIES])
def test_numbers_for_named_columns_list_the_names(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"en": ["a"], "fr": ["b"]})
    with pytest.raises(DataError, match=r"have names, not numbers\nhint: the columns are .*; choose with --columns"):
        read_pairs(path)


def damage(kind: str, path: Path) -> None:
    """Cut a file in the middle. Where every cut leaves a valid file, add a row that is not valid."""
    file = next(path.glob("*.arrow")) if path.is_dir() else path
    data = file.read_bytes()
    if kind == "tsv":
        data += b"no tab\n"
    elif kind.endswith("csv"):
        data += 'a,"an open quote'.encode("utf-16-le" if kind == "utf16.csv" else "utf-8")
    else:
        data = data[: len(data) // 2]
    file.write_bytes(data)


@pytest.mark.parametrize("kind", [*TABLES, *MEMORIES])
def test_a_damaged_file_is_refused_with_one_sentence(kind: str, tmp_path: Path) -> None:
    path = write_table(kind, tmp_path, {"en": [f"{i * i}" for i in range(2000)], "fr": ["b" * 7] * 2000})
    damage(kind, path)
    with pytest.raises(DataError) as caught:
        list(read_pairs(path, named_pair_columns(path)))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize("kind", [*TABLES, *MEMORIES])
def test_changed_bytes_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    """Whatever is damaged, there is no other exception."""
    path = write_table(kind, tmp_path, {"en": [f"the {i}" for i in range(101)], "fr": [f"le {i}" for i in range(101)]})
    columns = named_pair_columns(path)
    file = next(path.glob("*.arrow")) if path.is_dir() else path
    original, draw = file.read_bytes(), Random(7)
    errors: list[DataError] = []
    for _ in range(30):
        data = bytearray(original)
        for _ in range(draw.choice([1, 3, 20])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        file.write_bytes(data)
        try:
            list(read_pairs(path, columns))
            named_pair_columns(path)
        except DataError as error:
            errors.append(error)
    assert len(errors) > 3
    assert all(error.hint and "\n" not in error.message for error in errors)


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "json", "tmx"])
def test_what_is_not_compressed_is_refused(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}.{kind}"
    path.write_bytes(b"plain text\n" * 99)
    if kind == "zst":
        pytest.importorskip("zstandard")
    with pytest.raises(DataError, match="is damaged"):
        list(read_pairs(path, ("en", "fr")))


@pytest.mark.parametrize("suffix", ["parquet", "xlsx", "json", "tmx", "xliff"])
def test_what_is_of_another_type_is_refused(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}.get(suffix, "json"))
    (tmp_path / f"a.{suffix}").write_bytes(b"\x89PNG plain text, <b>\n" * 99)
    with pytest.raises(DataError) as caught:
        list(read_pairs(tmp_path / f"a.{suffix}", ("en", "fr")))
    assert caught.value.hint


@pytest.mark.parametrize("name", ["a.doc", "a.parquet.gz", "a.xls", "a"])
def test_an_unsupported_type_lists_the_types(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=r"unsupported file type\nhint: use a \.csv, \.tsv, .*\.tmx, .*\.gz or \.zst"):
        read_pairs(tmp_path / name)
    with pytest.raises(DataError, match="unsupported file type"):
        LabelSource(path=tmp_path / name).read()
    with pytest.raises(DataError, match="unsupported file type"):
        LabelSource(path=write_table("tmx", tmp_path, {"en": ["a"], "fr": ["b"]})).read()
