"""merges: show how byte-pair encoding learns its vocabulary, merge by merge."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.data.sources import read_lines, require_file
from clearformer.errors import DataError
from clearformer.text.merges import segment, watch


def merges(words: Sequence[str] = (), text: str | Path | None = None, n: int = 10) -> dict[str, Any]:
    """Learn n merges from the words, or from a text file, and return how the words are split after each of them.

    `words` may repeat: each occurrence counts. With a text file, the merges are learned from all its words, and those
    of `words` are followed. Without any, the most frequent words of the file are. The result has `start`, the words as
    characters, and `merges`: pair, count and the words after the merge.
    """
    given = Counter(word for entry in words for word in entry.split())
    counts = given if text is None else words_of(Path(text))
    if not counts:
        raise DataError("there are no words to merge", "give words, or a file with --text FILE")
    followed = given or Counter(dict(counts.most_common(5)))
    steps = watch(counts, n)
    pairs = [step.pair for step in steps]
    rows = [
        {"pair": list(step.pair), "count": step.count, "words": split_all(followed, pairs[: i + 1])}
        for i, step in enumerate(steps)
    ]
    return {"start": split_all(followed, []), "words": {word: counts[word] for word in followed}, "merges": rows}


def split_all(words: Counter[str], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    return [list(segment(word, pairs)) for word in words]


def words_of(path: Path) -> Counter[str]:
    require_file(path)
    return Counter(word for line in read_lines(path) for word in line.split())
