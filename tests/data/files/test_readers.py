"""What is particular to each file type: encodings, separators, nesting, classes, codes, limits and refusals."""

import builtins
import codecs
import csv
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from clearformer.data import sources
from clearformer.data.files import compressed, delimited, json_rows, workbook_archive, xml_units
from clearformer.data.files.columns import header_of_pairs, label_columns, pair_columns, recording_columns
from clearformer.data.files.json_rows import JsonArray
from clearformer.data.files.open import open_table
from clearformer.data.labels import LabelSource, named_columns
from clearformer.data.pairs import Example, named_pair_columns, read_pairs
from clearformer.data.tags import Tagged, TagSource
from clearformer.data.text import TextSource
from clearformer.errors import DataError, MachineError

sys.path.insert(0, str(Path(__file__).parents[2]))
from table_files import write_table


def refused(path: Path, columns: Any = ("en", "fr")) -> str:
    with pytest.raises(DataError) as caught:
        list(read_pairs(path, columns))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message


# Encodings and compression


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json", "a.tsv.gz"])
def test_a_byte_order_mark_declares_the_encoding(encoding: str, name: str, tmp_path: Path) -> None:
    plain = write_table(name.removeprefix("a."), tmp_path, {"en": ["tea 🍵", "two\u2028"], "fr": ["thé", "deux"]})
    with sources.opened(plain) as file:
        text = file.read().decode()
    mark = b"" if encoding == "utf-8-sig" else codecs.encode("\ufeff", encoding)
    (tmp_path / "b").with_suffix("." + name.split(".")[1]).write_bytes(mark + text.encode(encoding))
    path = (tmp_path / "b").with_suffix("." + name.split(".")[1])
    assert list(read_pairs(path, named_pair_columns(path))) == list(read_pairs(plain, ("en", "fr")))
    path.write_bytes(mark + text.encode(encoding) + b"\xff")
    assert "not " in refused(path)


def test_text_in_utf16(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("thé\r\n\r\n🍵", "utf-16", newline="")
    assert list(TextSource(path=tmp_path / "a.txt").read()) == ["thé\n\n🍵"]


def test_all_frames_of_a_zstd_file_are_read(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    frames = [f"a{i}\tb{i}\n".encode() * 997 for i in range(5)]
    (tmp_path / "a.tsv.zst").write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, frames)))
    assert len(list(read_pairs(tmp_path / "a.tsv.zst"))) == 5 * 997
    (tmp_path / "a.tsv.zst").write_bytes(zstandard.compress(b"a\tb\n" * 9)[:-3])
    assert "truncated" in refused(tmp_path / "a.tsv.zst", (0, 1))


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred kilobytes decompress to a hundred megabytes, of which only the beginning is read."""
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.tsv.zst").write_bytes(zstandard.compress(b"a" * 10**8))
    monkeypatch.setattr(sources, "MAX_LINE", 2**20)
    n_bytes = 0
    original = compressed.ZstdReader.readinto

    def count(self: Any, buffer: Any) -> int:
        nonlocal n_bytes
        n_bytes += (n := original(self, buffer))
        return n

    monkeypatch.setattr(compressed.ZstdReader, "readinto", count)
    assert ":1: a line of more than 1 MiB" in refused(tmp_path / "a.tsv.zst", (0, 1))
    assert n_bytes < 2**21


@pytest.mark.parametrize("size", [1, 2, 7, 2**18])
def test_lines_are_the_same_however_they_are_read(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"\n", b"a\r\n", b"b\rc\n", b"long" * 997 + b"\n", b"\n", b"no line feed at the end"]
    (tmp_path / "a.txt").write_bytes(b"".join(lines))
    monkeypatch.setattr(sources, "READ", size)
    assert list(sources.read_raw_lines(tmp_path / "a.txt")) == lines
    assert [len(block) for block in sources.read_blocks(tmp_path / "a.txt", 4)] == [4, 2]
    monkeypatch.setattr(sources, "MAX_LINE", 2000)
    monkeypatch.setattr(sources, "READ", min(size, 1000))  # less than the limit, as always
    with pytest.raises(DataError, match=r"a\.txt:4: a line of more than"):
        list(sources.read_raw_lines(tmp_path / "a.txt"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-16-be"])
@pytest.mark.parametrize("size", [1, 3, 2**18])
def test_other_encodings_are_converted_in_parts(
    encoding: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is limited in bytes, however many bytes a character has in the file."""
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "a.txt").write_bytes(f"{mark}é\r\n🙂{'x' * 700}\n\nlast".encode(encoding))
    monkeypatch.setattr(sources, "READ", size)
    assert list(sources.read_lines(tmp_path / "a.txt")) == ["é", "🙂" + "x" * 700, "", "last"]
    parts: list[int] = []
    original = sources.Converted.read1
    monkeypatch.setattr(sources.Converted, "read1", lambda *given: parts.append(len(p := original(*given))) or p)
    monkeypatch.setattr(sources, "MAX_LINE", 300)
    monkeypatch.setattr(sources, "READ", 100)
    with pytest.raises(DataError, match=r"a\.txt:2: a line of more than"):
        list(sources.read_lines(tmp_path / "a.txt"))
    assert sum(parts) < 500


