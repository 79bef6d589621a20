"""The pages of a Parquet file: how much memory they need, read from the header of each page before any is decompressed.

    row group ⊃ column chunk ⊃ page        a page is compressed as a whole; its header has its size when decompressed

Arrow allocates the size that a header gives, and refuses a page that decompresses to another one: a limit on this size
is a limit on memory, whoever wrote the header. The footer of the file is not asked: its sizes may be wrong.

A value is inside one page. So n rows of a column without lists need at most n times its largest page, also if every
row refers to the same entry of a dictionary, or repeats the beginning of the previous value. A row with lists may
contain all values of its row group; its texts stay numbers of dictionary entries (`dictionaries`).
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.errors import DataError
from clearformer.wording import count

MAX_PAGE = 2**26  # bytes, decompressed; writers make pages of about 2**20
MAX_BATCH = 2**27  # bytes of the rows that are read at a time
MAX_LISTS = 2**29  # bytes of the pages of a column of lists in a row group
MAX_ITEMS = 2**25  # items of the lists of a column in a row group
DICTIONARY = {2, 8}  # encodings whose values are numbers of entries of a dictionary
DELTA_BYTE_ARRAY = 7  # an encoding whose values repeat the beginning of the previous value
LISTS = "write it with smaller row groups, such as row_group_size=1000"


class Page(NamedTuple):
    """The header of a page: its sizes in bytes, its number of values, and their encodings."""

    n_bytes: int
    n_compressed: int
    n_values: int
    encodings: set[int]


class Need(NamedTuple):
    """What the columns of a file need: rows to read at a time, and columns whose texts must stay dictionary entries."""

    n_rows: int
    dictionaries: list[str]


def measure(path: Path, metadata: Any, columns: list[str], n_rows: int) -> Need:
    """Return how to read columns, given by their path or its beginning, within the limits. At most `n_rows` rows."""
    largest, dictionaries = 1, set[str]()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for i in range(metadata.num_columns):
            column = metadata.schema.column(i)
            if not any(column.path == name or column.path.startswith(f"{name}.") for name in columns):
                continue
            has_lists = column.max_repetition_level > 0
            for group in range(metadata.num_row_groups):
                pages = list(read_pages(path, data, metadata.row_group(group).column(i)))
                largest = max(largest, *(page.n_bytes for page in pages), 1)
                if has_lists:
                    check_lists(f"{path}, column `{column.path}`", pages)
                    if column.physical_type == "BYTE_ARRAY" and any(page.encodings & DICTIONARY for page in pages):
                        dictionaries.add(column.path)
    return Need(max(1, min(n_rows, MAX_BATCH // largest)), sorted(dictionaries))


def read_pages(path: Path, data: mmap.mmap, chunk: Any) -> Iterator[Page]:
    """Yield the headers of the pages of a column chunk. A page of more than MAX_PAGE is an error."""
    place = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < place:
        place = chunk.dictionary_page_offset
    stop = place + chunk.total_compressed_size
    while 0 <= place < min(stop, len(data)):
        try:
            place, header = read_struct(data, place)
            page = as_page(header)
        except (IndexError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
            raise DataError(
                f"{path}, column `{chunk.path_in_schema}`: the header of a page cannot be read", "write it again"
            ) from None
        if page.n_bytes > MAX_PAGE:
            raise DataError(
                f"{path}, column `{chunk.path_in_schema}`: a page of more than {MAX_PAGE >> 20} MiB when decompressed",
                "divide long cells into several rows, and write it again",
            )
        place += page.n_compressed
        yield page


def check_lists(where: str, pages: list[Page]) -> None:
    """Refuse lists that cannot be read together: one row may have all of them."""
    if sum(page.n_bytes for page in pages) > MAX_LISTS:
        raise DataError(f"{where}: more than {MAX_LISTS >> 20} MiB of lists in a row group", LISTS)
    if sum(page.n_values for page in pages) > MAX_ITEMS:
        raise DataError(f"{where}: more than {count(MAX_ITEMS, 'list item')} in a row group", LISTS)
    if any(DELTA_BYTE_ARRAY in page.encodings for page in pages):
        raise DataError(f"{where}: lists with the encoding DELTA_BYTE_ARRAY", "write it with another encoding")


def as_page(header: dict[int, Any]) -> Page:
    """Return a PageHeader of parquet.thrift: 2 and 3 are its sizes; 5, 7 or 8 the header of its kind of page."""
    kinds = [header.get(5, {}), header.get(7, {}), header.get(8, {})]
    page = Page(
        header[2],
        header[3],
        max(kind.get(1, 0) for kind in kinds),
        {kind[number] for kind, number in zip(kinds, (2, 2, 4)) if number in kind},
    )
    if page.n_bytes < 0 or page.n_compressed < 0:
        raise ValueError("a page of negative size")
    return page


def read_struct(data: mmap.mmap, place: int) -> tuple[int, dict[int, Any]]:
    """Read a structure of the compact protocol of Thrift: (the place after it, its fields by number)."""
    fields: dict[int, Any] = {}
    number = 0
    while (first := data[place]) != 0:
        place, kind = place + 1, first & 15
        if first >> 4:
            number += first >> 4
        else:
            place, number = read_integer(data, place)
        if kind in (1, 2):  # true and false
            fields[number] = kind == 1
        elif kind in (4, 5, 6):  # integers
            place, fields[number] = read_integer(data, place)
        elif kind == 8:  # bytes, such as the least and the greatest value
            place, length = read_varint(data, place)
            place += length
        elif kind == 12:
            place, fields[number] = read_struct(data, place)
        else:
            raise ValueError(f"a field of type {kind} in the header of a page")
    return place + 1, fields


def read_integer(data: mmap.mmap, place: int) -> tuple[int, int]:
    place, value = read_varint(data, place)
    return place, (value >> 1) ^ -(value & 1)


def read_varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return place, value
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
