"""Build a folder of tokenised documents, for language models: shards of one stream of tokens, on all cores."""

import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.checkpoint import write_json
from clearformer.data.built.document_shards import Documents, DocumentShards
from clearformer.data.built.folder import BUILDING, INDEX, Index, Shard, list_files
from clearformer.data.built.pair_shards import counts_path, shard_name
from clearformer.data.corpora import StreamCorpora
from clearformer.data.parts import MAX_DOCUMENT, Unfinished, cut_place, is_finished, too_long
from clearformer.data.store import DocumentStore
from clearformer.data.tally import Skipped
from clearformer.data.tensor_file import TensorFileWriter, TensorSpec
from clearformer.data.text import store_text
from clearformer.data.workers import Workers, usable_threads
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.wording import count

SHARD_CHARS = 2**25  # characters per shard
SAMPLED = 2**26  # characters that the vocabulary is learnt from


def learn(data: StreamCorpora, text: TextConfig) -> Tokenizer:
    """Train a tokenizer on the beginning of the training text, or load the file of the recipe."""
    if text.file is not None:
        return Tokenizer.load(text.file)

    def lines() -> Iterator[str]:
        n_chars = 0
        for document in data.parts("train"):
            for line in document.splitlines(keepends=True):
                n_chars += len(line)
                if n_chars > SAMPLED:
                    return
                yield line

    return train_tokenizer(lines(), text)


def shards_of(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[Documents]:
    """Divide documents into shards of SHARD_CHARS characters or more.

    A shard ends with a document, unless this one has more than MAX_DOCUMENT characters: then it is cut, and continues
    in the next shard, to the same tokens.
    """
    number, shard, continues, n_chars, n_open = 0, list[str](), False, 0, 0
    for text in texts:
        shard.append(text)
        n_chars, n_open = n_chars + len(text), n_open + len(text)
        if n_chars < SHARD_CHARS:
            pass
        elif is_finished(text):
            yield Documents(number, shard, continues)
            number, shard, continues, n_chars = number + 1, [], False, 0
        elif n_open > MAX_DOCUMENT:
            if at := cut_place(tokenizer, text, len(text)):
                yield Documents(number, [*shard[:-1], Unfinished(text[:at])], continues)
                number, shard, continues, n_chars = number + 1, [Unfinished(text[at:])], True, len(text) - at
            elif n_chars > MAX_DOCUMENT + SHARD_CHARS:
                raise too_long(shard[0][:40])
        if is_finished(text):
            n_open = 0
    if shard:
        yield Documents(number, shard, continues)


def build(
    data: StreamCorpora, tokenizer: Tokenizer, folder: Path, tables: dict[str, Any], n_workers: int | None = None
) -> Index:
    """Write the shards that are missing, the other splits, and the index."""
    start = tokenizer.eos_id if data.joined else tokenizer.bos_id
    skipped, write, n_shards = Skipped(), DocumentShards(tokenizer, folder, start), 0

    def missing() -> Generator[Documents]:
        nonlocal n_shards
        for documents in shards_of(data.parts("train", skipped), tokenizer):
            n_shards += 1
            if not counts_path(folder, documents.number).exists():
                yield documents

    n = n_workers or usable_threads()
    pending = missing()
    first = list(islice(pending, 2))
    if n == 1 or len(first) < 2:
        for documents in (*first, *pending):
            write(documents)
    else:
        with Workers(write, n) as workers, closing(pending):
            for _ in workers.map(d for part in (first, pending) for d in part):
                pass
    return finish(data, tokenizer, folder, n_shards, tables, skipped)


def finish(
    data: StreamCorpora, tok: Tokenizer, folder: Path, n_shards: int, tables: dict[str, Any], skipped: Skipped
) -> Index:
    shards, n_chars, before = list[Shard](), 0, 0
    lengths = TensorFileWriter(folder / "lengths.safetensors", {"lengths": TensorSpec("int32", (1,))})
    try:
        for number in range(n_shards):
            facts = json.loads(counts_path(folder, number).read_text(encoding="utf-8"))
            shards.append(Shard(shard_name(number), facts["rows"], tuple(facts["tokens"]), before))
            n_open = facts.get("n_open", 0)
            before = n_open + (before if n_open == facts["tokens"][0] else 0) if n_open else 0
            n_chars += facts["n_chars"]
            store = DocumentStore(folder / f"{shard_name(number)}.safetensors")
            lengths.append("lengths", np.diff(store.offsets)[:, None])
        lengths.join()
    finally:
        if lengths.is_open:
            lengths.discard()
    has_test = data.test is not None or data.held_out_test > 0
    for split in ("test", "valid") if has_test else ("valid",):
        if len(store_text(data.parts(split), tok, folder / f"{split}.safetensors", not data.joined).tokens) == 0:
            raise DataError(f"the {split} split has no text", f"add more text, or set data.{split}.path")
    n_tokens, n_rows = (sum(v) for v in zip(*((shard.tokens[0], shard.rows - (shard.before > 0)) for shard in shards)))
    report = (f"train: {count(n_tokens, 'token')} in {count(n_rows, 'document')}", *skipped.describe())
    tables = {**tables, "start": tok.eos_id if data.joined else tok.bos_id}
    index = Index("documents", tuple(shards), n_chars, tables, report, list_files(folder))
    write_json(folder / INDEX, index.dump())
    (folder / BUILDING).unlink(missing_ok=True)
    return index