# Delimited text


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a;b\n1,5;2\n", ";"),
        ("a,b\nx;y,z\n", ","),
        ('"a;b;c",d\n"e;f;g",h\n', ","),
        ("a\tb\n1,2,3\t4\nx\ty\n", "\t"),
        ("Well, yes;oui\nNo;non\nWell, well, well;tiens\n", ";"),
        ("one column\nanother\n", ","),
        ("", ","),
    ],
)
def test_the_separator_is_recognised(text: str, separator: str) -> None:
    assert delimited.separator_of(text.splitlines(keepends=True)) == separator


def test_long_cells_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table("csv", tmp_path, {"text": ["x" * 200_000]})
    assert list(TextSource(path=path).read()) == ["x" * 200_000]
    monkeypatch.setattr(delimited, "MAX_CELL", 1000)
    with pytest.raises(DataError, match=r"table\.csv, row 2: not valid CSV \(field larger than field limit \(1000\)\)"):
        list(TextSource(path=path).read())
    monkeypatch.undo()
    csv.field_size_limit(delimited.MAX_CELL)


def test_rows_of_csv_are_counted_by_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('en,fr\n"a\nb",c\n\nd\n')
    assert "a.csv, row 4: 1 column, but 2 are needed" in refused(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('en,fr\n"a\nb",c\n\nd,e\n')
    assert list(read_pairs(tmp_path / "a.csv", ("en", "fr"))) == [("a b", "c"), ("", ""), ("d", "e")]


# JSON


@pytest.mark.parametrize("size", [1, 2, 3, 7, 2**16])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_is_parsed_however_it_is_divided(size: int, indent: int | None, tmp_path: Path) -> None:
    rows = [{"en": 'a "}{][,: \\u00e9\n', "n": -1.5e-7, "x": [True, None, {"y": [1]}]}, {"en": "", "n": 3}, {"en": "é"}]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=indent))

    def parse(text: str) -> list[Any]:
        parts = (text[i : i + size] for i in range(0, len(text), size))
        return [row for _, row in json_rows.ArrayParser(tmp_path / "a.json", parts).rows()]

    assert parse(json.dumps(rows, indent=indent)) == rows
    assert parse("\n".join(map(json.dumps, rows))) == rows
    assert parse(" [ ] ") == []
    for wrong in (
        "[",
        '[{"a": 1}',
        '[{"a": 1},]',
        '[{"a": 1}{"a": 2}]',
        '[{"a": tru}]',
        "[1]",
        '[{"a": "b',
        "[] 7",
        '[{"a" 1}]',
    ):
        with pytest.raises(DataError, match=r"a\.json, row \d: "):
            parse(wrong)


