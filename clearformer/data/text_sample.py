"""Sample texts for a figure: at most n evenly spaced lines of a file, or labelled texts."""

from pathlib import Path
from typing import NamedTuple

from clearformer.data.files.open import is_table
from clearformer.data.labels import LabelSource, named_columns
from clearformer.data.sources import evenly_spaced, read_lines, require_file
from clearformer.errors import DataError
from clearformer.text.normalize import clean


class TextSample(NamedTuple):
    """Texts and their labels, "" for texts without a label."""

    texts: list[str]
    labels: list[str]


def sample_texts(path: Path, kind: LabelSource | None, n: int) -> TextSample:
    """Return at most n texts: lines of a .txt file, or labelled texts of a table with the columns of `kind`.

    Of a pair of texts, only the first is used.
    """
    if is_table(path):
        source = LabelSource(path=path, **named_columns(path)) if kind is None else kind.changed(path=path)
        labelled = [(example.text, example.label) for example in source.read()]
    else:
        require_file(path)
        labelled = [(clean(line), "") for line in read_lines(path) if line.strip()]
    if not labelled:
        raise DataError(f"{path} is empty", "write one text per line")
    texts, labels = zip(*evenly_spaced(labelled, n))
    return TextSample(list(texts), list(labels))
