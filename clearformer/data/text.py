"""Read documents from files, and store them as one stream of tokens on disk, for training language models.

    TextSource(path="play.txt")                                     one document: the file, with all its white space
    TextSource(path="news.txt.gz", documents="paragraph")           blank lines separate documents
    TextSource(path=["a.jsonl", "b.jsonl"], column="text")          one JSON object per line, each a document

Files may be gzipped. Text is UTF-8. CR LF becomes LF, and nothing else is changed: white space is left to the
tokenizer.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from clearformer.config import Config
from clearformer.data.sources import (
    file_type,
    json_text,
    non_empty,
    read_lines_with_ends,
    read_objects,
    require_file,
)
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.errors import DataError
from clearformer.text import Tokenizer

CHUNK = 2**22  # characters tokenised at a time


class TextSource(Config):
    """The paths of documents, and how to read them."""

    path: Path | Annotated[tuple[Path, ...], Field(min_length=1)] = Field(
        description="path of a .txt or .jsonl file, or a list of paths"
    )
    column: str = Field("text", description="key of the text in the objects of a .jsonl file")
    documents: Literal["file", "paragraph", "line"] = Field(
        "file",
        description="what forms a document: file, paragraph or line; each object of a .jsonl file counts as a file",
    )

    @property
    def is_collection(self) -> bool:
        """Whether a file may contain several documents."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        return self.documents != "file" or any(file_type(path) == ".jsonl" for path in paths)

    def read(self) -> Generator[str]:
        """Stream the documents in order. A wrong path or file type raises at once, a bad line when it is reached."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        for path in paths:
            require_file(path)
            if file_type(path) not in (".txt", ".jsonl"):
                raise DataError(f"{path}: unsupported file type", "use .txt or .jsonl files, also gzipped (.gz)")
        return non_empty(paths[0], self._read(paths), "document")

    def _read(self, paths: Iterable[Path]) -> Generator[str]:
        divide = {"file": whole, "paragraph": paragraphs, "line": single_lines}[self.documents]
        for path in paths:
            with closing(read_texts(path, self.column)) as texts:
                for lines in texts:
                    yield from divide(line.replace("\r\n", "\n") for line in lines)


def read_texts(path: Path, column: str) -> Generator[Iterator[str]]:
    """Yield each text, a .txt file or an object of a .jsonl file, as an iterator over its lines with line ends."""
    if file_type(path) == ".jsonl":
        with closing(read_objects(path)) as rows:
            for where, row in rows:
                if row is not None:
                    yield StringIO(json_text(row, column, where), newline="\n")
    else:
        with closing(read_lines_with_ends(path)) as lines:
            yield lines


def whole(lines: Iterator[str]) -> Iterator[str]:
    text = "".join(lines)
    if text.strip():
        yield text


def paragraphs(lines: Iterator[str]) -> Iterator[str]:
    for has_text, group in groupby(lines, lambda line: bool(line.strip())):
        if has_text:
            yield "".join(group).removesuffix("\n")


def single_lines(lines: Iterator[str]) -> Iterator[str]:
    return (line.removesuffix("\n") for line in lines if line.strip())


def store_text(documents: Iterable[str], tokenizer: Tokenizer, path: Path, bos: bool = False) -> DocumentStore:
    """Tokenise documents and concatenate them on disk, each ending with EOS; documents without tokens are dropped.

    The input before a document is EOS, as in GPT-2's stream, or BOS if `bos` is set. A document is tokenised at once,
    which takes hundreds of bytes of memory per token: read a file of several gigabytes by paragraphs.
    """
    start_id = tokenizer.bos_id if bos else tokenizer.eos_id
    metadata = {"tokenizer": tokenizer.fingerprint()}
    with DocumentWriter(path, tokenizer.vocab_size, start_id, metadata) as writer:
        for texts in chunks(documents, CHUNK):
            writer.add([[*ids, tokenizer.eos_id] for ids in tokenizer.encode(texts) if ids])
        return writer.close()


def chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Group texts into lists with at least `size` characters in total; the last list may have fewer."""
    chunk: list[str] = []
    n_chars = 0
    for text in texts:
        chunk.append(text)
        n_chars += len(text)
        if n_chars >= size:
            yield chunk
            chunk, n_chars = [], 0
    if chunk:
        yield chunk
