"""Which cross-attention heads of the bundled translator carry the alignment? By switching them off, with BLEU.

    python benchmarks/alignment_heads.py [--limit N] [--orders 8] [--out FILE] [--figure FILE] [--draw]

The data is runs/held-out.en-fr.tsv: sentence pairs held out of the training of the model, with links between
tokens by IBM model 1, which knows nothing of the model (benchmarks/token_alignment.py). The decoder reads the reference
translation, and only links between tokens with letters count. For a head with the attention pattern A, and links s-t:

    accuracy               the fraction of links with argmax A[step that predicts t] = s; EOS is a source token too
    accuracy off diagonal  the same, of the links that the diagonal misses
    accuracy after         the accuracy one step later, when the decoder reads t
    mass                   the mean of A[step that predicts t, s]
    diagonal               for comparison: the accuracy of the source token at the same relative position
    alignment heads        heads with a higher accuracy than the diagonal
    BLEU without heads     of greedy translations, with z = 0 for these heads in all sentences and steps
    … by mean              the same, with z replaced by its mean over the tokens of all reference translations

One head is switched off; all but one; a layer; and more and more heads, in the order of accuracy, in the reverse order,
and in random orders. The alignment heads together are compared with as many other heads: 20 random draws, or all others
if there are no more. These definitions were fixed before any head was switched off; that of alignment heads, which
said 0.5 at first, after the accuracy of the diagonal was known, which is higher. Layers and means were added later.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, record, stamp
from token_alignment import Link, read
from torch import Tensor

from clearformer import load
from clearformer.evaluation.metrics.bleu import corpus_bleu
from clearformer.handles.translator import Translator
from clearformer.lens.heads import averaged, without
from clearformer.lens.session import Lens, Patch
from clearformer.plots.style import BLUE, INK, MUTED, ORANGE, saved_figure

PALE = "#a9bdd3"  # heads that align no better than the diagonal
FIGURE = Path(__file__).parent.parent / "docs" / "images" / "alignment-heads.png"
DRAWS = 20
SCORES = ("accuracy", "accuracy_off_diagonal", "accuracy_after", "mass")
Head = tuple[str, int]
Pair = tuple[str, str, list[Link]]
Changes = Callable[[Sequence[Head]], dict[str, Patch]]


def hits(pattern: Tensor, links: Sequence[Link], shift: int = 0) -> Tensor:
    """Whether each head attends most to the source of each link. pattern (H, T, S) -> bool (H, N), N links.

    Row t is the step that predicts target token t, and row t + 1 the step that reads it.
    """
    s, t = torch.tensor(links).T
    return pattern[:, t + shift].argmax(-1) == s


def mass(pattern: Tensor, links: Sequence[Link]) -> Tensor:
    """The attention of each head to the source of each link: (H, T, S) -> (H, N)."""
    s, t = torch.tensor(links).T
    return pattern[:, t, s]


def diagonal_hits(n_source: int, n_target: int, links: Sequence[Link]) -> list[bool]:
    """Whether the source token at the same relative position is the right one."""
    return [s == min(n_source - 1, int((t + 0.5) * n_source / n_target)) for s, t in links]


def with_letters(source: Sequence[str], target: Sequence[str], links: Iterable[Link]) -> list[Link]:
    """The links between two tokens that contain letters."""
    return [(s, t) for s, t in links if all(any(map(str.isalpha, token)) for token in (source[s], target[t]))]


def alignment_scores(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the scores of every head, by the path of its layer, and the accuracy of the diagonal."""
    right, later, masses, diagonal = [], [], [], list[bool]()
    for source, target, links in pairs:
        aligned = translator.align(source, target)  # both with EOS at the end
        if links := with_letters(aligned.source, aligned.target, links):
            L, H, T, S = aligned.pattern.shape
            pattern = aligned.pattern.reshape(L * H, T, S)
            right.append(hits(pattern, links))
            later.append(hits(pattern, links, 1))
            masses.append(mass(pattern, links))
            diagonal += diagonal_hits(S - 1, T - 1, links)
    off = ~torch.tensor(diagonal)
    values = {
        "accuracy": torch.cat(right, 1),
        "accuracy_off_diagonal": torch.cat(right, 1)[:, off],
        "accuracy_after": torch.cat(later, 1),
        "mass": torch.cat(masses, 1),
    }
    means = {name: value.double().mean(1).reshape(L, H).tolist() for name, value in values.items()}
    return {
        "links": len(diagonal),
        "diagonal": statistics.mean(diagonal),
        **{name: {place(layer): row for layer, row in enumerate(rows)} for name, rows in means.items()},
    }


def place(layer: int) -> str:
    return f"decoder.blocks.{layer}.cross"


@torch.inference_mode()
def mean_outputs(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """Return the mean output z of every head over all target tokens and EOS, (1, H, 1, N), by the path of its layer."""
    total, n = dict[str, Tensor](), 0
    for source, target, _ in pairs:
        ids = translator.encode_sources([source])[0], translator.encode(translator.target_tokenizer, [target])[0]
        with Lens(translator.model, keep=["decoder.blocks.*.cross.z"]) as look:
            translator.model(translator.batch([ids]))
        n += len(ids[1]) + 1
        for name in look:
            total[name] = total.get(name, 0) + look[name].sum(2, keepdim=True)
    return {name.removesuffix(".z"): z / n for name, z in total.items()}


class Bleu:
    """BLEU with some heads changed by `put`, by default switched off; computed once for each set of heads."""

    def __init__(self, translator: Translator, pairs: Sequence[Pair], put: Changes = without) -> None:
        self.translator, self.put, self.known = translator, put, dict[frozenset[Head], float]()
        self.sources, self.targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def __call__(self, heads: Iterable[Head]) -> float:
        if (key := frozenset(heads)) not in self.known:
            with Lens(self.translator.model, put=self.put(sorted(key))):
                translations = self.translator.translate(self.sources, beam=1)
            self.known[key] = round(corpus_bleu(translations, [self.targets]).value, 2)
        return self.known[key]


def cumulative(bleu: Callable[[Sequence[Head]], float], order: Sequence[Head]) -> list[float]:
    """BLEU without the first 0, 1, 2 … heads."""
    return [bleu(order[:n]) for n in range(len(order) + 1)]


def in_order(accuracy: dict[str, list[float]]) -> list[Head]:
    """All heads, the best aligned first."""
    heads = [(path, head) for path, row in accuracy.items() for head in range(len(row))]
    return sorted(heads, key=lambda head: -accuracy[head[0]][head[1]])


def named(heads: Iterable[Head]) -> list[str]:
    return [f"{path}.{head}" for path, head in heads]


def measure(translator: Translator, pairs: Sequence[Pair], n_orders: int) -> dict[str, Any]:
    start, bleu = time.perf_counter(), Bleu(translator, pairs)
    by_mean = Bleu(translator, pairs, partial(averaged, mean_outputs(translator, pairs)))
    scores = alignment_scores(translator, pairs)
    accuracy = scores["accuracy"]
    heads = in_order(accuracy)
    aligning = [(path, head) for path, head in heads if accuracy[path][head] > scores["diagonal"]]
    others, draw = heads[len(aligning) :], random.Random(0)
    n = min(len(aligning), len(others))
    draws = [draw.sample(others, n) for _ in range(DRAWS)]
    controls = [bleu(drawn) for drawn in draws]
    curves = [cumulative(bleu, draw.sample(heads, len(heads))) for _ in range(n_orders)]
    result = {
        "sentences": len(pairs),
        "links": scores["links"],
        "diagonal_accuracy": scores["diagonal"],
        "bleu": bleu([]),
        "bleu_without_cross_attention": bleu(heads),
        "alignment_heads": named(aligning),
        "n_alignment_heads": len(aligning),
        "bleu_without_alignment_heads": bleu(aligning),
        "n_other_heads": n,
        "bleu_without_other_heads": statistics.mean(controls),
        "worst_bleu_without_other_heads": min(controls),
        "bleu_with_alignment_heads_alone": bleu(others),
        "bleu_without_alignment_heads_by_mean": by_mean(aligning),
        "bleu_without_other_heads_by_mean": statistics.mean(map(by_mean, draws)),
        "layers": {
            str(layer): {"bleu_without": bleu([(path, head) for head in range(len(accuracy[path]))])}
            for layer, path in enumerate(accuracy)
        },
        "heads": {
            str(layer): {
                str(head): {
                    **{name: scores[name][path][head] for name in SCORES},
                    "bleu_without": bleu([(path, head)]),
                    "bleu_alone": bleu([other for other in heads if other != (path, head)]),
                }
                for head in range(len(accuracy[path]))
            }
            for layer, path in enumerate(accuracy)
        },
        "cumulative": {
            "order": named(heads),
            "best_first": cumulative(bleu, heads),
            "worst_first": cumulative(bleu, heads[::-1]),
            "random_mean": [statistics.mean(values) for values in zip(*curves)],
            "random_worst": [min(values) for values in zip(*curves)],
            "random": curves,
        },
        "seconds": time.perf_counter() - start,
    }
    return rounded(result)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


def plot(result: dict[str, Any], path: Path) -> None:
    """Accuracy and BLEU by head, the best aligned first, and BLEU while more and more heads are switched off."""
    names = [name.removeprefix("decoder.blocks.").replace(".cross", "") for name in result["cumulative"]["order"]]
    heads = [result["heads"][layer][head] for layer, head in (name.split(".") for name in names)]
    x = range(len(names))
    with saved_figure(path, 9, 4) as figure:
        axes = figure.subplot_mosaic([["accuracy", "curves"], ["bleu", "curves"]])
        top, bottom, right = axes["accuracy"], axes["bleu"], axes["curves"]
        n = result["n_alignment_heads"]
        top.bar(x, [head["accuracy"] for head in heads], 0.65, color=[BLUE] * n + [PALE] * (len(names) - n))
        top.axhline(result["diagonal_accuracy"], color=INK, linewidth=0.8, linestyle="--")
        top.text(x[-1] + 0.4, result["diagonal_accuracy"] + 0.03, "the diagonal", ha="right", fontsize=8)
        top.set(title="Accuracy of the alignment, by head", ylim=(0, 0.8))
        bottom.plot(x, [head["bleu_without"] for head in heads], "o", color=BLUE, markersize=4)
        bottom.plot(x, [head["bleu_alone"] for head in heads], "^", color=ORANGE, markersize=4)
        bottom.axhline(result["bleu"], color=INK, linewidth=0.8, linestyle="--")
        bottom.set(title="BLEU without the head, and with this head alone", xlabel="layer.head", ylim=(-3, None))
        for axis in (top, bottom):
            axis.set_xticks(x, names)
        curves, steps = result["cumulative"], range(len(names) + 1)
        for curve in curves["random"]:
            right.plot(steps, curve, color=MUTED, linewidth=0.5, alpha=0.6)
        right.plot(steps, curves["random_mean"], color=MUTED, label="random orders, and their mean")
        right.plot(steps, curves["best_first"], color=BLUE, label="best aligned first")
        right.plot(steps, curves["worst_first"], color=ORANGE, label="worst aligned first")
        right.set(title="BLEU without more and more heads", xlabel="heads switched off", ylim=(0, None))
        right.legend(loc="upper right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="number of sentence pairs; default: all")
    parser.add_argument("--orders", type=int, default=8, help="number of random orders")
    parser.add_argument("--out", type=Path, default=RESULTS / "alignment-heads.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the results")
    given = parser.parse_args()
    if given.draw:
        result = json.loads(given.out.read_text())
    else:
        torch.set_num_threads(1)
        result = stamp("python benchmarks/alignment_heads.py") | measure(load(), read()[: given.limit], given.orders)
        record(result, given.out)
    plot(result, given.figure)


if __name__ == "__main__":
    main()
