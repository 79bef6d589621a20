"""Which source token does each target token translate? A reference that comes from no neural model.

    python benchmarks/token_alignment.py [--root FOLDER] [--pairs 400]

Writes runs/held-out.en-fr.tsv: sentence pairs that recipes/tatoeba-en-fr.toml holds out for the test, with
links between the tokens of the bundled model, `source-target`, counted from 0. `--root` is the folder of fra.txt.gz.

The links come from IBM model 1 with a preference for the diagonal (Brown et al. 1993; Dyer et al. 2013), trained by EM
on the training pairs, in both directions. Only links on which both directions agree are kept: they are fewer, but more
often right (Och and Ney 2003).

    p(i | j)  ∝  t(f_j | e_i) exp(−4 |i/I − j/J|)     for a position i of e_1 … e_I
    p(0 | j)  ∝  0.08 t(f_j | nothing)                f_j translates no token;  the sum above has the weight 0.92
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clearformer import load
from clearformer.data.pairs import Example, Tally
from clearformer.data.parallel import survey_pairs
from clearformer.data.split import place
from clearformer.handles.translator import Translator
from clearformer.recipe import Recipe

HERE = Path(__file__).parent
OUT = HERE.parent / "runs" / "held-out.en-fr.tsv"
TENSION, NOTHING, ITERATIONS = 4.0, 0.08, 5
Sentence = Sequence[int]
Link = tuple[int, int]


class Cells(NamedTuple):
    """All combinations of a target position j with a source position i, or with nothing, of all pairs in order."""

    source: np.ndarray  # the token e_i; `nothing` stands before the others
    target: np.ndarray  # the token f_j
    prior: np.ndarray  # the preference for the diagonal; it sums to 1 over the cells of j
    starts: np.ndarray  # the first cell of each target position


def cells_of(pairs: Sequence[tuple[Sentence, Sentence]], nothing: int) -> Cells:
    parts: list[tuple[np.ndarray, ...]] = []
    for source, target in pairs:
        I, J = len(source), len(target)
        e = np.broadcast_to(np.array([nothing, *source]), (J, I + 1))
        f = np.broadcast_to(np.array(target)[:, None], (J, I + 1))
        parts.append((e.ravel(), f.ravel(), diagonal(I, J).ravel(), np.full(J, I + 1)))
    source, target, prior, sizes = (np.concatenate(column) for column in zip(*parts))
    return Cells(source, target, prior, np.cumsum(sizes) - sizes)


def diagonal(I: int, J: int) -> np.ndarray:
    """The prior (J, 1 + I) of nothing and of each source position, for each target position."""
    i, j = np.arange(1, I + 1) / I, np.arange(1, J + 1)[:, None] / J
    near = np.exp(-TENSION * abs(i - j))
    near *= (1 - NOTHING) / near.sum(1, keepdims=True)
    return np.concatenate([np.full((J, 1), NOTHING), near], 1)


class Model1:
    """t(f | e), for tokens from 0 to size − 1; a pair of tokens that never met has the probability `unseen`."""

    unseen = 1e-7

    def __init__(self, pairs: Sequence[tuple[Sentence, Sentence]], size: int, iterations: int = ITERATIONS) -> None:
        self.size = size
        cells = cells_of(pairs, size)
        keys, cell_keys = np.unique(cells.source.astype(np.int64) * size + cells.target, return_inverse=True)
        t = np.ones(len(keys))
        for _ in range(iterations):
            weight = t[cell_keys] * cells.prior
            lengths = np.diff(np.append(cells.starts, len(weight)))
            weight /= np.repeat(np.add.reduceat(weight, cells.starts), lengths)
            counts = np.bincount(cell_keys, weight, len(keys))
            t = counts / np.bincount(keys // size, counts, size + 1)[keys // size]
        self.table = dict(zip(keys.tolist(), t.tolist()))

    def best(self, source: Sentence, target: Sentence) -> list[int]:
        """Return the most probable source position of each target position, −1 for nothing."""
        words = [self.size, *source]
        t = np.array([[self.table.get(e * self.size + f, self.unseen) for e in words] for f in target])
        return ((t * diagonal(len(source), len(target))).argmax(1) - 1).tolist()


def agreed(forward: Sequence[int], backward: Sequence[int]) -> list[Link]:
    """Return the links of both directions: forward[j] is the source of target j, and backward[i] the target of i."""
    return [(i, j) for j, i in enumerate(forward) if i >= 0 and backward[i] == j]


def written(links: Sequence[Link]) -> str:
    return " ".join(f"{i}-{j}" for i, j in links)


def read(path: Path = OUT) -> list[tuple[str, str, list[Link]]]:
    """Return the pairs of the file with their links."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [
        (source, target, [(int(i), int(j)) for i, j in (link.split("-") for link in links.split())])
        for source, target, links in rows
    ]


def splits(root: str | None) -> dict[str, list[Example]]:
    recipe = Recipe.read(HERE.parent / "recipes" / "tatoeba-en-fr.toml", [f"data.root={root}"] if root else [])
    fractions = survey_pairs(recipe.data).fractions(recipe.data)
    parts: dict[str, list[Example]] = {}
    for pair in recipe.data.filter.keep(recipe.data.source("train").read(), Tally()):
        parts.setdefault(fractions.split_of(place(pair.source)), []).append(pair)
    return parts


def tokens_of(translator: Translator, pairs: Sequence[Example]) -> list[tuple[Sentence, Sentence]]:
    sources = translator.encode_sources([pair.source for pair in pairs])
    return list(zip(sources, translator.encode(translator.target_tokenizer, [pair.target for pair in pairs])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of fra.txt.gz; default: data.root of the recipe")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    translator, parts = load(), splits(given.root)
    size = translator.source_tokenizer.vocab_size
    train = tokens_of(translator, parts["train"])
    forward, backward = Model1(train, size), Model1([(target, source) for source, target in train], size)
    by_source = {pair.source: pair for pair in parts["test"]}  # one translation of each English sentence
    chosen = random.Random(0).sample(sorted(by_source.values()), given.pairs)
    lines, n_links = [], 0
    for pair, (source, target) in zip(chosen, tokens_of(translator, chosen)):
        links = agreed(forward.best(source, target), backward.best(target, source))
        n_links += len(links)
        lines.append(f"{pair.source}\t{pair.target}\t{written(links)}\n")
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text("".join(lines), encoding="utf-8")
    print(f"{given.out}: {len(lines)} pairs, {n_links} links")


if __name__ == "__main__":
    main()
