"""Files to pairs of sentences, streamed line by line, and the filter that drops useless ones.

    read_pairs(Path("fra.tsv"))                                     one file, columns split by tabs
    read_pairs(Path("fra.tsv"), ("english", "french"))              the same with a header line
    read_pairs((Path("train.en.gz"), Path("train.de.gz")))          two files, aligned by line
    read_pairs(Path("train.jsonl"), ("en", "de"))                   one JSON object a line

A wholly blank line is an empty pair, which `Filter` counts, rather than an error.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeInt

from clearformer.config import Config
from clearformer.data.sources import json_text, read_cells, read_lines, read_objects, require_file, some
from clearformer.errors import DataError
from clearformer.text.normalize import clean

Columns = tuple[int, int] | tuple[str, str]
Rows = list[list[int]]


class Example(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class PairSource(Config):
    """Where pairs lie and how to read them: the arguments of `read_pairs`, as a recipe writes them."""

    path: Path | tuple[Path, Path] = Field(description="one .tsv, .txt or .jsonl file, or two line-aligned files")
    columns: tuple[NonNegativeInt, NonNegativeInt] | tuple[str, str] = Field(
        (0, 1), description="two column numbers counted from 0, or two names from the header line or the JSON keys"
    )

    def read(self) -> Generator[Example]:
        return read_pairs(self.path, self.columns)


def read_pairs(path: Path | tuple[Path, Path], columns: Columns = (0, 1)) -> Generator[Example]:
    """Stream the pairs of one file or of two aligned ones; what kind of file it is shows in its suffix.

    A wrong path or kind is refused at once, a bad line when it is reached.
    """
    if isinstance(path, tuple):
        require_file(path[0])
        require_file(path[1])
        return some(path[0], read_aligned(*path))
    require_file(path)
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind in (".tsv", ".txt"):
        return some(path, read_tsv(path, columns))
    if kind == ".jsonl" and isinstance(columns[0], str):
        return some(path, read_jsonl(path, columns))
    if kind == ".jsonl":
        raise DataError(f"{path}: JSON has named columns, not numbered ones", 'for example columns = ["en", "de"]')
    raise DataError(f"{path}: a file that ends in `{kind}` is of no known kind", "use .tsv, .txt, .jsonl or two files")


# What columns of sentence pairs are called; beside these, codes and English names of languages.
PAIR_NAMES = ("source", "target", "src", "tgt", "trg", "input", "output", "original", "translation", "sentence", "text")
LANGUAGES = (
    *[
        "ar",
        "arabic",
        "bg",
        "bulgarian",
        "bn",
        "bengali",
        "cs",
        "czech",
        "da",
        "danish",
        "de",
        "german",
        "deu",
        "el",
        "greek",
        "en",
        "english",
        "eng",
        "es",
        "spanish",
        "spa",
    ],
    *[
        "et",
        "estonian",
        "fa",
        "persian",
        "fi",
        "finnish",
        "fr",
        "french",
        "fra",
        "he",
        "hebrew",
        "hi",
        "hindi",
        "hin",
        "hu",
        "hungarian",
        "id",
        "indonesian",
        "it",
    ],
    *[
        "italian",
        "ita",
        "ja",
        "japanese",
        "jpn",
        "ko",
        "korean",
        "lt",
        "lithuanian",
        "lv",
        "latvian",
        "nl",
        "dutch",
        "no",
        "norwegian",
        "pl",
        "polish",
        "pt",
    ],
    *[
        "portuguese",
        "por",
        "ro",
        "romanian",
        "ru",
        "russian",
        "rus",
        "sk",
        "slovak",
        "sl",
        "slovenian",
        "sv",
        "swedish",
        "ta",
        "tamil",
        "te",
        "telugu",
        "th",
        "thai",
    ],
    *["tr", "turkish", "uk", "ukrainian", "ur", "urdu", "vi", "vietnamese", "zh", "chinese", "zho"],
)


def named_pair_columns(path: Path | tuple[Path, Path]) -> Columns:
    """The columns that a header line of a .tsv file names, if it has one; else the first two, by number."""
    if isinstance(path, tuple) or Path(path.name.removesuffix(".gz")).suffix not in (".tsv", ".txt"):
        return 0, 1
    if not path.is_file():
        return 0, 1
    with closing(read_lines(path)) as lines:
        names = next(lines, "").split("\t")[:2]
    known = {*PAIR_NAMES, *LANGUAGES}
    is_header = len({*names}) == 2 and all(name.strip().lower().split("-")[0] in known for name in names)
    return (names[0], names[1]) if is_header else (0, 1)


def posed(source: str, prefix: str) -> str:
    """A source with its task's name before it, as a T5 of several tasks reads it; a blank one stays blank."""
    return f"{prefix.strip()} {source}" if prefix and source.strip() else source


