"""Files to documents, and documents to one stream of tokens on disk: what a language model is trained on.

    TextSource(path="play.txt")                                     the whole file, every space and line of it
    TextSource(path="news.txt.gz", documents="paragraph")           blank lines divide documents
    TextSource(path=["a.jsonl", "b.jsonl"], column="text")          one JSON object a line, each a document

Files may be gzipped. Text is UTF-8, CR LF becomes LF, and nothing else is changed: what is to become of white space is
for the tokenizer to say.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from clearformer.config import Config
from clearformer.data.sources import json_text, read_ended, read_objects, require_file, some
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.errors import DataError
from clearformer.text import Tokenizer

CHUNK = 2**22  # characters tokenised at a time


class TextSource(Config):
    """Where documents lie and how to read them."""

    path: Path | Annotated[tuple[Path, ...], Field(min_length=1)] = Field(
        description="one .txt or .jsonl file, or a list of them"
    )
    column: str = Field("text", description="the key of the JSON objects whose value is the text")
    documents: Literal["file", "paragraph", "line"] = Field(
        "file", description="what one document is; the text of a JSON object counts as a file of its own"
    )

    @property
    def is_collection(self) -> bool:
        """Whether a file holds many documents."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        return self.documents != "file" or any(kind_of(path) == ".jsonl" for path in paths)

    def read(self) -> Generator[str]:
        """Stream the documents in order. A wrong path or kind is refused at once, a bad line when it is reached."""
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        for path in paths:
            require_file(path)
            if kind_of(path) not in (".txt", ".jsonl"):
                raise DataError(
                    f"{path}: a file that ends in `{kind_of(path)}` is of no known kind", "use .txt or .jsonl"
                )
        return some(paths[0], self._read(paths), "document")

    def _read(self, paths: Iterable[Path]) -> Generator[str]:
        divide = {"file": whole, "paragraph": paragraphs, "line": single_lines}[self.documents]
        for path in paths:
            with closing(read_texts(path, self.column)) as texts:
                for lines in texts:
                    yield from divide(line.replace("\r\n", "\n") for line in lines)


def read_texts(path: Path, column: str) -> Generator[Iterator[str]]:
    """The lines of a file, with their ends; or those of the text in each of its JSON objects."""
    if kind_of(path) == ".jsonl":
        with closing(read_objects(path)) as rows:
            for where, row in rows:
                if row is not None:
                    yield StringIO(json_text(row, column, where), newline="\n")
    else:
        with closing(read_ended(path)) as lines:
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


def kind_of(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def store_text(documents: Iterable[str], tokenizer: Tokenizer, path: Path, bos: bool = False) -> DocumentStore:
    """Tokenise documents and lay them end to end on disk, each ended by EOS; those without a token are left out.

    A document begins after EOS, as in GPT-2's stream, or, with `bos`, after BOS. It is tokenised in one piece, at some
    hundred bytes of memory a token: a file of gigabytes is better read by paragraphs.
    """
    start_id = tokenizer.bos_id if bos else tokenizer.eos_id
    metadata = {"tokenizer": tokenizer.fingerprint()}
    with DocumentWriter(path, tokenizer.vocab_size, start_id, metadata) as writer:
        for texts in chunks(documents, CHUNK):
            writer.add([[*ids, tokenizer.eos_id] for ids in tokenizer.encode(texts) if ids])
        return writer.close()


def chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of texts that reach `size` characters together, the last excepted."""
    chunk: list[str] = []
    held = 0
    for text in texts:
        chunk.append(text)
        held += len(text)
        if held >= size:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk
