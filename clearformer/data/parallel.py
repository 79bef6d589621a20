"""Prepare sentence pairs for a run, in two passes over the corpus.

    survey    clean, filter, count; sample the lines that the tokenizer is trained on
    encode    clean, filter, split by source sentence, tokenise -> train, valid, test on disk

Pairs are streamed in blocks (see pair_blocks.py): ten million lines need no more memory than ten thousand.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import SpooledTemporaryFile
from typing import IO

from clearformer.checkpoint import write_json, write_text
from clearformer.data.built.folder import is_built, read_index
from clearformer.data.corpora import PairCorpora
from clearformer.data.pair_blocks import RECORD, Fractions, PairEncoder, numbering, over_blocks, survey_block
from clearformer.data.pairs import Example, read_pairs, with_task_prefix
from clearformer.data.store import StoreWriter
from clearformer.data.tally import Tally
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.text.tokenizer import SAMPLE
from clearformer.wording import count

IN_MEMORY = 2**26  # maximum size of a sample in memory, in bytes; a larger sample is stored in a temporary file


class Sample:
    """Pairs to train a tokenizer on: all of the first million lines, then a decreasing fraction, as in `thin`."""

    def __init__(self) -> None:
        self.file: IO[bytes] = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self.draw, self.n_pairs = Random(0).random, 0

    def __del__(self) -> None:
        self.file.close()

    def add(self, record: bytes) -> None:
        self.n_pairs += 1
        n_lines = 2 * self.n_pairs
        if n_lines <= SAMPLE or self.draw() * n_lines < SAMPLE:
            self.file.write(record)

    def read(self, fractions: Fractions) -> Iterator[Example]:
        """Yield the sampled pairs that belong to the training split, in order."""
        self.file.seek(0)
        while header := self.file.read(RECORD.size):
            at, n_source, n_target = RECORD.unpack(header)
            source, target = self.file.read(n_source), self.file.read(n_target)
            if fractions.split_of(at) == "train":
                yield Example(source.decode(), target.decode())


@dataclass
class PairSurvey:
    """The number of training pairs that pass the filter, the characters in their targets, and a sample of the pairs."""

    n_pairs: int = 0
    n_chars: int = 0
    sample: Sample = field(default_factory=Sample)

    @property
    def mean_chars(self) -> float:
        return self.n_chars / self.n_pairs

    def fractions(self, data: PairCorpora) -> Fractions:
        """Return the fractions of the training corpus to hold out; 0 for a split that has files."""
        valid = data.fraction(self.n_pairs) if data.valid is None else 0.0
        return Fractions(valid, data.held_out_test if data.test is None else 0.0)


def survey_pairs(data: PairCorpora) -> PairSurvey:
    """Make the first pass over the training corpus: filter, count and sample its pairs."""
    survey, source = PairSurvey(), data.source("train")
    if is_built(source.path):
        index = read_index(source.path)
        return PairSurvey(index.n_rows, index.n_chars)
    with closing(over_blocks(source, data.filter, survey_block, Tally())) as blocks:
        for n_chars, records in blocks:
            survey.n_pairs += len(records)
            survey.n_chars += n_chars
            for record in records:
                survey.sample.add(record)
    return survey


def learn_tokenizers(data: PairCorpora, text: TextConfig, survey: PairSurvey) -> list[Tokenizer]:
    """Train one tokenizer for both languages, or one for each, or load the tokenizer file of the recipe."""
    if text.file is not None:
        return [Tokenizer.load(text.file)] * 2

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        for pair in survey.sample.read(survey.fractions(data)):
            both = with_task_prefix(pair.source, data.prefix), pair.target
            yield from (both[side] for side in sides)

    if text.shared:
        return [train_tokenizer(lines((0, 1)), text, is_sample=True)] * 2
    return [train_tokenizer(lines((side,)), text, is_sample=True) for side in (0, 1)]


def encode_pairs(data: PairCorpora, tokenizers: Sequence[Tokenizer], fractions: Fractions, folder: Path) -> list[str]:
    """Make the second pass: write every split into `folder`. Returns the counts of each corpus, with examples."""
    size, metadata = max(tok.vocab_size for tok in tokenizers), {"tokenizer": tokenizers[-1].fingerprint()}
    tally, valid_tally, valid_text, test_text = Tally(), Tally(), list[Example](), list[Example]()
    with ExitStack() as stack:  # closed in reverse order: once train exists, everything does
        train, valid = (
            stack.enter_context(StoreWriter(folder / f"{split}.safetensors", size, metadata))
            for split in ("train", "valid")
        )
        passes = [("train", fractions, tally)]
        if data.valid is not None:
            passes.append(("valid", Fractions(valid=1.0), valid_tally))
        for split, parts, counts in passes:
            encoder = PairEncoder(tokenizers, data.filter, data.prefix, parts)
            with closing(over_blocks(data.source(split), data.filter, encoder, counts)) as blocks:
                for block in blocks:
                    train.add_packed(*block.train)
                    valid.add_packed(*block.valid)
                    valid_text += block.valid_text
                    test_text += block.test_text
        if not valid_text:
            raise DataError("no pairs are left for validation", "add a validation file with --valid, or more pairs")
        write_json(folder / "valid.json", valid_text)
        write_test(data, test_text, folder)
    training = f"; {count(train.count, 'pair')} for training" if train.count < tally.kept else ""
    reports = [f"train: {tally.describe()}{training}", *tally.examples.lines(*numbering(data.source("train")))]
    if data.valid is None:
        return reports
    examples = valid_tally.examples.lines(*numbering(data.source("valid")))
    return [f"valid: {valid_tally.describe()}", *examples, *reports]


def write_test(data: PairCorpora, held_out: list[Example], folder: Path) -> None:
    """Save the test pairs, since their file may be gone at the end of the run. Pairs from a file are not filtered."""
    source = data.source("test")
    if source is None and not held_out:
        return
    pairs = held_out if source is None else source.read()
    write_text(folder / "test.jsonl", "".join(f"{json.dumps(pair._asdict(), ensure_ascii=False)}\n" for pair in pairs))


def read_test(folder: Path) -> list[Example]:
    """Return the test pairs saved by `write_test`; [] if there are none."""
    path = folder / "test.jsonl"
    return list(read_pairs(path, ("source", "target"))) if path.exists() else []