def read_aligned(source: Path, target: Path) -> Generator[Example]:
    """Line i of one file with line i of the other. Both must end together, else some line above may be misaligned."""
    with closing(read_lines(source)) as sources, closing(read_lines(target)) as targets:
        for number, (a, b) in enumerate(zip_longest(sources, targets), 1):
            if a is None or b is None:
                n_source = number - 1 if a is None else number + sum(1 for _ in sources)
                n_target = number - 1 if b is None else number + sum(1 for _ in targets)
                raise DataError(
                    f"{source} has {n_source:,} lines but {target} has {n_target:,}",
                    "line i of one file must translate line i of the other",
                )
            yield Example(clean(a), clean(b))


def read_tsv(path: Path, columns: Columns) -> Generator[Example]:
    """Two of the columns that tabs divide."""
    with closing(read_cells(path, columns)) as rows:
        for _, (source, target) in rows:
            yield Example(clean(source), clean(target))


def read_jsonl(path: Path, columns: tuple[str, str]) -> Generator[Example]:
    """Two string values of the JSON object on each line."""
    with closing(read_objects(path)) as rows:
        for where, row in rows:
            row = dict.fromkeys(columns, "") if row is None else row
            yield Example(*(clean(json_text(row, key, where)) for key in columns))


Verdict = Literal["kept", "empty", "too_long", "unequal"]


@dataclass
class Tally:
    """What became of the pairs that passed a `Filter`."""

    kept: int = 0
    empty: int = 0
    too_long: int = 0
    unequal: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.empty + self.too_long + self.unequal

    def count(self, verdict: Verdict) -> None:
        setattr(self, verdict, getattr(self, verdict) + 1)

    def describe(self) -> str:
        """One line: "kept 28,873 of 29,000 pairs (12 empty, 3 too long, 112 unequal)"."""
        dropped = f" ({self.empty:,} empty, {self.too_long:,} too long, {self.unequal:,} unequal)"
        return f"kept {self.kept:,} of {self.total:,} pairs{dropped if self.kept < self.total else ''}"


class Filter(Config):
    """Drops the pairs that teach nothing: an empty side, a side too long to fit, sides of wildly unequal length."""

    max_chars: int = Field(2000, ge=1, description="longest side, in characters")
    max_tokens: int = Field(256, ge=1, description="longest side, in tokens, without BOS and EOS")
    max_ratio: float = Field(9.0, ge=1, description="longer side over shorter side, in characters")

    def judge(self, example: Example) -> Verdict:
        shorter, longer = sorted((len(example.source), len(example.target)))
        if shorter == 0:
            return "empty"
        if longer > self.max_chars:
            return "too_long"
        return "unequal" if longer > self.max_ratio * shorter else "kept"

    def keep(self, examples: Iterator[Example], tally: Tally) -> Iterator[Example]:
        """The pairs worth keeping, in order; `tally` is brought up to date as they pass. None at all is an error."""
        for example in examples:
            verdict = self.judge(example)
            tally.count(verdict)
            if verdict == "kept":
                yield example
        if tally.kept == 0:
            raise DataError(f"no pair is left: {tally.describe()}", "check the columns, or widen the filter")

    def fit(self, source_ids: Rows, target_ids: Rows, tally: Tally) -> tuple[Rows, Rows]:
        """The pairs that are short enough once tokenised; the others move from kept to too long in `tally`."""
        pairs = list(zip(source_ids, target_ids))
        short = [pair for pair in pairs if max(map(len, pair)) <= self.max_tokens]
        tally.kept -= len(pairs) - len(short)
        tally.too_long += len(pairs) - len(short)
        return [source for source, _ in short], [target for _, target in short]
