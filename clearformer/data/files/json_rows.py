"""Tables of JSON objects: .jsonl, with one object per line, and .json, an array of objects.

An array is parsed object by object, so that a file of any size needs only the memory of its largest object. Objects
that follow each other without an array, as in a .jsonl file that is called .json, are read in the same way.
"""

import json
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from clearformer.data.files.table import MAX_CELL, Column, Table, flat_keys
from clearformer.data.sources import check_depth, json_value, objects, read_lines, read_text, too_deep
from clearformer.errors import DataError

Row = dict[str, object]
SPACE = " \t\r\n"
TAIL = 16  # an error so close to the end of the text may be a word or number that continues: `tru`, `-Infinit`


class JsonTable(Table):
    @abstractmethod
    def rows(self) -> Generator[tuple[str, Row | None]]:
        """Yield the location and the object of each row; None for a blank line."""

    def names(self) -> list[str]:
        with closing(self.rows()) as rows:
            return flat_keys(next((row for _, row in rows if row is not None), {}))

    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        keys = [str(column) for column in columns]
        blank = [""] * len(keys)
        with closing(self.rows()) as rows:
            for where, row in rows:
                yield where, blank if row is None else [json_value(row, key, where, option) for key in keys]


class JsonLines(JsonTable):
    """A .jsonl file."""

    def rows(self) -> Generator[tuple[str, Row | None]]:
        with closing(read_lines(self.path)) as lines:
            yield from objects(self.path, enumerate(lines, 1))


class JsonArray(JsonTable):
    """A .json file."""

    def rows(self) -> Generator[tuple[str, Row | None]]:
        with closing(read_text(self.path)) as parts:
            yield from ArrayParser(self.path, parts).rows()


class ArrayParser:
    """Parses an array of objects whose text comes in parts: `text[at:]` is read but not parsed yet."""

    def __init__(self, path: Path, parts: Generator[str]) -> None:
        self.path, self.parts, self.text, self.at, self.n_rows = path, parts, "", 0, 0
        self.decoder = json.JSONDecoder()

    @property
    def where(self) -> str:
        return f"{self.path}, row {self.n_rows + 1}"

    def rows(self) -> Generator[tuple[str, Row]]:
        is_array = self.next_character() == "["
        self.at += is_array
        while (character := self.next_character()) and not (is_array and character == "]"):
            where = self.where
            yield where, self.parse()
            self.n_rows += 1
            if is_array:
                self.pass_comma()
        if is_array and not character:
            raise self.refusal("the array is truncated")
        self.at += is_array
        if self.next_character():
            raise self.refusal("text after the end of the array")

    def next_character(self) -> str:
        """Return the next character that is no white space, or "" at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in SPACE:
                self.at += 1
            if self.at < len(self.text) or not self.read_more():
                return self.text[self.at : self.at + 1]

    def read_more(self) -> bool:
        """Double the text that is held, and return whether there was more."""
        self.text, self.at = self.text[self.at :], 0
        goal, parts = 2 * len(self.text), [self.text]
        n_chars = len(self.text)
        for part in self.parts:
            parts.append(part)
            n_chars += len(part)
            if n_chars > goal:
                break
        is_longer = n_chars > len(self.text)
        self.text = "".join(parts)
        return is_longer

    def parse(self) -> Row:
        """Parse the object at the current place, reading as far as it needs."""
        if self.text[self.at] != "{":
            raise self.refusal("not an object")
        while True:
            try:
                row, end = self.decoder.raw_decode(self.text, self.at)
                text, self.at = self.text[self.at : end], end
                check_depth(row, text, self.where)
                return dict(row)
            except json.JSONDecodeError as error:
                may_continue = error.pos >= len(self.text) - TAIL or error.msg.startswith("Unterminated")
                if not may_continue or not self.read_more():
                    raise self.refusal(f"not valid JSON ({error.msg})") from None
            except RecursionError:
                raise too_deep(self.where) from None
            except ValueError as error:  # a number of thousands of digits
                raise self.refusal(f"not valid JSON ({error})") from None
            if len(self.text) > MAX_CELL:
                raise self.refusal(f"an object of more than {MAX_CELL >> 20} Mi characters")

    def pass_comma(self) -> None:
        character = self.next_character()
        if character == ",":
            self.at += 1
            if self.next_character() == "]":
                raise self.refusal("a comma before the end of the array")
        elif character not in ("]", ""):
            raise self.refusal("a comma is missing before it")

    def refusal(self, reason: str) -> DataError:
        return DataError(f"{self.where}: {reason}", 'write an array of objects, such as [{"text": "…"}, {"text": "…"}]')
