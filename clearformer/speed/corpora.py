"""The texts to train on: real corpora if the user has them, otherwise generated ones of the same size.

    pairs        Multi30k (29,000 pairs) or the bundled English–Hindi grammar       Tatoeba or random pairs
    text         Penn Treebank or random words of the same number and vocabulary    random words for GPT-2

Random words follow Zipf's law, p(rank r) ∝ 1 / (r + 10), so that vocabularies and batches are shaped as in real text.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clearformer.speed.context import Context

MULTI30K, TATOEBA = "multi30k/raw/train", "tatoeba-eng-fra/fra.txt.gz"
PTB = "ptb/ptb.train.txt.gz"


def small_pairs(context: Context) -> tuple[str, str]:
    """The argument of --pairs with 29,000 pairs, and the name of the corpus."""
    root = Path(context.data or "")
    files = [root / f"{MULTI30K}.{side}.gz" for side in ("en", "de")]
    if context.data and all(file.exists() for file in files):
        return ",".join(map(str, files)), "Multi30k"
    path = context.folder("corpora", "bundled.tsv")
    if not path.exists():
        from clearformer.bundled.corpus import generate

        write(path, (f"{pair.english}\t{pair.hindi}\n" for pair in generate(29_000)))
    return str(path), "29,000 pairs of the bundled grammar"


def demo_pairs(context: Context) -> tuple[str, str]:
    """The folder of the corpus that `clearformer demo` trains on."""
    folder = context.folder("corpora", "demo")
    if not folder.exists():
        from clearformer.bundled.corpus import splits, write_corpus

        write_corpus(splits(train=24_000), folder)
    return str(folder), "24,000 pairs of the bundled grammar"


def large_pairs(context: Context) -> tuple[str, str]:
    """The argument of --pairs with about 200,000 pairs, and the name of the corpus."""
    source = Path(context.data or "", TATOEBA)
    path = context.folder("corpora", "large.tsv")
    if context.data and source.exists():
        if not path.exists():
            with gzip.open(source, "rt", encoding="utf-8") as lines:
                write(path, ("\t".join(line.split("\t")[:2]).rstrip("\n") + "\n" for line in lines))
        return str(path), "Tatoeba"
    return random_pairs(context, 200_000), "200,000 random pairs"


def random_pairs(context: Context, n: int) -> str:
    """A file of n pairs: sentences of 4 to 16 words, and their reversals."""
    path = context.folder("corpora", f"random-{n}.tsv")
    if not path.exists():
        rng = np.random.default_rng(0)
        words = vocabulary(rng, 30_000)
        lengths = rng.integers(4, 17, n)
        drawn = iter(draw(rng, words, int(lengths.sum())))
        sentences = ([next(drawn) for _ in range(length)] for length in lengths.tolist())
        write(path, (f"{' '.join(s)}\t{' '.join(reversed(s))}\n" for s in sentences))
    return str(path)


def treebank(context: Context) -> tuple[str, str]:
    """A text of 930,000 words with a vocabulary of 10,000, one sentence per line, and the name of the corpus."""
    real = Path(context.data or "", PTB)
    if context.data and real.exists():
        return str(real), "Penn Treebank"
    return random_text(context, 10_000, 930_000), "930,000 random words"


def random_text(context: Context, vocab: int, n_words: int) -> str:
    """A text of random words, in which each word of the vocabulary occurs."""
    path = context.folder("corpora", f"words-{vocab}-{n_words}.txt")
    if not path.exists():
        rng = np.random.default_rng(0)
        words = vocabulary(rng, vocab)
        text = [*words, *draw(rng, words, max(0, n_words - vocab))]
        write(path, (" ".join(text[at : at + 20]) + "\n" for at in range(0, len(text), 20)))
    return str(path)


def vocabulary(rng: np.random.Generator, n: int) -> list[str]:
    """Distinct random words of 2 to 8 letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words: dict[str, None] = {}
    while len(words) < n:
        drawn = rng.integers(0, 26, (n, 8))
        lengths = rng.integers(2, 9, n)
        words |= dict.fromkeys("".join(letters[i] for i in row[:k]) for row, k in zip(drawn.tolist(), lengths))
    return list(words)[:n]


def draw(rng: np.random.Generator, words: list[str], n: int) -> list[str]:
    weights = 1 / np.arange(10, len(words) + 10)
    return [words[i] for i in rng.choice(len(words), n, p=weights / weights.sum()).tolist()]


def write(path: Path, lines: Iterator[str]) -> None:
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    draft.rename(path)
