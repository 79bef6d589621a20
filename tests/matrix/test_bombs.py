"""Small files that decompress to gigabytes, or declare so, each by its real writer. Refusing them needs little memory.

Every file here is below 6 MB; test_hostile.py reads it in a process of its own and measures its peak memory.
"""

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .test_hostile import refused

pytestmark = pytest.mark.matrix
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRINGS = (
    b'<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    b'spreadsheetml.sharedStrings+xml"/></Types>'
)


def repeated(start: bytes, part: bytes, n: int, stop: bytes) -> Iterator[bytes]:
    yield start
    for _ in range(n // 1000):
        yield part * 1000
    yield stop


def workbook(path: Path, name: str, before: bytes, content: Iterable[bytes]) -> Path:
    """A workbook by openpyxl, with `content` in one of its parts, before some bytes of it."""
    openpyxl, buffer = pytest.importorskip("openpyxl"), io.BytesIO()
    book = openpyxl.Workbook()
    for row in (("en", "fr"), ("a", "b"), ("c", "d")):
        book.active.append(row)
    book.save(buffer)
    with (
        zipfile.ZipFile(buffer) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        parts = {part: source.read(part) for part in source.namelist()}
        if name not in parts:
            parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(b"</Types>", STRINGS)
            parts[name] = f'<sst xmlns="{MAIN}"></sst>'.encode()
        for part, data in parts.items():
            with archive.open(part, "w", force_zip64=True) as file:
                head, mark, tail = data.partition(before) if part == name else (data, b"", b"")
                assert part != name or mark
                file.write(head)
                for piece in content if part == name else ():
                    file.write(piece)
                file.write(mark + tail)
    return path


SHEET, END = "xl/worksheets/sheet1.xml", b"</sheetData>"
TABLE, LAST = "xl/sharedStrings.xml", b"</sst>"
WORKBOOKS: dict[str, tuple[str, bytes, Callable[[], Iterator[bytes]], str]] = {
    "a long shared string": (
        TABLE, LAST, lambda: repeated(b"<si><t>", b"a" * 2**10, 2**16, b"</t></si>"),
        "sharedStrings.xml: shared string 1 of more than 8 MiB",
    ),
    "long shared strings": (
        TABLE, LAST, lambda: repeated(b"", "<si><t>😀{}</t></si>".format("a" * 32_000).encode(), 20_000, b""),
        "more than 128 MiB of text in shared strings",
    ),
    "sheets as shared strings": (
        TABLE, LAST, lambda: repeated(b"<sheetData>", b"<row/>", 12_000_000, b"</sheetData>"),
        "shared string 1 of more than 1,048,576 XML elements",
    ),
    "a long cell": (
        SHEET, END, lambda: repeated(b'<row><c t="inlineStr"><is><t>', b"a" * 2**10, 2**20, b"</t></is></c></row>"),
        "sheet1.xml: row 4 of more than 8 MiB",
    ),
    "a row of many cells": (
        SHEET, END, lambda: repeated(b"<row>", b"<c/>", 12_000_000, b"</row>"),
        "row 4 of more than 1,048,576 XML elements",
    ),
    "rows inside each other": (
        SHEET, END, lambda: repeated(b"<row>", b"<row/>", 12_000_000, b"</row>"),
        "row 4 of more than 1,048,576 XML elements",
    ),
    "many rows": (SHEET, END, lambda: repeated(b"", b"<row/>", 2_000_000, b""), "more than 1,048,576 rows"),
    "rows of another namespace": (
        SHEET, END, lambda: repeated(b'<x xmlns="urn:x">', b"<row/>", 12_000_000, b"</x>"),
        "row 4 of more than 1,048,576 XML elements",
    ),
    "columns": (
        SHEET, END, lambda: repeated(b"", b'<row><c r="ZZZ1"/></row>', 500_000, b""), "more than 16,384 columns",
    ),
    "empty cells": (
        SHEET, END, lambda: repeated(b"", b'<row><c r="XFD1"/></row>', 500_000, b""), "more than 67,108,864 cells",
    ),
    "styles": (
        "xl/styles.xml", b"</cellXfs>", lambda: repeated(b"", b"<xf/>", 12_000_000, b""),
        "styles.xml: a part of more than 1,048,576 XML elements",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORKBOOKS)
def test_a_workbook_is_measured_while_it_is_read(kind: str, tmp_path: Path) -> None:
    part, before, content, reason = WORKBOOKS[kind]
    path = workbook(tmp_path / "a.xlsx", part, before, content())
    assert path.stat().st_size < 6_000_000
    refused(path, reason)


@pytest.mark.parametrize("size", [0, 99])
def test_a_size_in_the_archive_is_not_trusted(size: int, tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", SHEET, END, repeated(b"<row><c><v>", b"1" * 2**10, 2**16, b"</v></c></row>"))
    with zipfile.ZipFile(path) as archive:
        true = archive.getinfo(SHEET).file_size
    data = path.read_bytes()
    assert data.count(struct.pack("<I", true)) >= 1
    path.write_bytes(data.replace(struct.pack("<I", true), struct.pack("<I", size)))
    refused(path, "damaged|cannot be read|of more than 8 MiB")


def test_another_compression_is_refused(tmp_path: Path) -> None:
    """zipfile would decompress 64 KiB of it to a gigabyte at once."""
    path = workbook(tmp_path / "a.xlsx", SHEET, END, [])
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    refused(path, "a compression that workbooks do not have")


def parquet(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, compression="zstd", write_statistics=False, **how)
    assert path.stat().st_size < 2_000_000
    return path


def dictionary(n: int, text: str) -> Any:
    """n references to one text."""
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(n, "int32")), pyarrow.array([text]))


@pytest.mark.parametrize("uses_dictionary", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_has_a_limit(uses_dictionary: bool, version: str, tmp_path: Path) -> None:
    columns = {"en": ["a" * 2**29], "fr": ["b"]}
    how = {"use_dictionary": uses_dictionary, "dictionary_pagesize_limit": 2**30, "data_page_version": version}
    reason = "column `en`: a page of more than 64 MiB when decompressed"
    refused(parquet(tmp_path / "a.parquet", columns, **how), reason)


def test_rows_of_one_long_text_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Each of 50 rows refers to the same 32 MiB, 1.6 GB in all."""
    pyarrow = pytest.importorskip("pyarrow")
    lists = pyarrow.array([["b"]] * 50)
    columns = {"en": dictionary(50, "a" * 2**25), "fr": lists}
    path = parquet(tmp_path / "a.parquet", columns, dictionary_pagesize_limit=2**30)
    refused(path, "row 1: `fr` is of type list")


def test_a_list_of_one_long_text_has_a_limit(tmp_path: Path) -> None:
    """A row of 500 references to 16 MiB."""
    pyarrow = pytest.importorskip("pyarrow")
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 500], pyarrow.int32()), dictionary(500, "a" * 2**24))
    path = parquet(tmp_path / "a.parquet", {"tokens": lists}, dictionary_pagesize_limit=2**30)
    refused(path, "column `tokens`: a list of more than 4,194,304 items, or 256 MiB", "tokens")


def test_the_items_of_a_row_group_have_a_limit(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    n = 2**25 + 1
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, n], pyarrow.int32()), pyarrow.array(np.zeros(n, "int8")))
    refused(parquet(tmp_path / "a.parquet", {"n": lists}), "more than 33,554,432 list items in a row group", "n")


def arrow(folder: Path, batch: Any, **how: Any) -> Path:
    """A folder as save_to_disk writes it."""
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir()
    options = pyarrow.ipc.IpcWriteOptions(**how)
    with (
        pyarrow.OSFile(str(folder / "data.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, batch.schema, options=options) as writer,
    ):
        writer.write_batch(batch)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return folder


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("uses_dictionary", [False, True])
def test_a_compressed_dataset_is_refused(compression: str, uses_dictionary: bool, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    text = "a" * 2**28
    batch = pyarrow.record_batch({"en": dictionary(1, text) if uses_dictionary else [text], "fr": ["b"]})
    refused(arrow(tmp_path / "data", batch, compression=compression), "a compressed Arrow file")


def test_declared_rows_have_a_limit(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    nothing = pyarrow.nulls(2**31 - 1)
    folder = arrow(tmp_path / "data", pyarrow.record_batch({"en": nothing, "fr": nothing}))
    assert (folder / "data.arrow").stat().st_size < 1000
    refused(folder, "more than 1,073,741,824 rows")


def npy(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], n_bytes: int) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for _ in range(n_bytes >> 20):
            file.write(bytes(2**20))


@pytest.mark.parametrize("n", [2**20, 10**12])
def test_an_array_is_not_much_larger_than_its_file(n: int, tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        npy(archive, "images", (n, 32, 32), 2**30 if n == 2**20 else 2**20)
        npy(archive, "labels", (n,), 2**20)
    refused(path, r"an array of [\d.,]+ GiB, more than 100 times the size of the file")


@pytest.mark.parametrize(("n", "reason"), [(2**20, "an array of 1.0 GiB, more than 100"), (7, "more than 7,168 bytes")])
def test_an_idx_file_is_read_up_to_its_size(n: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "images-idx3-ubyte.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x03" + struct.pack(">iii", n, 32, 32))
        for _ in range(2**10):
            file.write(bytes(2**20))
    refused(path, reason)
