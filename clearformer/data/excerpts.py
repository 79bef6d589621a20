"""Some texts to look at: lines of a file, or labelled ones, so many from all over it."""

from pathlib import Path
from typing import NamedTuple

from clearformer.data.labels import LabelSource, named_columns
from clearformer.data.sources import evenly, read_lines, require_file
from clearformer.errors import DataError
from clearformer.text.normalize import clean


class Excerpts(NamedTuple):
    """Texts, and what was said of each, where somebody did."""

    texts: list[str]
    labels: list[str]


def open_excerpts(path: Path, kind: LabelSource | None, n: int) -> Excerpts:
    """At most n texts: lines, or those of a .tsv or .jsonl file read as `kind` is, with labels; of a pair the first."""
    require_file(path)
    if path.name.removesuffix(".gz").endswith((".tsv", ".jsonl")):
        source = LabelSource(path=path, **named_columns(path)) if kind is None else kind.changed(path=path)
        every = [(example.text, example.label) for example in source.read()]
    else:
        every = [(clean(line), "") for line in read_lines(path) if line.strip()]
    if not every:
        raise DataError(f"{path} is empty", "give a text a line")
    texts, labels = zip(*evenly(every, n))
    return Excerpts(list(texts), list(labels))
