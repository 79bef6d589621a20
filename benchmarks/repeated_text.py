"""Text for induction heads: documents of random words that repeat, among sentences that do not.

    python benchmarks/repeated_text.py FOLDER [--documents 30000] [--repeating 0.5] [--seed 0]

Writes FOLDER/repeated.txt, one document per line, for recipes/induction.toml. A document is one of two kinds:

    repeating    a segment of 8 to 30 random words of the vocabulary, again and again up to 60 words
    sentences    English sentences of the bundled grammar, up to 60 words

Only copying from the context can predict a segment that repeats, and copying is of little use for sentences, which need
agreement and word order instead. Both kinds have the same vocabulary, that of the grammar.
"""

import argparse
import random
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from clearformer.bundled.corpus import generate

NAME = "repeated.txt"
LENGTH = 60  # words of a document
SENTENCES = 20_000  # different ones
SHORTEST, LONGEST = 8, 30  # words of a segment, which therefore occurs at least twice


def documents(n: int, repeating: float, seed: int) -> Iterator[str]:
    """Yield n documents, a fraction `repeating` of them with a segment that repeats."""
    draw = random.Random(seed)
    sentences = [pair.english.split() for pair in generate(min(n, SENTENCES), seed)]
    vocabulary = sorted({word for sentence in sentences for word in sentence})
    for _ in range(n):
        words = repeated(draw, vocabulary) if draw.random() < repeating else spoken(draw, sentences)
        yield " ".join(words)


def repeated(draw: random.Random, vocabulary: list[str]) -> list[str]:
    """Different random words, which repeat to the end of the document."""
    segment = draw.sample(vocabulary, draw.randint(SHORTEST, LONGEST))
    return list(islice(cycle(segment), LENGTH))


def spoken(draw: random.Random, sentences: list[list[str]]) -> list[str]:
    """As many whole sentences as fit."""
    words: list[str] = []
    while len(words) + len(sentence := draw.choice(sentences)) <= LENGTH:
        words += sentence
    return words


def write(folder: Path, n: int = 30_000, repeating: float = 0.5, seed: int = 0) -> Path:
    """Write the documents, and return the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text("".join(f"{line}\n" for line in documents(n, repeating, seed)), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=30_000)
    parser.add_argument("--repeating", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(write(given.folder, given.documents, given.repeating, given.seed))


if __name__ == "__main__":
    main()
