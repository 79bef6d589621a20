"""Tables with a separator between columns: .tsv and .csv.

In a .tsv file, each line is a row, and quotation marks have no special meaning. A .csv file follows RFC 4180: a cell in
quotation marks may contain separators and line ends. Its separator is a comma, a semicolon or a tab: the one that
divides most of the first rows into equally many columns.
"""

import csv
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import chain

from clearformer.data.files.table import MAX_CELL, Column, Grid
from clearformer.data.sources import read_lines, read_lines_with_ends, split_lines
from clearformer.errors import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SAMPLE_LINES, SAMPLE_CHARS = 100, 2**16  # the part of a .csv file by which its separator is recognised


class TabSeparated(Grid):
    """A .tsv or .txt file."""

    first_row = "first line"

    def rows(self) -> Generator[tuple[str, list[str]]]:
        with closing(read_lines(self.path)) as lines:
            yield from split_lines(self.path, enumerate(lines, 1))


class CommaSeparated(Grid):
    """A .csv file."""

    advice = "separate columns by commas, semicolons or tabs"

    def rows(self) -> Generator[tuple[str, list[str]]]:
        csv.field_size_limit(MAX_CELL)  # the default, 131,072 characters, is too small for documents
        number = 0
        with closing(read_lines_with_ends(self.path)) as lines:
            sample = first_lines(lines)
            rows = csv.reader(chain(sample, lines), delimiter=separator_of(sample), strict=True)
            while True:
                number += 1
                try:
                    row = next(rows, None)
                except csv.Error as error:
                    raise DataError(
                        f"{self.path}, row {number}: not valid CSV ({error})",
                        "close every quoted cell, and write a quotation mark inside it twice",
                    ) from None
                if row is None:
                    return
                yield f"{self.path}, row {number}", row

    def describe(self, columns: Sequence[Column]) -> str:
        with closing(read_lines_with_ends(self.path)) as lines:
            separator = separator_of(first_lines(lines))
        by = "" if separator == "," else f", separated by {SEPARATORS[separator]}"
        return super().describe(columns) + by


def first_lines(lines: Iterable[str]) -> list[str]:
    """Take the lines in which the separator of a .csv file is looked for."""
    sample, n_chars = [], 0
    for line in lines:
        sample.append(line)
        n_chars += len(line)
        if len(sample) == SAMPLE_LINES or n_chars >= SAMPLE_CHARS:
            break
    return sample


def separator_of(sample: Sequence[str]) -> str:
    """Return the separator that divides most rows into equally many columns, at least two; a comma if none does.

    It divides the first row, too: a semicolon inside every text is no separator if the header has none. Separators
    inside quoted cells do not count. A row at the end of the sample may be incomplete, which changes little.
    """

    def agreement(separator: str) -> tuple[bool, int, int]:
        widths = [len(row) for row in csv.reader(sample, delimiter=separator)]
        counts = Counter(width for width in widths if width > 1)
        return max(((width == widths[0], n, width) for width, n in counts.items()), default=(False, 0, 0))

    try:
        return max(SEPARATORS, key=agreement)
    except csv.Error:
        return ","
