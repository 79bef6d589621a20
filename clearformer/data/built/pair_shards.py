"""Tokenise pieces of a corpus of pairs into shards: the work of a worker. Nothing here imports torch."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearformer.data.built.pieces import Piece
from clearformer.data.pair_blocks import PairEncoder, PairParser
from clearformer.data.pairs import Example, Filter
from clearformer.data.store import StoreWriter
from clearformer.data.tally import Examples, Tally
from clearformer.data.tensor_file import writing


@dataclass(frozen=True)
class PairShards:
    """Writes the shard of a piece: first its pairs, then its counts, which say that it is complete."""

    parse: PairParser
    filter: Filter
    encode: PairEncoder
    folder: Path
    vocab_size: int
    metadata: dict[str, str]

    def __call__(self, piece: Piece) -> str:
        tally, held_out, n_chars = Tally(), {"valid": list[Example](), "test": list[Example]()}, 0
        path = self.folder / f"{shard_name(piece.number)}.safetensors"
        writer = StoreWriter(path, self.vocab_size, self.metadata)
        try:
            for block in piece.blocks():
                counts = Tally()
                pairs = list(self.filter.passing(self.parse(block), counts))
                encoded = self.encode(pairs, counts)
                counts.next_block()
                tally.add(counts)
                writer.add_packed(*encoded.train)
                held_out["valid"] += encoded.valid_text
                held_out["test"] += encoded.test_text
                n_chars += sum(len(pair.target) for pair in pairs)
            tokens = [*writer._ends.values()]
            if writer.count:
                writer._join()
        finally:
            if writer._file.is_open:
                writer._file.discard()
        facts = {"rows": writer.count, "tokens": tokens, "n_chars": n_chars, "tally": as_json(tally), **held_out}
        write_facts(counts_path(self.folder, piece.number), facts)
        return path.stem


def shard_name(number: int) -> str:
    return f"train-{number:05d}"


def counts_path(folder: Path, number: int) -> Path:
    return folder / f"{shard_name(number)}.json"


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write JSON under another name, then rename it: checkpoint.py does the same, but imports torch."""
    draft = path.with_suffix(".draft")
    with writing(path):
        draft.write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")
        draft.replace(path)


def as_json(tally: Tally) -> dict[str, Any]:
    facts = asdict(tally)
    return {name: facts[name] for name in ("kept", "empty", "too_long", "unequal", "cut", "split", "added")} | {
        "examples": tally.examples.shown
    }


def from_json(facts: dict[str, Any]) -> Tally:
    shown = {outcome: [(int(n), str(text)) for n, text in rows] for outcome, rows in facts.pop("examples").items()}
    return Tally(**facts, examples=Examples(shown))
