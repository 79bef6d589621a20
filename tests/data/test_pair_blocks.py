"""Several processes prepare the same files as one, and refuse the same lines with the same sentences."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from clearformer import fit
from clearformer.checkpoint import RunFolder
from clearformer.data import pair_blocks
from clearformer.data.corpora import PairCorpora
from clearformer.data.pairs import PairSource
from clearformer.data.parallel import survey_pairs
from clearformer.errors import DataError
from clearformer.recipe import Recipe
from clearformer.training.distributed import World

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import write_table

CHUNK = 7
ODD = [
    "",
    " \r",
    "a\u2028b\tc\x85d\r",
    "e\x0bf\tg\x0ch",
    "\u00a0i  j\tk\u00a0",
    "l\rm\tn",
    "o\u0301\tp\ufeff\r",
    "\t",
    "q\t",
]
"""Blank lines, Windows line ends, separators that end no line, empty sides, text that is not normalised."""


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    """use(n) lets n processes work on corpora of any size, in blocks of CHUNK lines if there are several."""

    def use(n: int) -> None:
        monkeypatch.setattr(pair_blocks, "MIN_BYTES", 0)
        monkeypatch.setattr(pair_blocks, "usable_threads", lambda: n)
        monkeypatch.setattr(pair_blocks, "CHUNK", 8192 if n == 1 else CHUNK)

    return use


def lines_of(n: int) -> list[str]:
    """Return n lines; the odd ones move through all places of a block, so that they come first and last in some."""
    return [ODD[i // 3 % len(ODD)] if i % 3 == 0 else f"the {i}th dog’s\tle {i}ᵉ chien" for i in range(n)]


def write_corpus(folder: Path, kind: str, n: int) -> dict:
    """Write a corpus of n lines and return its entry in a recipe."""
    lines = lines_of(n)
    name, columns = {"aligned": ("a.en", (0, 1)), "header.tsv": ("h.tsv", ("en", "fr"))}.get(kind, (kind, (0, 1)))
    if kind == "aligned":
        cells = [(line.rstrip("\r") + "\t\t").split("\t")[:2] for line in lines]
        for suffix, side in (("en", 0), ("fr", 1)):
            (folder / f"a.{suffix}").write_bytes("".join(f"{row[side]}\r\n" for row in cells).encode())
        return {"path": (folder / "a.en", folder / "a.fr")}
    if kind.startswith("pairs.jsonl"):
        columns = ("x", "y")
        rows = (dict(zip(columns, (line + "\t").split("\t"))) for line in lines)
        lines = [json.dumps(row) if any(row.values()) else "" for row in rows]
    content = ("fr\ten\r\n" if kind == "header.tsv" else "") + "\n".join(lines)  # no line feed at the end
    data = ("\ufeff" + content).encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return {"path": folder / name, "columns": columns}


def prepared(table: dict, folder: Path) -> dict[str, bytes]:
    """Prepare a run, and return all its files."""
    fit.prepare(Recipe.parse(table, "test"), RunFolder(folder), World(), None, None)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {"recipe.toml", "data/train.safetensors", "data/valid.json"} <= files.keys()
    return files


KINDS = ["pairs.tsv", "pairs.tsv.gz", "header.tsv", "pairs.jsonl", "pairs.jsonl.gz", "aligned"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [97, 98, 101])  # 98 is a multiple of CHUNK
def test_two_processes_store_the_same_bytes_as_one(use, tmp_path: Path, kind: str, n: int) -> None:
    text = {"kind": "bpe", "vocab_size": 300, "strict": False}
    data = {"train": write_corpus(tmp_path, kind, n), "held_out": 0.2, "held_out_test": 0.1}
    table = {"data": data, "text": text, "model": {"max_length": 64}}
    table["data"]["filter"] = {"max_tokens": 11}  # drops some pairs for their tokens
    runs = []
    for workers in (1, 2):
        use(workers)
        runs.append(prepared(table, tmp_path / f"run{workers}"))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("kind", ["char", "word", "wordpiece", "unigram", "byte-bpe"])
def test_every_tokenizer_stores_the_same_bytes(use, tmp_path: Path, kind: str) -> None:
    (tmp_path / "more").mkdir()
    data = {"train": write_corpus(tmp_path, "pairs.tsv", 101), "valid": write_corpus(tmp_path / "more", "aligned", 23)}
    text = {"kind": kind, "vocab_size": 300, "strict": False, "shared": False}
    table = {"data": {**data, "prefix": "translate:"}, "text": text, "model": {"share": "decoder"}}
    runs = []
    for workers in (1, 2):
        use(workers)
        runs.append(prepared(table, tmp_path / f"run{workers}"))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "dataset", "tmx", "tsv.zst", "utf16.csv"])
def test_rows_of_other_types_are_stored_as_rows_of_lines(use, tmp_path: Path, kind: str) -> None:
    """Where a line is not a row, or not UTF-8, several processes store the same bytes, too: those of a .tsv file."""
    sides = [[f"the {i}th dog’s, {i}", f"le {i}ᵉ chien"] for i in range(101)]
    columns = dict(zip(("en", "fr"), map(list, zip(*sides))))
    prepared_data = []
    for file_type, workers in (("tsv", 1), (kind, 1), (kind, 2)):
        use(workers)
        source = {"path": write_table(file_type, tmp_path, columns), "columns": ("en", "fr")}
        table = {"data": {"train": source, "held_out": 0.2}, "text": {"kind": "char"}}
        files = prepared(table, tmp_path / f"{file_type}{workers}")
        prepared_data.append({name: data for name, data in files.items() if name.startswith("data/")})
    assert prepared_data[0] == prepared_data[1] == prepared_data[2]


def refused(source: dict) -> str:
    with pytest.raises(DataError) as caught:
        survey_pairs(PairCorpora.parse({"train": source}, "test"))
    return str(caught.value)


@pytest.mark.parametrize("number", [1, 7, 8, 14, 15, 41])
@pytest.mark.parametrize("bad", [b"one column", b"caf\xe9\tb", b"nul\0\tb"])
def test_a_bad_line_is_refused_by_its_number(use, tmp_path: Path, number: int, bad: bytes) -> None:
    lines = [b"a\tb"] * 43
    lines[number - 1] = bad
    lines[41] = b"a later bad line"
    (tmp_path / "pairs.tsv").write_bytes(b"\n".join(lines))
    messages = []
    for workers in (1, 2):
        use(workers)
        messages.append(refused({"path": tmp_path / "pairs.tsv"}))
    assert f"pairs.tsv:{number}: " in messages[0]
    assert messages[0] == messages[1]


@pytest.mark.parametrize(("n", "m"), [(43, 42), (42, 43), (42, 97), (98, 7)])
def test_files_of_different_lengths_say_both(use, tmp_path: Path, n: int, m: int) -> None:
    paths = tmp_path / "a.en", tmp_path / "a.fr"
    for path, n_lines in zip(paths, (n, m)):
        path.write_text("a\n" * n_lines)
    use(2)
    assert f"a.en has {n} lines but {tmp_path / 'a.fr'} has {m}\n" in refused({"path": paths})


def test_a_truncated_file_is_refused_after_the_bad_lines_before(use, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv.gz"
    whole = gzip.compress("".join(f"{i * i}\t{i**3}\n" for i in range(997)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    messages = []
    for workers in (1, 2):
        use(workers)
        messages.append(refused({"path": path}))
    assert "truncated after line" in messages[0]
    assert messages[0] == messages[1]
    path.write_bytes(gzip.compress(b"no tab\n") + whole[: len(whole) // 2])
    use(2)
    assert "pairs.tsv.gz:1: 1 column" in refused({"path": path})


def test_nothing_left_is_an_error(use, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\t\n" * 23)
    use(2)
    assert "no pairs are left after filtering: kept 0 of 23 pairs (23 empty" in refused(
        {"path": tmp_path / "pairs.tsv"}
    )


def test_a_missing_column_is_refused_by_the_header(use, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("en\tfr\n" + "a\tb\n" * 23)
    use(2)
    assert "pairs.tsv:1: the header has no column `de`" in refused(
        {"path": tmp_path / "pairs.tsv", "columns": ("en", "de")}
    )


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    """Workers must not run the script again, as processes spawned by multiprocessing do."""
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 23)
    (tmp_path / "script.py").write_text(
        "from clearformer.data import pair_blocks, parallel\n"
        "from clearformer.data.corpora import PairCorpora\n"
        "pair_blocks.MIN_BYTES, pair_blocks.usable_threads = 0, lambda: 2\n"
        "data = PairCorpora.parse({'train': {'path': 'pairs.tsv'}}, 'test')\n"
        "print(parallel.survey_pairs(data).n_pairs)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("23\n", "")


@pytest.mark.parametrize("first", [1, 8])
@pytest.mark.parametrize(
    "odd",
    [[], *([line] for line in ODD), ODD, ["a\tb\tc", "d\te"], ["\ufeffa\tb"], ["only one"], ["a\t\0"], ["\udcff\tb"]],
)
def test_a_block_that_is_decoded_at_once_is_parsed_like_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: list[str], first: int
) -> None:
    """The same pairs, or the same error: a line that needs more care sends the block to the slow path."""
    lines = [line.encode("utf-8", "surrogateescape") for line in ["the dog’s\tle chien", *odd, "x\ty", "last\tone"]]
    block = pair_blocks.PairBlock(first, ([line + b"\n" for line in lines[:-1]] + lines[-1:],))
    (tmp_path / "a.tsv").write_bytes(b"\n".join(lines))
    parse = pair_blocks.PairParser(PairSource(path=tmp_path / "a.tsv"))

    def parsed() -> object:
        try:
            return list(parse(block))
        except DataError as error:
            return str(error)

    fast = parsed()
    monkeypatch.setattr(pair_blocks, "PLAIN", 0)
    assert parsed() == fast


def test_clean_blocks_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n")
    parse = pair_blocks.PairParser(PairSource(path=tmp_path / "a.tsv"))
    monkeypatch.setattr(pair_blocks, "numbered", None)  # the slow path
    block = pair_blocks.PairBlock(8193, ([b"a b\tc\td\n", "é \tf".encode()],))
    assert list(parse(block)) == [("a b", "c"), ("é", "f")]
