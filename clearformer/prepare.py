"""From a corpus to tokenised pairs on disk: the first half of a training.

    read -> clean -> filter -> split by source sentence -> train a tokenizer -> encode -> run/data/*.safetensors

Everything streams: ten million lines need no more memory than ten thousand. A run folder that was prepared before is
used as it is, so that a resumed run sees exactly the same pairs, whatever became of the files they came from.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from clearformer.checkpoint import RunFolder, write_json, write_text
from clearformer.data.batch import Batch
from clearformer.data.collate import TokenBatches, pad_batch
from clearformer.data.sources import Example, Tally, read_pairs
from clearformer.data.split import place
from clearformer.data.store import PairStore, StoreWriter
from clearformer.errors import DataError
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.distributed import World
from clearformer.training.journal import console

CHUNK = 8192  # pairs tokenised at a time
SPLITS = ("valid", "train")


@dataclass(frozen=True)
class Corpus:
    """What training reads: tokenizers, tokenised splits, and the validation sentences as text."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: PairStore
    valid: PairStore
    valid_text: list[Example]

    def batch(self, store: PairStore, rows: np.ndarray) -> Batch:
        tok = self.target_tokenizer
        return pad_batch(*store.rows(rows), tok.pad_id, tok.bos_id, tok.eos_id)


def prepare(recipe: Recipe, run: RunFolder, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> Corpus:
    """Make what training reads, or find it again. `tokenizers` are those of a model to go on from."""
    if not is_prepared(run):
        fraction = 0.0 if recipe.data.valid is not None else recipe.data.share(count_pairs(recipe))
        source, target = tokenizers or learn_tokenizers(recipe, fraction)
        save_tokenizers(run, source, target)
        if fraction and recipe.data.held_out_test:
            pairs = (
                json.dumps(pair._asdict(), ensure_ascii=False) for pair in examples(recipe, "test", fraction, Tally())
            )
            write_text(run.data / "test.jsonl", "".join(f"{pair}\n" for pair in pairs))
        for split in SPLITS:  # train comes last: once it is there, everything is
            encode_split(recipe, split, fraction, source, target, run)
    source, target = load_tokenizers(run)
    text = [Example(*pair) for pair in json.loads((run.data / "valid.json").read_text(encoding="utf-8"))]
    return Corpus(
        source, target, PairStore(run.data / "train.safetensors"), PairStore(run.data / "valid.safetensors"), text
    )


def discard(run: RunFolder) -> None:
    """Forget a preparation that another training left, so that the corpus is read again."""
    for name in ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json", "data/train.safetensors"):
        (run.path / name).unlink(missing_ok=True)


def is_prepared(run: RunFolder) -> bool:
    return (run.data / "train.safetensors").exists()


def test_pairs(recipe: Recipe, run: RunFolder) -> list[Example]:
    """The pairs to test on at the end: the recipe's own, or those held out; none if there are neither."""
    own = recipe.data.source("test")
    if own is not None:
        return list(own.read())
    kept = run.data / "test.jsonl"
    return list(read_pairs(kept, ("source", "target"))) if kept.exists() else []


def count_pairs(recipe: Recipe) -> int:
    return sum(1 for _ in examples(recipe, "train", 0.0, Tally()))


def examples(recipe: Recipe, split: str, fraction: float, tally: Tally) -> Iterator[Example]:
    """The filtered pairs of a split. With a fraction, validation and test are held out of the training corpus."""
    source = recipe.data.source("train" if fraction else split)
    assert source is not None
    for example in recipe.data.filter.keep(source.read(), tally):
        if part_of(example.source, fraction, recipe.data.held_out_test if fraction else 0.0) in (split, None):
            yield example


def part_of(source: str, valid: float, test: float) -> str | None:
    """The split of a sentence when these shares are held out, the same for every seed; None when there is no share."""
    at = place(source)
    return None if not valid + test else "valid" if at < valid else "test" if at < valid + test else "train"


def learn_tokenizers(recipe: Recipe, fraction: float) -> tuple[Tokenizer, Tokenizer]:
    """One tokenizer for both languages, or one each; or the file that the recipe names."""

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        return (example[side] for example in examples(recipe, "train", fraction, Tally()) for side in sides)

    if recipe.text.file is not None:
        given = Tokenizer.load(recipe.text.file)
        return given, given
    if recipe.text.shared:
        both = train_tokenizer(lines((0, 1)), recipe.text, strict=recipe.text.strict)
        return both, both
    source, target = (train_tokenizer(lines((side,)), recipe.text, strict=recipe.text.strict) for side in (0, 1))
    return source, target


def encode_split(
    recipe: Recipe, split: str, fraction: float, source: Tokenizer, target: Tokenizer, run: RunFolder
) -> None:
    tally = Tally()
    pairs = examples(recipe, split, fraction, tally)
    text: list[Example] = []
    size = max(source.vocab_size, target.vocab_size)
    with StoreWriter(run.data / f"{split}.safetensors", size, {"tokenizer": target.fingerprint()}) as writer:
        while chunk := list(islice(pairs, CHUNK)):
            ids = source.encode([pair.source for pair in chunk]), target.encode([pair.target for pair in chunk])
            writer.add(*recipe.data.filter.fit(*ids, tally))
            if split == "valid":
                text += chunk
        if split == "valid":
            if not text:
                raise DataError("there is nothing to validate on", "give a validation file, or more pairs")
            write_json(run.data / "valid.json", text)
    kept = f", {writer.count:,} of them for {split}" if fraction else ""
    console.print(f"{split}: {tally.describe()}{kept}")


def save_tokenizers(run: RunFolder, source: Tokenizer, target: Tokenizer) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    if source.fingerprint() == target.fingerprint():
        target.save(run.path / "tokenizer.json")
    else:
        source.save(run.path / "source.tokenizer.json")
        target.save(run.path / "target.tokenizer.json")


def load_tokenizers(run: RunFolder) -> tuple[Tokenizer, Tokenizer]:
    shared = run.path / "tokenizer.json"
    if shared.exists():
        both = Tokenizer.load(shared)
        return both, both
    return Tokenizer.load(run.path / "source.tokenizer.json"), Tokenizer.load(run.path / "target.tokenizer.json")


class CorpusSteps:
    """The trainer's view of a corpus: for each step of each epoch, the micro-batches of every rank."""

    def __init__(self, corpus: Corpus, tokens: int, seed: int, accumulation: int, world: World) -> None:
        self.corpus, self.group = corpus, accumulation * world.size
        self.batches = TokenBatches(corpus.train.lengths, tokens, seed)
        self.plan = lru_cache(maxsize=2)(lambda epoch: self.batches.steps(epoch, self.group))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[Batch], int]:
        group = self.plan(epoch)[position]
        lengths = self.corpus.train.lengths
        count = sum(int(lengths[rows, 1].sum()) + len(rows) for rows in group)  # EOS is counted too
        return [self.corpus.batch(self.corpus.train, rows) for rows in world.share(group)], count
