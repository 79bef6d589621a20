"""Tokenise documents into shards: the work of a worker. Nothing here imports torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clearformer.data.built.pair_shards import counts_path, shard_name, write_facts
from clearformer.data.store import DocumentWriter
from clearformer.data.text import write_documents
from clearformer.text import Tokenizer


class Documents(NamedTuple):
    """The documents of one shard."""

    number: int
    texts: list[str]
    continues: bool = False
    """Whether the first one was begun in the shard before."""


@dataclass(frozen=True)
class DocumentShards:
    """Writes the shard of some documents: first its tokens, then its counts, which say that it is complete."""

    tokenizer: Tokenizer
    folder: Path
    start_id: int

    def __call__(self, documents: Documents) -> str:
        tok = self.tokenizer
        path = self.folder / f"{shard_name(documents.number)}.safetensors"
        with DocumentWriter(path, tok.vocab_size, self.start_id, {"tokenizer": tok.fingerprint()}) as writer:
            write_documents(writer, tok, documents.texts, documents.continues)
            writer.break_off()
            facts = {"rows": writer.count, "tokens": [writer._ends["tokens"]], "n_open": writer.n_open}
        write_facts(counts_path(self.folder, documents.number), {**facts, "n_chars": sum(map(len, documents.texts))})
        return path.stem
