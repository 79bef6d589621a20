"""Translation memories: pairs from .tmx and .xliff files.

    <tu><tuv xml:lang="en"><seg>a dog</seg></tuv><tuv xml:lang="de"><seg>ein Hund</seg></tuv></tu>      TMX
    <trans-unit><source>a dog</source><target>ein Hund</target></trans-unit>                            XLIFF 1.2
    <segment><source>a dog</source><target>ein Hund</target></segment>                                  XLIFF 2

The columns of a .tmx file are its languages, those of an .xliff file `source` and `target`. Codes of the original
document inside a segment, such as <ph>, are left out; markup around text, such as <g>, keeps its text.

The files are parsed by expat as they are read. The DOCTYPE that many tools write, <!DOCTYPE tmx SYSTEM "tmx14.dtd">,
names a file, which is never opened. A declaration of entities is refused: nothing is ever expanded.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from xml.parsers import expat

from clearformer.data.files.compressed import check_ratio, opened
from clearformer.data.files.table import MAX_CELL, Column, Table
from clearformer.data.sources import list_columns
from clearformer.errors import DataError
from clearformer.wording import count

PART = 2**16  # bytes parsed at a time
SAMPLE = 100  # units in which the languages of a .tmx file are looked for
MAX_DEPTH = 1000  # elements inside each other: a hostile file could open elements without end
MAX_TEXTS = 1000  # texts of a unit
UNITS = {"tu", "trans-unit", "segment"}
TEXTS = {"seg", "source", "target"}
HIDDEN = {"bpt", "ept", "ph", "it", "ut", "sub", "x", "bx", "ex", "sc", "ec", "alt-trans"}

Unit = dict[str, str]


class UnitParser:
    """Collects the units of a file: the text of each language, or of source and target."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.units: list[tuple[str, Unit]] = []
        self.source_language = ""
        self.unit: Unit | None = None
        self.language = ""
        self.text: list[str] | None = None
        self.n_chars = self.n_hidden = self.depth = self.n_bytes = 0
        self.parser = strict_parser(str(path), allows_dtd=True)
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.add

    def read(self) -> Generator[tuple[str, Unit]]:
        try:
            with opened(self.path) as file:
                while part := file.read(PART):
                    self.parse(part)
                    self.n_bytes += len(part)
                    check_ratio(self.path, file)
                    if self.n_bytes - self.parser.CurrentByteIndex > MAX_CELL:  # expat holds what it has not parsed
                        raise self.too_long("tag or comment")
                    yield from self.units
                    self.units.clear()
                self.parse(b"", True)
        except expat.ExpatError as error:
            raise not_well_formed(str(self.path), error) from None

    def parse(self, part: bytes, is_last: bool = False) -> None:
        try:
            self.parser.Parse(part, is_last)
        except (LookupError, ValueError) as error:  # of Python's codecs, for a declared encoding that expat lacks
            raise DataError(f"{self.path}: its encoding cannot be read ({error})", "export it as UTF-8") from None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = local(name)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise DataError(
                f"{self.where}: more than {count(MAX_DEPTH, 'element')} inside each other", "export it again"
            )
        if self.n_hidden or (tag in HIDDEN and self.unit is not None):
            self.n_hidden += 1
        elif tag in UNITS:
            self.unit, self.n_chars = {}, 0
        elif tag == "tuv":
            self.language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif tag in TEXTS and self.unit is not None:
            self.text = []
        elif tag == "header":
            self.source_language = attributes.get("srclang", "")

    def add(self, text: str) -> None:
        if self.text is None or self.n_hidden:
            return
        self.n_chars += len(text)
        if self.n_chars > MAX_CELL:
            raise self.too_long("unit")
        self.text.append(text)

    def end(self, name: str) -> None:
        tag = local(name)
        self.depth -= 1
        if self.n_hidden:
            self.n_hidden -= 1
        elif self.unit is None:
            return
        elif tag in TEXTS and self.text is not None:
            self.unit.setdefault(self.language.lower() if tag == "seg" else tag, "".join(self.text))
            self.text = None
            if len(self.unit) > MAX_TEXTS:
                raise DataError(f"{self.where}: a unit with more than {count(MAX_TEXTS, 'language')}", "divide it")
        elif tag in UNITS:
            self.units.append((self.where, self.unit))
            self.unit = None

    def too_long(self, what: str) -> DataError:
        return DataError(f"{self.where}: a {what} of more than {MAX_CELL >> 20} Mi characters", "divide it")

    @property
    def where(self) -> str:
        return f"{self.path}:{self.parser.CurrentLineNumber}"


class TranslationMemory(Table):
    """A .tmx file."""

    def names(self) -> list[str]:
        """Return the languages of the first units, the source language first."""
        parser = UnitParser(self.path)
        with closing(parser.read()) as units:
            names = list(dict.fromkeys(language for _, unit in islice(units, SAMPLE) for language in unit))
        return sorted(names, key=lambda name: name != parser.source_language.lower())

    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        wanted, known = [str(column).lower() for column in columns], self.names()
        for column in wanted:
            if text_in(dict.fromkeys(known, "known"), column) == "":
                raise DataError(f"{self.path}: no language `{column}`", list_columns(known, option, "languages are"))
        with closing(UnitParser(self.path).read()) as units:
            for where, unit in units:
                yield where, [text_in(unit, column) for column in wanted]


class Xliff(Table):
    """An .xliff or .xlf file, version 1.2 or 2."""

    def names(self) -> list[str]:
        return ["source", "target"]

    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        for column in columns:
            if column not in self.names():
                raise DataError(f"{self.path}: no column `{column}`", list_columns(self.names(), option))
        with closing(UnitParser(self.path).read()) as units:
            for where, unit in units:
                yield where, [unit.get(str(column), "") for column in columns]


def text_in(unit: Unit, language: str) -> str:
    """Return the text in a language; `en` also stands for its regions, such as `en-us`. "" if there is none."""
    if language in unit:
        return unit[language]
    return next((text for name, text in unit.items() if name.startswith(f"{language}-")), "")


def local(name: str) -> str:
    """Return the name of an element without the prefix of its namespace."""
    return name.rpartition(":")[2]


def strict_parser(name: str, allows_dtd: bool = False, namespace_separator: str | None = None) -> Any:
    """Return a parser without entities, except the five of XML, such as &amp;. It opens no other file.

    A DOCTYPE is refused. With `allows_dtd`, it may name a document type definition, which is not read.
    """

    def refuse(*_: object) -> None:
        raise DataError(
            f"{name}: an XML file that {'declares or uses' if allows_dtd else 'could declare'} entities, in a DOCTYPE",
            "export it again, without declarations in <!DOCTYPE …>",
        )

    def check(_name: str, _system: str | None, _public: str | None, has_declarations: int) -> None:
        if has_declarations or not allows_dtd:
            refuse()

    parser = expat.ParserCreate(namespace_separator=namespace_separator)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = check
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    return parser


def not_well_formed(name: str, error: expat.ExpatError) -> DataError:
    return DataError(f"{name}:{error.lineno}: not well-formed XML ({expat.ErrorString(error.code)})", "export it again")
