"""Sentence pairs from files to a run folder, in two passes over the corpus.

    survey    clean, filter, count; sample the lines that a tokenizer learns from
    encode    clean, filter, split by source sentence, tokenise -> train, valid, test on disk

Everything streams: ten million lines need no more memory than ten thousand.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from struct import Struct
from tempfile import SpooledTemporaryFile
from typing import IO

from clearformer.checkpoint import write_json, write_text
from clearformer.data.corpora import PairCorpora
from clearformer.data.pairs import Example, Tally, posed, read_pairs
from clearformer.data.split import place
from clearformer.data.store import StoreWriter
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.text.tokenizer import SAMPLE

CHUNK = 8192  # pairs tokenised at a time
IN_MEMORY = 2**26  # bytes of the sample; a larger one goes to a temporary file
RECORD = Struct("<dII")  # the place of a pair, and the bytes of its two sides


@dataclass(frozen=True)
class Fractions:
    """How much of the training corpus is held out, by source sentence: the same sentences for every seed."""

    valid: float = 0.0
    test: float = 0.0

    def split_of(self, at: float) -> str:
        """The split of a sentence by its place in [0, 1)."""
        return "valid" if at < self.valid else "test" if at < self.valid + self.test else "train"


class Sample:
    """Pairs for a tokenizer to learn from: all of the first million lines, then fewer and fewer, as `thin` has it."""

    def __init__(self) -> None:
        self.file: IO[bytes] = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self.draw, self.n_pairs = Random(0).random, 0

    def __del__(self) -> None:
        self.file.close()

    def add(self, pair: Example, at: float) -> None:
        self.n_pairs += 1
        n_lines = 2 * self.n_pairs
        if n_lines <= SAMPLE or self.draw() * n_lines < SAMPLE:
            source, target = pair.source.encode(), pair.target.encode()
            self.file.write(RECORD.pack(at, len(source), len(target)) + source + target)

    def read(self, fractions: Fractions) -> Iterator[Example]:
        """Those that are trained on, in their order."""
        self.file.seek(0)
        while header := self.file.read(RECORD.size):
            at, n_source, n_target = RECORD.unpack(header)
            source, target = self.file.read(n_source), self.file.read(n_target)
            if fractions.split_of(at) == "train":
                yield Example(source.decode(), target.decode())


@dataclass
class PairSurvey:
    """What one pass over the training corpus tells: pairs and characters of their targets, filtered, and a sample."""

    n_pairs: int = 0
    n_chars: int = 0
    sample: Sample = field(default_factory=Sample)

    @property
    def mean_chars(self) -> float:
        return self.n_chars / self.n_pairs

    def fractions(self, data: PairCorpora) -> Fractions:
        """What is held out of the training corpus: nothing for a split that has a corpus of its own."""
        valid = data.fraction(self.n_pairs) if data.valid is None else 0.0
        return Fractions(valid, data.held_out_test if data.test is None else 0.0)


def survey_pairs(data: PairCorpora) -> PairSurvey:
    """The first pass."""
    survey = PairSurvey()
    for pair in data.filter.keep(data.source("train").read(), Tally()):
        survey.n_pairs += 1
        survey.n_chars += len(pair.target)
        survey.sample.add(pair, place(pair.source))
    return survey


def learn_tokenizers(data: PairCorpora, text: TextConfig, survey: PairSurvey) -> list[Tokenizer]:
    """One tokenizer for both languages, or one each; or the file that the recipe names."""
    if text.file is not None:
        return [Tokenizer.load(text.file)] * 2

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        for pair in survey.sample.read(survey.fractions(data)):
            both = posed(pair.source, data.prefix), pair.target
            yield from (both[side] for side in sides)

    if text.shared:
        return [train_tokenizer(lines((0, 1)), text, is_sample=True)] * 2
    return [train_tokenizer(lines((side,)), text, is_sample=True) for side in (0, 1)]


class PairEncoder:
    """Tokenises the pairs of one split, a chunk at a time."""

    def __init__(self, writer: StoreWriter, tokenizers: Sequence[Tokenizer], data: PairCorpora) -> None:
        self.writer, self.tokenizers, self.data = writer, tokenizers, data
        self.chunk: list[Example] = []

    def add(self, pair: Example, tally: Tally) -> None:
        self.chunk.append(pair)
        if len(self.chunk) == CHUNK:
            self.flush(tally)

    def flush(self, tally: Tally) -> None:
        if self.chunk:
            sources = [posed(pair.source, self.data.prefix) for pair in self.chunk]
            ids = self.tokenizers[0].encode(sources), self.tokenizers[-1].encode([pair.target for pair in self.chunk])
            self.writer.add(*self.data.filter.fit(*ids, tally))
            self.chunk = []


def encode_pairs(data: PairCorpora, tokenizers: Sequence[Tokenizer], fractions: Fractions, folder: Path) -> list[str]:
    """The second pass: every split in `folder`. Returns what became of the pairs, a line for each corpus."""
    size, mark = max(tok.vocab_size for tok in tokenizers), {"tokenizer": tokenizers[-1].fingerprint()}
    tally, own, valid_text, test_text = Tally(), Tally(), list[Example](), list[Example]()
    with ExitStack() as stack:  # closed the other way round: once train is there, everything is
        train, valid = (
            PairEncoder(stack.enter_context(StoreWriter(folder / f"{split}.safetensors", size, mark)), tokenizers, data)
            for split in ("train", "valid")
        )
        for pair in data.filter.keep(data.source("train").read(), tally):
            split = "train" if fractions == Fractions() else fractions.split_of(place(pair.source))
            if split == "train":
                train.add(pair, tally)
            elif split == "valid":
                valid_text.append(pair)
                valid.add(pair, tally)
            else:
                test_text.append(pair)
        train.flush(tally)
        if data.valid is not None:
            for pair in data.filter.keep(data.source("valid").read(), own):
                valid_text.append(pair)
                valid.add(pair, own)
        valid.flush(own if data.valid is not None else tally)
        if not valid_text:
            raise DataError("there is nothing to validate on", "give a validation file, or more pairs")
        write_json(folder / "valid.json", valid_text)
        write_test(data, test_text, folder)
    kept = f", {train.writer.count:,} of them to train on" if train.writer.count < tally.kept else ""
    reports = [] if data.valid is None else [f"valid: {own.describe()}"]
    return [*reports, f"train: {tally.describe()}{kept}"]


def write_test(data: PairCorpora, held_out: list[Example], folder: Path) -> None:
    """Keep the pairs to test on at the end, unfiltered where they have a file of their own: it may be gone by then."""
    own = data.source("test")
    if own is None and not held_out:
        return
    pairs = held_out if own is None else own.read()
    write_text(folder / "test.jsonl", "".join(f"{json.dumps(pair._asdict(), ensure_ascii=False)}\n" for pair in pairs))


def read_test(folder: Path) -> list[Example]:
    """The pairs that were kept to test on; nothing if there were none."""
    path = folder / "test.jsonl"
    return list(read_pairs(path, ("source", "target"))) if path.exists() else []
