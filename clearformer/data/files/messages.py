"""The messages of an Arrow stream: whether their data is compressed.

A compressed buffer begins with its size when decompressed, and Arrow allocates what it says. The library `datasets`
writes no compressed buffers, so they are refused, before Arrow reads a message.

    message ⊃ header: record batch | dictionary batch ⊃ record batch          record batch ⊃ compression, if any

The metadata of a message is a FlatBuffer: a table has, before its fields, the distance to a list of their places.
"""

import struct
from pathlib import Path
from typing import Any

from clearformer.errors import DataError

HEADER, DATA, COMPRESSION = 2, 1, 3  # numbers of fields: of a message, a dictionary batch, a record batch


def refuse_compressed(path: Path) -> None:
    """Read the messages of an Arrow file, without their data. A compressed message is an error."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        for message in pyarrow.ipc.MessageReader.open_stream(source):
            if message.type in ("record batch", "dictionary") and is_compressed(bytes(message.metadata), message.type):
                raise DataError(f"{path}: a compressed Arrow file", "write it again with save_to_disk")


def is_compressed(data: bytes, kind: Any) -> bool:
    try:
        place = table_in(data, reference(data, 0), HEADER)
        if kind == "dictionary":
            place = table_in(data, place, DATA)
        return field(data, place, COMPRESSION) is not None
    except struct.error:
        return True  # Arrow would not read it either


def table_in(data: bytes, table: int, number: int) -> int:
    """Return the place of the table in a field of another table."""
    place = field(data, table, number)
    if place is None:
        raise struct.error("a message without a header")
    return reference(data, place)


def reference(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def field(data: bytes, table: int, number: int) -> int | None:
    """Return the place of a field of a table, None if the table does not have it."""
    places = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, places)
    if 4 + 2 * number >= size:
        return None
    (distance,) = struct.unpack_from("<H", data, places + 4 + 2 * number)
    return table + int(distance) if distance else None
