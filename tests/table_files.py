"""The same table as a file of every type, each written by the library that usually writes it."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

Columns = dict[str, list[Any]]
GRIDS = ["tsv", "tsv.gz", "tsv.zst", "csv", "csv.gz", "csv.zst", "semicolons.csv", "tabs.csv", "utf16.csv", "xlsx"]
NAMED = ["jsonl", "jsonl.gz", "jsonl.zst", "json", "json.gz", "json.zst", "parquet", "dataset"]
MEMORIES = ["tmx", "tmx.gz", "xliff", "2.xlf"]
TABLES = [*GRIDS, *NAMED]


def write_table(kind: str, folder: Path, columns: Columns) -> Path:
    """Write a table with a header, or with named columns, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("dataset" if kind == "dataset" else f"table.{kind}")
    rows = list(zip(*columns.values()))
    if kind == "dataset":
        datasets = pytest.importorskip("datasets")
        datasets.disable_progress_bar()
        datasets.Dataset.from_dict(columns).save_to_disk(path)
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path, row_group_size=3)
    elif kind == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in [tuple(columns), *rows]:
            book.active.append(row)
        book.save(path)
    else:
        text = as_text(kind.removesuffix(".gz").removesuffix(".zst"), columns, rows)
        path.write_bytes(compress(kind, text.encode("utf-16" if kind.startswith("utf16") else "utf-8")))
    return path


def as_text(kind: str, columns: Columns, rows: list[tuple[Any, ...]]) -> str:
    if kind == "tsv":
        return "".join("\t".join(map(str, row)) + "\n" for row in [tuple(columns), *rows])
    if kind.endswith("csv"):
        file = io.StringIO(newline="")
        separator = {"semicolons.csv": ";", "tabs.csv": "\t"}.get(kind, ",")
        csv.writer(file, delimiter=separator).writerows([tuple(columns), *rows])
        return file.getvalue()
    objects = [dict(zip(columns, row)) for row in rows]
    if kind == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)
    if kind == "json":
        return json.dumps(objects, indent=2)
    return memory(kind, columns, rows)


def memory(kind: str, columns: Columns, rows: list[tuple[Any, ...]]) -> str:
    """A translation memory, with a code inside the first segment."""
    code = {"tmx": '<ph x="1">{0}</ph>', "xliff": '<x id="1"/>', "2.xlf": '<ph id="1"/>'}[kind]
    cells = [[escape(cell) + (code if i == 0 else "") for cell in row] for i, row in enumerate(rows)]
    if kind == "tmx":
        units = (
            "".join(f'<tuv xml:lang="{name}"><seg>{cell}</seg></tuv>' for name, cell in zip(columns, row))
            for row in cells
        )
        body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
        header = f'<header srclang="{next(iter(columns))}" segtype="sentence"/>'
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">{header}<body>{body}</body></tmx>'
    pairs = [f"<source>{source}</source><target>{target}</target>" for source, target in cells]
    if kind == "xliff":
        old = "<alt-trans><source>no</source><target>no</target></alt-trans>"
        units = "\n".join(f'<trans-unit id="{i}">{pair}{old}</trans-unit>' for i, pair in enumerate(pairs))
        return (
            '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
            f'<file source-language="en" target-language="fr"><body>{units}</body></file></xliff>'
        )
    units = "\n".join(f'<unit id="{i}"><segment>{pair}</segment></unit>' for i, pair in enumerate(pairs))
    start = '<xliff version="2.0" srcLang="en" trgLang="fr" xmlns="urn:oasis:names:tc:xliff:document:2.0">'
    return f'{start}<file id="f">{units}</file></xliff>'


def compress(kind: str, data: bytes) -> bytes:
    if kind.endswith(".gz"):
        return gzip.compress(data)
    if kind.endswith(".zst"):
        return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(data))
    return data
