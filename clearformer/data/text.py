"""Read documents from files, and store them as one stream of tokens on disk, for training language models.

    TextSource(path="play.txt")                                     one document: the file, with all its white space
    TextSource(path="news.txt.gz", documents="paragraph")           blank lines separate documents
    TextSource(path=["a.jsonl", "b.csv"], column="text")            tables: each row is a document

All file types of files/open.py are supported. CR LF becomes LF, and nothing else is changed: white space is left to the
tokenizer.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from clearformer.data.files.columns import text_column
from clearformer.data.files.open import is_table, open_table, require_names
from clearformer.data.parts import cut_for, in_parts, is_finished, joined
from clearformer.data.source import Source
from clearformer.data.sources import as_text, file_type, non_empty, read_line_parts, read_lines_with_ends
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.data.tally import Skipped
from clearformer.text import Tokenizer

OPTION = "--set data.train.column=NAME"
CHUNK = 2**19  # characters tokenised at a time, or one part of a document


class TextSource(Source):
    """The paths of documents, and how to read them."""

    path: Path | Annotated[tuple[Path, ...], Field(min_length=1)] = Field(
        description="path of a .txt file or of a data table (.jsonl, .csv, .parquet …), or a list of paths"
    )
    column: NonNegativeInt | str = Field(
        "text",
        description="column of the text in data tables: a name from the header or a JSON key, or a number from 0",
    )
    documents: Literal["file", "paragraph", "line"] = Field(
        "file",
        description="what forms a document: file, paragraph or line; each row of a data table counts as a file",
    )

    @property
    def is_collection(self) -> bool:
        """Whether a file may contain several documents."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        return self.documents != "file" or any(file_type(path) != ".txt" for path in paths)

    def read(self, skipped: Skipped | None = None) -> Generator[str]:
        """Stream the documents in order. A wrong path or file type raises at once, a bad row when it is reached.

        Blank rows of tables are counted in `skipped`.
        """
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        for path in paths:
            require_names(open_table(path), [self.column], OPTION)
        return non_empty(paths[0], self._read(paths, skipped or Skipped()), "document")

    def parts(self, skipped: Skipped | None = None) -> Generator[str]:
        """Stream the documents as `read` does, but a file that is one document in parts, whatever its length."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        for path in paths:
            require_names(open_table(path), [self.column], OPTION)
        return non_empty(paths[0], self._parts(paths, skipped or Skipped()), "document")

    def _parts(self, paths: Iterable[Path], skipped: Skipped) -> Generator[str]:
        for path in paths:
            if self.documents == "file" and file_type(path) == ".txt":
                with closing(read_line_parts(path)) as lines:
                    yield from in_parts(line.replace("\r\n", "\n") for line in lines)
            else:
                yield from self._read([path], skipped)

    def _read(self, paths: Iterable[Path], skipped: Skipped) -> Generator[str]:
        divide = {"file": whole, "paragraph": paragraphs, "line": single_lines}[self.documents]
        for path in paths:
            with closing(read_texts(path, self.column, skipped)) as texts:
                for lines in texts:
                    yield from divide(line.replace("\r\n", "\n") for line in lines)


def read_texts(path: Path, column: int | str, skipped: Skipped) -> Generator[Iterator[str]]:
    """Yield each text, a .txt file or a row of a table, as an iterator over its lines with line ends."""
    if file_type(path) == ".txt":
        with closing(read_lines_with_ends(path)) as lines:
            yield lines
        return
    with closing(open_table(path).read([column], OPTION)) as rows:
        for where, (text,) in rows:
            if as_text(text, column, where).strip():
                yield StringIO(text, newline="\n")
            else:
                skipped.add(where)


def named_text_column(paths: Iterable[Path]) -> str | None:
    """Return the text column of the first table if its name is well known."""
    table = next((open_table(path) for path in paths if is_table(path)), None)
    return None if table is None else text_column(table.names())


def whole(lines: Iterator[str]) -> Iterator[str]:
    text = joined(lines)
    if text.strip():
        yield text


def paragraphs(lines: Iterator[str]) -> Iterator[str]:
    for has_text, group in groupby(lines, lambda line: bool(line.strip())):
        if has_text:
            yield joined(group).removesuffix("\n")


def single_lines(lines: Iterator[str]) -> Iterator[str]:
    return (line.removesuffix("\n") for line in lines if line.strip())


def store_text(documents: Iterable[str], tokenizer: Tokenizer, path: Path, bos: bool = False) -> DocumentStore:
    """Tokenise documents and concatenate them on disk, each ending with EOS; documents without tokens are dropped.

    The input before a document is EOS, as in GPT-2's stream, or BOS if `bos` is set. Tokenising takes hundreds of bytes
    of memory per token, so that long documents are tokenised in parts, to the same tokens (parts.py).
    """
    start_id = tokenizer.bos_id if bos else tokenizer.eos_id
    metadata = {"tokenizer": tokenizer.fingerprint()}
    with DocumentWriter(path, tokenizer.vocab_size, start_id, metadata) as writer:
        write_documents(writer, tokenizer, documents)
        return writer.close()


def write_documents(
    writer: DocumentWriter, tokenizer: Tokenizer, documents: Iterable[str], continues: bool = False
) -> None:
    """Tokenise documents, or parts of them. `continues` says that the first one was begun in another store."""
    for texts in chunks(cut_for(tokenizer, documents), CHUNK):
        rows = list[list[int]]()
        for text, ids in zip(texts, tokenizer.encode(texts)):
            if not is_finished(text):
                writer.add(rows)
                rows.clear()
                writer.add_part(ids)
                continue
            if ids or (not rows and (writer.n_open or continues)):
                rows.append([*ids, tokenizer.eos_id])
            continues = False
        writer.add(rows)


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