def test_an_array_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first objects are there before a bad one is reached; an object without end is refused at the limit."""
    path = tmp_path / "a.json"
    path.write_text("[" + '{"en": "a", "fr": "b"},' * 50_000 + "7]")
    pairs = read_pairs(path, ("en", "fr"))
    assert next(pairs) == Example("a", "b")
    pairs.close()
    assert "row 50001: not an object" in refused(path)
    path.write_text('[{"en": "' + "x" * 500_000)
    monkeypatch.setattr(json_rows, "MAX_CELL", 100_000)
    assert "row 1: an object of more than 0 Mi characters" in refused(path)
    path.write_text("[" + '{"a":' * 100_000)
    monkeypatch.undo()
    assert "too deeply nested" in refused(path) or "not valid JSON" in refused(path)


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "dataset"])
def test_nested_columns_have_paths(kind: str, tmp_path: Path) -> None:
    rows = [{"en": "a dog", "fr": "un chien"}, {"en": "tea", "fr": "thé"}]
    path = write_table(kind, tmp_path, {"id": ["1", "2"], "translation": rows})
    assert open_table(path).names() == ["id", "translation.en", "translation.fr"]
    assert named_pair_columns(path) == ("translation.en", "translation.fr")
    assert list(read_pairs(path, named_pair_columns(path))) == [("a dog", "un chien"), ("tea", "thé")]


def test_an_array_is_read_by_its_class(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text": "x"}]')
    assert isinstance(open_table(tmp_path / "a.json"), JsonArray)


def test_a_semicolon_in_every_text_is_no_separator(tmp_path: Path) -> None:
    texts = [f'the "{i}th" dog; or\nso &amp; on' for i in range(9)]
    path = write_table("csv", tmp_path, {"id": list(map(str, range(9))), "text": texts})
    assert [values for _, values in open_table(path).read(["text"])] == [[text] for text in texts]


# Arrow


def test_missing_values_are_empty(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_table("parquet", tmp_path, {"en": ["a", None], "fr": [None, "b"], "n": [1, 2]})
    assert list(read_pairs(path, ("en", "fr"))) == [("a", ""), ("", "b")]
    assert "row 1: `n` is of type int, not a string" in refused(path, ("en", "n"))


@pytest.mark.parametrize("as_parquet", [False, True])
def test_declared_classes_have_names(as_parquet: bool, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bar()
    label = datasets.ClassLabel(names=["bad", "good"])
    tags = datasets.ClassLabel(names=["O", "ORG"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": label, "tokens": [datasets.Value("string")], "ner_tags": [tags]}
    )
    rows = {"text": ["fine", "dull"], "label": [1, 0], "tokens": [["EU"], ["a", "b"]], "ner_tags": [[1], [0, 0]]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    path = tmp_path / "a.parquet" if as_parquet else tmp_path / "a"
    dataset.to_parquet(path) if as_parquet else dataset.save_to_disk(path, num_shards=2)
    assert [example.label for example in LabelSource(path=path).read()] == ["good", "bad"]
    assert list(TagSource(path=path).read()) == [Tagged(("EU",), ("ORG",)), Tagged(("a", "b"), ("O", "O"))]


def test_splits_and_scripts(tmp_path: Path) -> None:
    """One split has to be chosen, and a script in the folder is not run."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bar()
    split = datasets.Dataset.from_dict({"text": ["a"], "label": ["x"]})
    datasets.DatasetDict(train=split, test=split).save_to_disk(tmp_path / "all")
    with pytest.raises(DataError, match=r"several splits .*\nhint: give one of them: .*all/test, .*all/train"):
        LabelSource(path=tmp_path / "all").read()
    train = tmp_path / "all" / "train"
    (train / "all.py").write_text("raise SystemExit")
    assert len(list(LabelSource(path=train).read())) == 1
    state = json.loads((train / "state.json").read_text())
    state["_data_files"] = [{"filename": "../test/data-00000-of-00001.arrow"}]
    (train / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="does not list the files"):
        list(LabelSource(path=train).read())
    (train / "state.json").write_text("[]")
    with pytest.raises(DataError, match="does not list the files"):
        list(LabelSource(path=train).read())


# XML

