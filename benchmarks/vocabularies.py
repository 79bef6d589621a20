"""How much of unseen text a vocabulary of words covers, and vocabularies of pieces: sizes, unknown words, lengths.

    python benchmarks/vocabularies.py [--data ../shared/data] [--out FILE]
    python benchmarks/vocabularies.py --draw          only the figure, from the result

The English side of Tatoeba's sentence pairs, each sentence once; every fiftieth is held out. Words are runs of letters,
digits and apostrophes, lowercased; punctuation is left out, so that all tokenizers see the same words. For each kind:

    vocabulary       tokens, and the weights of their embeddings with 256 features
    unknown          share of the held-out words that have a part without a token
    tokens per word  in the held-out sentences
    related          of the held-out words that never occur in training, the share that are a training word with s, es,
                     d, ed, ing, er or est behind it (eat: eats, eating), for which a word vocabulary has no vector
"""

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

from provenance import RESULTS, record, stamp

from clearformer.plots.style import COLOURS, saved_figure
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "vocabularies.png"
KINDS = {
    "words, all": TextConfig(kind="word", vocab_size=1_000_000, min_frequency=1),
    "words, 6,000": TextConfig(kind="word", vocab_size=6000, min_frequency=1),
    "BPE, 6,000": TextConfig(kind="bpe", vocab_size=6000),
    "BPE, 2,000": TextConfig(kind="bpe", vocab_size=2000),
    "characters": TextConfig(kind="char", vocab_size=1000),
}
WORD, WIDTH, HELD_OUT = re.compile(r"[^\W_]+(?:['’][^\W_]+)*"), 256, 50
ENDINGS = ("s", "es", "d", "ed", "ing", "er", "est")


def sentences(file: Path) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of the training and of the held-out sentences."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        texts = sorted({line.split("\t")[0] for line in lines})
    words = [WORD.findall(text.lower()) for text in texts]
    return [row for i, row in enumerate(words) if i % HELD_OUT], words[::HELD_OUT]


def coverage(tokenizer: Tokenizer, rows: list[list[str]]) -> dict[str, float]:
    """Return the share of words with a part that has no token, and the mean number of tokens, by word."""
    words = [word for row in rows for word in row]
    unknown = tokenizer.id_of("<unk>")
    encoded = dict(zip(types := sorted(set(words)), tokenizer.encode(types)))
    ids = [encoded[word] for word in words]
    return {
        "unknown": sum(unknown in row for row in ids) / len(ids),
        "tokens_per_word": sum(map(len, ids)) / len(ids),
    }


def related(word: str, known: set[str]) -> bool:
    """Whether a word is a known one with an ending; a final e may be dropped before it (make: making)."""
    stems = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
    return any(stem in known or f"{stem}e" in known for stem in stems)


def plot(result: dict[str, Any], path: Path) -> None:
    """Words that no token covers, and tokens per word, for each vocabulary."""
    kinds = result["kinds"]
    names = [f"{name}\n{row['vocabulary']:,} tokens" for name, row in kinds.items()]
    with saved_figure(path, 9, 2.8) as figure:
        unknown, length = figure.subplots(1, 2, sharey=True)
        for ax, key, title, form in (
            (unknown, "unknown", "words without a token, of the held-out words", "{:.2%}"),
            (length, "tokens_per_word", "tokens per word", "{:.2f}"),
        ):
            bars = ax.barh(range(len(names)), [row[key] for row in kinds.values()], 0.6, color=COLOURS[0])
            ax.bar_label(bars, fmt=form, padding=3)
            ax.set_title(title, fontweight="bold")
            ax.margins(x=0.2)
            ax.grid(axis="x")
            ax.set_axisbelow(True)
        unknown.set_yticks(range(len(names)), names)
        unknown.invert_yaxis()
        unknown.xaxis.set_major_formatter("{x:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=RESULTS / "vocabularies.json")
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the result")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    if args.draw:
        plot(json.loads(args.out.read_text(encoding="utf-8")), args.figure)
        return
    train, test = sentences(args.data / "tatoeba-eng-fra/fra.txt.gz")
    lines, known = [" ".join(row) for row in train], {word for row in train for word in row}
    kinds = {}
    for name, config in KINDS.items():
        tokenizer = train_tokenizer(iter(lines), config)
        size = tokenizer.vocab_size
        kinds[name] = {"vocabulary": size, "embedding_weights": size * WIDTH, **coverage(tokenizer, test)}
    new = [word for row in test for word in row if word not in known]
    result = {
        "sentences": {"train": len(train), "test": len(test)},
        "test_words": sum(map(len, test)),
        "kinds": kinds,
        "never_seen": {"words": len(new), "related": sum(related(word, known) for word in new) / len(new)},
    }
    record({**result, **stamp("python benchmarks/vocabularies.py")}, args.out)
    plot(result, args.figure)


if __name__ == "__main__":
    main()
