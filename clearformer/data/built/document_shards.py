"""Tokenise documents into shards: the work of a worker. Nothing here imports torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clearformer.data.built.pair_shards import counts_path, shard_name, write_facts
from clearformer.data.store import DocumentWriter
from clearformer.data.text import chunks
from clearformer.text import Tokenizer

SENT = 2**22  # characters tokenised at a time


class Documents(NamedTuple):
    """The documents of one shard."""

    number: int
    texts: list[str]


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
            for texts in chunks(documents.texts, SENT):
                writer.add([[*ids, tok.eos_id] for ids in tok.encode(texts) if ids])
            n_tokens, n_rows = writer._ends["tokens"], writer.count
        n_chars = sum(map(len, documents.texts))
        write_facts(
            counts_path(self.folder, documents.number), {"rows": n_rows, "tokens": [n_tokens], "n_chars": n_chars}
        )
        return path.stem