BOMB = """<?xml version="1.0"?>
<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>&c;</seg></tuv></tu></body></tmx>"""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.replace("&c;", "x"),
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ELEMENT tmx ANY>]><tmx/>',
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><tu><seg>&x;</seg></tu></tmx>',
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx><seg>&x;</seg></tmx>',
    ],
)
@pytest.mark.parametrize("suffix", ["tmx", "xliff"])
def test_entities_are_refused(text: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_text(text)
    assert "an XML file that declares or uses entities" in refused(tmp_path / f"a.{suffix}", ("source", "target"))


def test_a_document_type_without_entities_is_not_opened(tmp_path: Path) -> None:
    """As translation tools write it. A file of that name beside it is not read."""
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY x "hostile">')
    units = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="fr"><seg>b</seg></tuv></tu>'
    text = f'<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><header srclang="en"/><body>{units}</body></tmx>'
    (tmp_path / "a.tmx").write_text(text)
    assert list(read_pairs(tmp_path / "a.tmx", ("en", "fr"))) == [("a", "b")]
    (tmp_path / "a.tmx").write_text(text.replace(">a<", ">&x;<"))
    assert "declares or uses entities" in refused(tmp_path / "a.tmx", ("en", "fr"))


def test_elements_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tmx"
    path.write_text("<tmx>" + "<a>" * 2000)
    assert "more than 1,000 elements inside each other" in refused(path, ("en", "fr"))
    path.write_text("<tmx><tu>" + "".join(f'<tuv xml:lang="{i}"><seg/></tuv>' for i in range(1100)) + "</tu></tmx>")
    assert "a unit with more than 1,000 languages" in refused(path, ("en", "fr"))
    monkeypatch.setattr(xml_units, "MAX_CELL", 100_000)
    path.write_text(f'<tmx a="{"x" * 500_000}"/>')
    assert "a tag or comment of more than 0 Mi characters" in refused(path, ("en", "fr"))


def test_an_undeclared_entity_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xliff").write_text("<xliff><trans-unit><source>&x;</source></trans-unit></xliff>")
    assert "a.xliff:1: not well-formed XML (undefined entity)" in refused(tmp_path / "a.xliff", ("source", "target"))


@pytest.mark.parametrize("encoding", ["UTG-8", "utf-7", "shift_jis"])
def test_an_encoding_that_is_unknown_is_named(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xliff"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><xliff><trans-unit/></xliff>')
    assert "encoding" in refused(path, ("source", "target"))


def test_a_workbook_with_a_doctype_or_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table("xlsx", tmp_path, {"en": ["a"], "fr": ["b"]})
    monkeypatch.setattr(workbook_archive, "MAX_BYTES", 1000)
    assert "more than 0 GiB when decompressed" in refused(path)
    monkeypatch.undo()
    with zipfile.ZipFile(path) as book:
        entries = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, data in entries.items():
            book.writestr(name, BOMB if name.endswith("sheet1.xml") else data)
    assert "sheet1.xml: an XML file that could declare entities" in refused(path)


def test_shared_strings_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table("xlsx", tmp_path, {"en": ["a"], "fr": ["b"]})
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    with zipfile.ZipFile(path) as book:
        entries = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, data in entries.items():
            part = f'<Override PartName="/strings.dat" ContentType="{kind}"/></Types>'.encode()
            text = data.replace(b"</Types>", part).replace(b't="inlineStr"><is><t>a</t></is>', b't="s"><v>7</v>')
            book.writestr(name, text)
        book.writestr("strings.dat", f'<sst xmlns="{main}">{"<si><t>shared</t></si>" * 1000}</sst>')
    assert list(read_pairs(path, ("en", "fr"))) == [("shared", "b")]
    monkeypatch.setitem(workbook_archive.UNITS, "si", 999)
    assert "strings.dat: more than 999 shared strings" in refused(path, ("en", "fr"))


@pytest.mark.parametrize("content", [f"<row {' '.join(f'a{i}=' + chr(34) * 2 for i in range(2000))}/>", "<!--aaa-->"])
def test_a_tag_of_a_workbook_has_a_limit(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes, and what expat holds until a comment ends."""
    path = write_table("xlsx", tmp_path, {"en": ["a"], "fr": ["b"]})
    with zipfile.ZipFile(path) as book:
        entries = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, data in entries.items():
            more = content.replace("aaa", "a" * 500_000).encode()
            book.writestr(name, data.replace(b"</sheetData>", more + b"</sheetData>"))
    assert list(read_pairs(path, ("en", "fr")))[:1] == [("a", "b")]
    monkeypatch.setattr(workbook_archive, "MAX_ITEMS", 1000)
    monkeypatch.setattr(workbook_archive, "MAX_UNIT", 100_000)
    assert "sheet1.xml: row 3 of more than" in refused(path, ("en", "fr"))


def test_languages_of_a_translation_memory(tmp_path: Path) -> None:
    units = [
        '<tu><tuv lang="FR"><seg>un</seg></tuv>'
        '<tuv lang="EN-US"><seg>a <hi>b</hi><bpt i="1">c<sub>d</sub></bpt> e</seg></tuv></tu>',
        '<tu><tuv xml:lang="en-GB"><seg>x &amp; y</seg></tuv></tu>',
        '<tu><tuv xml:lang="de"><seg>nein</seg></tuv><tuv xml:lang="fr"><seg>non</seg></tuv></tu>',
    ]
    path = tmp_path / "a.tmx"
    path.write_text(f'<tmx><header srclang="en-us"/><body>{"".join(units)}</body></tmx>')
    assert open_table(path, {".tmx": xml_units.TranslationMemory}).names() == ["en-us", "fr", "en-gb", "de"]
    assert list(read_pairs(path, ("en", "fr"))) == [("a b e", "un"), ("x & y", ""), ("", "non")]
    assert named_pair_columns(path) == (0, 1)
    assert "have names, not numbers" in refused(path, (0, 1))
    assert "no language `it`" in refused(path, ("it", "fr"))


def test_two_languages_of_a_memory_need_no_choice(tmp_path: Path) -> None:
    assert named_pair_columns(write_table("tmx", tmp_path, {"cy": ["te"], "gl": ["té"]})) == ("cy", "gl")


def test_a_segment_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table("tmx", tmp_path, {"en": ["a" * 300], "fr": ["b"]})
    monkeypatch.setattr(xml_units, "MAX_CELL", 200)
    assert "a unit of more than" in refused(path)


# Names


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["en", "de"], ("en", "de")),
        (["id", "en", "de"], ("en", "de")),
        (["tgt", "x", "src"], ("src", "tgt")),
        (["Source", "Target", "en", "de"], ("Source", "Target")),
        (["translation.en", "translation.pt-BR"], ("translation.en", "translation.pt-BR")),
        (["en", "de", "fr"], None),
        (["a", "b"], None),
    ],
)
def test_columns_of_pairs(names: list[str], columns: tuple[str, str] | None) -> None:
    assert pair_columns(names) == columns


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (["English", "German", "anything"], ("English", "German")),
        (["id", "en", "fr"], ("en", "fr")),
        (["score", "source", "target"], ("source", "target")),
        (["en", "de", "fr"], ("en", "de")),
        (["en-US", "fr_CA"], ("en-US", "fr_CA")),
        (["no", "no"], None),
        (["hello", "source", "target"], None),
        (["en"], None),
        ([], None),
    ],
)
def test_headers_of_pairs(row: list[str], columns: tuple[str, str] | None) -> None:
    assert header_of_pairs(row) == columns


def test_columns_of_labels_and_recordings() -> None:
    assert label_columns(["Review", "Sentiment"]) == {"text": "Review", "label": "Sentiment"}
    assert label_columns(["premise", "hypothesis", "label"]) == {"text": ("premise", "hypothesis"), "label": "label"}
    assert label_columns(["body2", "label"]) == {}
    assert label_columns(["body2", "label"], is_header=True) == {"text": "body2", "label": "label"}
    assert label_columns(["fine", "good"], is_header=True) == {}
    assert recording_columns(["sentence", "path"]) == {"sound": "path", "text": "sentence"}
    assert recording_columns(["a.wav", "text"]) == {}


# Packages that are not installed


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("a.parquet", "pyarrow", "parquet"), ("a.xlsx", "openpyxl", "excel"), ("a.tsv.zst", "zstandard", "zstd")],
)
def test_a_missing_package_names_its_extra(
    name: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(wanted: str, *rest: Any) -> Any:
        if wanted.split(".")[0] == package:
            raise ModuleNotFoundError(wanted)
        return original(wanted, *rest)

    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MachineError, match=rf"{name}: reading .* needs .*{package}.*\nhint: pip install 'clearformer\[{extra}\]'"
    ):
        named_columns(tmp_path / name)


@pytest.mark.parametrize("dictionary", [2000, 2**20])
def test_lists_of_a_parquet_file_have_dictionaries_of_their_row_groups(dictionary: int, tmp_path: Path) -> None:
    """Several row groups, and dictionaries that are full before the row group ends."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [[f"w{i}-{j}" for j in range(3)] for i in range(997)]
    path = tmp_path / "a.parquet"
    how = {"dictionary_pagesize_limit": dictionary, "data_page_size": 1000, "row_group_size": 311}
    parquet.write_table(pyarrow.table({"tokens": rows}), path, **how)
    assert [values for _, [values] in open_table(path).read(["tokens"])] == rows
