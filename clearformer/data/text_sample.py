"""A sample of texts for a figure: at most n lines of a file, or labelled texts, evenly spaced."""

from pathlib import Path
from typing import NamedTuple

from clearformer.data.labels import LabelSource, named_columns
from clearformer.data.sources import evenly, read_lines, require_file
from clearformer.errors import DataError
from clearformer.text.normalize import clean


class TextSample(NamedTuple):
    """Texts, and the label of each, "" where it has none."""

    texts: list[str]
    labels: list[str]


def sample_texts(path: Path, kind: LabelSource | None, n: int) -> TextSample:
    """At most n texts: the lines of a file, or the labelled texts of a .tsv or .jsonl file, read as `kind` is.

    A pair is represented by its first text.
    """
    require_file(path)
    if path.name.removesuffix(".gz").endswith((".tsv", ".jsonl")):
        source = LabelSource(path=path, **named_columns(path)) if kind is None else kind.changed(path=path)
        every = [(example.text, example.label) for example in source.read()]
    else:
        every = [(clean(line), "") for line in read_lines(path) if line.strip()]
    if not every:
        raise DataError(f"{path} is empty", "give a text a line")
    texts, labels = zip(*evenly(every, n))
    return TextSample(list(texts), list(labels))
