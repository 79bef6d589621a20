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
from clearformer.data.sources import Example, Tally, posed, read_pairs
from clearformer.data.split import place
from clearformer.data.store import PairStore, StoreWriter
from clearformer.errors import DataError
from clearformer.recipe import Recipe
from clearformer.registry import resolve
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.distributed import World
from clearformer.training.journal import console

CHUNK = 8192  # pairs tokenised at a time
TOKENIZERS = ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json")
PREPARED = (
    *("train.safetensors", "valid.safetensors", "test.safetensors"),
    *("train.json", "valid.json", "test.json", "test.jsonl"),
)
CLASSES = "classes.json"


@dataclass(frozen=True)
class Shares:
    """How much of the training corpus is held out, by source sentence: the same sentences for every seed."""

    valid: float = 0.0
    test: float = 0.0

    def split_of(self, source: str) -> str:
        at = place(source)
        return "valid" if at < self.valid else "test" if at < self.valid + self.test else "train"


@dataclass(frozen=True)
class Corpus:
    """What training reads: tokenizers, tokenised splits, and the validation sentences as text."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: PairStore
    valid: PairStore
    valid_text: list[Example]
    start_id: int  # what the decoder reads first

    def batch(self, store: PairStore, rows: np.ndarray) -> Batch:
        tok = self.target_tokenizer
        return pad_batch(*store.rows(rows), tok.pad_id, self.start_id, tok.eos_id)


def prepare(recipe: Recipe, run: RunFolder, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> Corpus:
    """Make what training reads, or find it again. `tokenizers` are those of a model to go on from."""
    if not is_prepared(run):
        shares = shares_of(recipe)
        source, target = tokenizers or learn_tokenizers(recipe, shares)
        save_tokenizers(run, source, target)
        keep_test(recipe, shares, run)
        for split in ("valid", "train"):  # train comes last: once it is there, everything is
            encode_split(recipe, split, shares, source, target, run)
    source, target = load_tokenizers(run)
    text = [Example(*pair) for pair in json.loads((run.data / "valid.json").read_text(encoding="utf-8"))]
    train, valid = (PairStore(run.data / f"{split}.safetensors") for split in ("train", "valid"))
    return Corpus(source, target, train, valid, text, start_id(recipe, target))


def start_id(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """The token that a decoder of the recipe's kind begins with: BOS, unless its class says otherwise, as T5's does."""
    role = getattr(resolve("model", recipe.model.kind), "begins_with", "bos")
    return int(getattr(tokenizer, f"{role}_id"))


def discard(run: RunFolder) -> None:
    """Forget a preparation that another training left, so that the corpus is read again."""
    for name in (*TOKENIZERS, CLASSES, *(f"data/{name}" for name in PREPARED)):
        (run.path / name).unlink(missing_ok=True)


def is_prepared(run: RunFolder) -> bool:
    return (run.data / "train.safetensors").exists()


def shares_of(recipe: Recipe) -> Shares:
    """What is held out of the training corpus: nothing for a split that has a corpus of its own."""
    data = recipe.data
    valid = data.share(sum(1 for _ in examples(recipe, "train", Shares(), Tally()))) if data.valid is None else 0.0
    return Shares(valid, data.held_out_test if data.test is None else 0.0)


def examples(recipe: Recipe, split: str, shares: Shares, tally: Tally) -> Iterator[Example]:
    """The filtered pairs of a split: its own corpus, or its share of the training corpus."""
    source = recipe.data.source("train" if getattr(shares, split, 0.0) else split)
    assert source is not None
    is_shared = split == "train" or getattr(shares, split, 0.0) > 0
    for example in recipe.data.filter.keep(source.read(), tally):
        if not is_shared or shares.split_of(example.source) == split:
            yield example


def keep_test(recipe: Recipe, shares: Shares, run: RunFolder) -> None:
    """Copy the pairs to test on at the end, unfiltered where they have a file of their own: it may be gone by then."""
    own = recipe.data.source("test")
    if own is None and not shares.test:
        return
    pairs = examples(recipe, "test", shares, Tally()) if own is None else own.read()
    lines = (json.dumps(pair._asdict(), ensure_ascii=False) for pair in pairs)
    write_text(run.data / "test.jsonl", "".join(f"{line}\n" for line in lines))


def test_pairs(run: RunFolder) -> list[Example]:
    """What `keep_test` kept; nothing if there was nothing."""
    kept = run.data / "test.jsonl"
    return list(read_pairs(kept, ("source", "target"))) if kept.exists() else []


def learn_tokenizers(recipe: Recipe, shares: Shares) -> tuple[Tokenizer, Tokenizer]:
    """One tokenizer for both languages, or one each; or the file that the recipe names."""

    def lines(sides: tuple[int, ...]) -> Iterator[str]:
        return (
            example.target if side else posed(example.source, recipe.data.prefix)
            for example in examples(recipe, "train", shares, Tally())
            for side in sides
        )

    if recipe.text.file is not None:
        given = Tokenizer.load(recipe.text.file)
        return given, given
    if recipe.text.shared:
        both = train_tokenizer(lines((0, 1)), recipe.text)
        return both, both
    source, target = (train_tokenizer(lines((side,)), recipe.text) for side in (0, 1))
    return source, target


def encode_split(
    recipe: Recipe, split: str, shares: Shares, source: Tokenizer, target: Tokenizer, run: RunFolder
) -> None:
    tally = Tally()
    pairs = examples(recipe, split, shares, tally)
    text: list[Example] = []
    size = max(source.vocab_size, target.vocab_size)
    with StoreWriter(run.data / f"{split}.safetensors", size, {"tokenizer": target.fingerprint()}) as writer:
        while chunk := list(islice(pairs, CHUNK)):
            sources = [posed(pair.source, recipe.data.prefix) for pair in chunk]
            ids = source.encode(sources), target.encode([pair.target for pair in chunk])
            writer.add(*recipe.data.filter.fit(*ids, tally))
            if split == "valid":
                text += chunk
        if split == "valid":
            if not text:
                raise DataError("there is nothing to validate on", "give a validation file, or more pairs")
            write_json(run.data / "valid.json", text)
    kept = f", {writer.count:,} of them for {split}" if writer.count < tally.kept else ""
    console.print(f"{split}: {tally.describe()}{kept}")


def save_tokenizers(run: RunFolder, source: Tokenizer, target: Tokenizer) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    if source.fingerprint() == target.fingerprint():
        write_text(run.path / "tokenizer.json", target.to_json())
    else:
        write_text(run.path / "source.tokenizer.json", source.to_json())
        write_text(run.path / "target.tokenizer.json", target.to_json())


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
