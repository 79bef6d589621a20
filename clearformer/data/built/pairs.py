"""Build a folder of tokenised pairs: learn the vocabulary from a sample, then tokenise the corpus once, on all cores.

`train` makes two passes over a corpus, because it chooses its settings from the whole; here the number of lines and a
sample suffice, and every worker reads, tokenises and writes by itself.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from clearformer.checkpoint import write_json
from clearformer.data.built.folder import BUILDING, INDEX, Index, Shard, list_files
from clearformer.data.built.pair_shards import PairShards, counts_path, from_json, shard_name
from clearformer.data.built.pieces import Piece, is_plain, line_edges, pair_pieces
from clearformer.data.corpora import PairCorpora
from clearformer.data.pair_blocks import (
    Fractions,
    PairEncoder,
    PairParser,
    as_record,
    has_lines,
    n_bytes,
    numbering,
    over_blocks,
)
from clearformer.data.pairs import Example, PairSource, with_task_prefix
from clearformer.data.parallel import Sample, write_test
from clearformer.data.store import PairStore, StoreWriter
from clearformer.data.tally import Tally
from clearformer.data.tensor_file import TensorFileWriter, TensorSpec
from clearformer.data.workers import Workers, usable_threads
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.text.packed import MAX_WORDS

SAMPLED = 200_000  # pairs that the vocabulary is learnt from, in SLICES slices of the corpus
SLICES = 25
WORDS = 2**20  # in the dictionaries of all workers together, which need about 200 MB


def estimated_lines(source: PairSource) -> int:
    """The number of lines of a corpus, counted in plain files, and otherwise estimated from its size."""
    paths = source.path if isinstance(source.path, tuple) else (source.path,)
    with closing(source.read()) as pairs:
        next(pairs)  # raises the errors of a wrong file type and of an empty file
    if has_lines(source) and all(map(is_plain, paths)):
        return line_edges(paths[0])[1]
    return max(1, sum(map(n_bytes, paths)) // 60)


def sample_pairs(data: PairCorpora, n_lines: int) -> Iterator[Example]:
    """Yield about SAMPLED pairs that pass the filter, from pieces evenly spaced in the corpus."""
    pieces = list(pair_pieces(data.source("train"))) if n_lines > SAMPLED else None
    source = data.source("train")
    if pieces is None or not pieces[0].spans:
        with closing(source.read()) as pairs:
            yield from islice(data.filter.passing(pairs, Tally()), SAMPLED)
        return
    parse = PairParser(source)
    chosen = [pieces[i * len(pieces) // SLICES] for i in range(SLICES)]
    for n, piece in enumerate(chosen):
        blocks = list(islice(piece.blocks(), n % 16, n % 16 + 1))
        for block in blocks:
            yield from data.filter.passing(parse(block), Tally())


def learn(data: PairCorpora, text: TextConfig, n_lines: int, fractions: Fractions) -> list[Tokenizer]:
    """Train the tokenizers on a sample of the training pairs, or load the file of the recipe."""
    if text.file is not None:
        return [Tokenizer.load(text.file)] * 2
    sample = Sample()
    for pair in sample_pairs(data, n_lines):
        sample.add(as_record(pair))

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        for pair in sample.read(fractions):
            both = with_task_prefix(pair.source, data.prefix), pair.target
            yield from (both[side] for side in sides)

    sides: tuple[tuple[int, ...], ...] = ((0, 1),) if text.shared else ((0,), (1,))
    learnt = [train_tokenizer(lines(side), text, is_sample=True) for side in sides]
    return [learnt[0], learnt[-1]]


def build_shards(
    data: PairCorpora, tokenizers: Sequence[Tokenizer], fractions: Fractions, folder: Path, n_workers: int | None = None
) -> int:
    """Write the shards that are missing, and return the number of all shards."""
    size, metadata = max(tok.vocab_size for tok in tokenizers), {"tokenizer": tokenizers[-1].fingerprint()}
    source = data.source("train")
    n = n_workers or usable_threads()
    # A dictionary that is emptied learns its frequent words again: a third of the time, where there are many names.
    encode = PairEncoder(tokenizers, data.filter, data.prefix, fractions, max(MAX_WORDS, WORDS // n))
    write = PairShards(PairParser(source), data.filter, encode, folder, size, metadata)
    n_shards = 0

    def missing() -> Iterator[Piece]:
        nonlocal n_shards
        for piece in pair_pieces(source):
            n_shards += 1
            if not counts_path(folder, piece.number).exists():
                yield piece

    if n == 1 or is_small(source):
        for piece in missing():
            write(piece)
        return n_shards
    with Workers(write, n) as workers:
        for _ in workers.map(missing()):
            pass
    return n_shards


def is_small(source: Any) -> bool:
    return sum(map(n_bytes, source.path if isinstance(source.path, tuple) else (source.path,))) < 2**22


def finish(data: PairCorpora, tokenizers: Sequence[Tokenizer], folder: Path, n_shards: int, tables: dict) -> Index:
    """Write the lengths, the other splits and the index, once all shards are there."""
    tally, shards, n_chars = Tally(), list[Shard](), 0
    valid_text, test_text = list[Example](), list[Example]()
    for number in range(n_shards):
        facts = json.loads(counts_path(folder, number).read_text(encoding="utf-8"))
        tally.add(from_json(facts["tally"]))
        n_chars += facts["n_chars"]
        valid_text += [Example(*pair) for pair in facts["valid"]]
        test_text += [Example(*pair) for pair in facts["test"]]
        if facts["rows"]:
            shards.append(Shard(shard_name(number), facts["rows"], tuple(facts["tokens"])))
    data.filter.require_any(tally)
    if not shards:
        raise DataError("no pairs are left for training", "add more pairs, or a validation file with --valid")
    write_lengths(folder, shards)
    valid_text = write_valid(data, tokenizers, folder, valid_text)
    if not valid_text:
        raise DataError("no pairs are left for validation", "add a validation file with --valid, or more pairs")
    write_json(folder / "valid.json", valid_text)
    write_test(data, test_text, folder)
    examples = tally.examples.lines(*numbering(data.source("train")))
    index = Index(
        "pairs", tuple(shards), n_chars, tables, (f"train: {tally.describe()}", *examples), list_files(folder)
    )
    write_json(folder / INDEX, index.dump())
    (folder / BUILDING).unlink(missing_ok=True)
    return index


def write_lengths(folder: Path, shards: Iterable[Shard]) -> None:
    file = TensorFileWriter(folder / "lengths.safetensors", {"lengths": TensorSpec("int32", (2,))})
    try:
        for shard in shards:
            file.append("lengths", PairStore(folder / f"{shard.name}.safetensors").lengths)
        file.join()
    finally:
        if file.is_open:
            file.discard()


def write_valid(
    data: PairCorpora, tokenizers: Sequence[Tokenizer], folder: Path, held_out: list[Example]
) -> list[Example]:
    """Write valid.safetensors from the validation file, or from the pairs held out. Returns their texts."""
    encode = PairEncoder(tokenizers, data.filter, data.prefix, Fractions(valid=1.0))
    texts: list[Example] = []
    with StoreWriter(folder / "valid.safetensors", max(tok.vocab_size for tok in tokenizers)) as writer:
        if data.valid is None:
            results: Iterable[Any] = [encode(held_out, numbered(held_out))] if held_out else []
        else:
            results = over_blocks(data.source("valid"), data.filter, encode, Tally())
        for block in results:
            texts += block.valid_text
            writer.add_packed(*block.valid)
        if not writer.count:
            raise DataError("no pairs are left for validation", "add a validation file with --valid, or more pairs")
    return texts


def numbered(pairs: Sequence[Example]) -> Tally:
    return Tally(kept=len(pairs), numbers=list(range(1, len(pairs) + 1)))
