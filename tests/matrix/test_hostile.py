"""Hostile files, read in a process of their own: one sentence, less than 1 GB, no other file opened, no script run."""

import gzip
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .cells import require_sentence
from .kinds import columns, write

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak memory is measured as Linux reports it"),
]
READ = r"""
import re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
from pathlib import Path
from clearformer.data.files.open import open_table
from clearformer.data.pairs import named_pair_columns, read_pairs
from clearformer.errors import ClearformerError
try:
    path, *columns = Path(sys.argv[1]), *sys.argv[2:]
    if path.suffix in (".npz", ".gz") and "images" in path.name:
        from clearformer.data.images import ImageSource
        rows = ImageSource(path=path).read()
    elif path.name == "document.txt":
        from clearformer.data.text import TextSource
        rows = TextSource(path=path).read()
    else:
        rows = open_table(path).read(columns) if columns else read_pairs(path, named_pair_columns(path))
    print(sum(1 for _ in rows))
except ClearformerError as error:
    print(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
    sys.exit(str(error))
"""
WIDE = "🙂" * 2**18  # 1 MiB in every encoding
UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="fr"><seg>b</seg></tuv></tu>'


def gz(path: Path, start: bytes, part: bytes, n: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(n):
            file.write(part)
    return path


def zst(path: Path) -> Path:
    with pytest.importorskip("zstandard").open(path, "wb") as file:
        for _ in range(600):
            file.write(b"a" * 2**20)
    return path


def sheet(path: Path, old: str, new: str) -> Path:
    write("xlsx", path.parent, columns("pairs", "xlsx")).rename(path)
    with zipfile.ZipFile(path) as book:
        entries = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, data in entries.items():
            assert "sheet1" not in name or old.encode() in data
            book.writestr(name, data.replace(old.encode(), new.encode()) if "sheet1" in name else data)
    return path


def plain(path: Path, *parts: tuple[bytes, int]) -> Path:
    """Write each part n times."""
    with open(path, "wb") as file:
        for part, n in parts:
            for _ in range(n):
                file.write(part)
    return path


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a line without end": (lambda at: gz(at / "a.csv.gz", b"", b"a" * 2**20, 600), "a line of more than 32 MiB"),
    "a line without end, zst": (lambda at: zst(at / "a.tsv.zst"), "a line of more than 32 MiB"),
    "a line of 100 MB": (lambda at: plain(at / "a.tsv", (b"a" * 10**6, 100), (b"\n", 1)), "a line of more than 32 MiB"),
    "wide characters of 16 bits": (
        lambda at: plain(at / "a.tsv", (b"\xff\xfe", 1), (WIDE.encode("utf-16-le"), 300)),
        "a line of more than 32 MiB",
    ),
    "wide characters of 32 bits": (
        lambda at: plain(at / "a.csv", (b"\xff\xfe\0\0", 1), (WIDE.encode("utf-32-le"), 300)),
        "a line of more than 32 MiB",
    ),
    "a line of wide characters": (
        lambda at: plain(at / "a.tsv", (WIDE.encode(), 31), (b"\n", 1)),
        "1 column, but 2 are needed",
    ),
    "a cell of many lines": (
        lambda at: plain(at / "a.csv", (b'a,b\n"', 1), (WIDE.encode() + b"\n", 300)),
        r"field larger than field limit \(33554432\)",
    ),
    "a document of wide characters": (
        lambda at: plain(at / "document.txt", (WIDE.encode() + b"\n", 300)),
        "a document of more than 67,108,864 characters",
    ),
    "many empty objects": (
        lambda at: plain(at / "a.jsonl", (b"[", 1), (b"{}," * 10**6, 11), (b"{}]\n", 1)),
        "a JSON list, not an object",
    ),
    "elements without end": (lambda at: gz(at / "a.tmx.gz", b"<tmx>", b"<a>" * 2**18, 2), "elements inside each other"),
    "entities": (
        lambda at: text(at / "a.tmx", f'<!DOCTYPE tmx [<!ENTITY a "ha">]><tmx>{UNIT.format("&a;")}</tmx>'),
        "declares or uses entities",
    ),
    "another file": (
        lambda at: text(
            at / "a.xliff",
            '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x><trans-unit><source>&a;</source></trans-unit></x>',
        ),
        "declares or uses entities",
    ),
    "entities in a workbook": (
        lambda at: sheet(at / "a.xlsx", "<worksheet ", '<!DOCTYPE x [<!ENTITY a "ha">]><worksheet '),
        "could declare entities",
    ),
    "a row of a high number": (
        lambda at: sheet(at / "a.xlsx", '<row r="2"', '<row r="999999999999"'),
        "more than 1,048",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_one_sentence(kind: str, tmp_path: Path) -> None:
    make, reason = HOSTILE[kind]
    refused(make(tmp_path), reason)


def refused(path: Path, reason: str, *columns: str) -> None:
    """Reading a file is an error of one sentence, and has taken less than 1 GB of memory."""
    command = [sys.executable, "-c", READ, str(path), *columns]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    require_sentence(result.stderr, reason)
    assert int(result.stdout) * 1024 < 10**9, "bytes"


def test_a_script_in_a_dataset_is_not_run(tmp_path: Path) -> None:
    path = write("dataset", tmp_path, columns("pairs", "dataset"))
    for name in ("dataset.py", "__init__.py", "sitecustomize.py"):
        (path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    result = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "23", result.stderr
    assert not (tmp_path / "ran").exists()
