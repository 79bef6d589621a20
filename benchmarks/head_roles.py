"""What is a head for? Where the encoder heads of a translator look from a verb, on sentences of the bundled grammar.

    clearformer compare recipes/compare-ablations.toml
    python benchmarks/head_roles.py [--runs FOLDER]...        by default the three Transformers with layer norm
    python benchmarks/head_roles.py --draw                    only the figure, from the result

In "The man who pulled the carts sees the dog" the tree says which noun is the subject of the verb, and which the
object. The subject is a varying number of words away, and another noun is nearer. For a head with the pattern A:

    subject       the fraction of sentences with argmax A[verb] = subject
    object        the fraction of sentences with argmax A[verb] = object
    verb          the fraction of sentences with argmax A[subject] = verb
    offset        for comparison: the fraction that the most frequent distance between the two would give
    nouns         the mean attention to nouns, from all words; for comparison, the fraction of words that are nouns

The best head of each role is chosen on one half of the sentences, and its fraction is of the other half.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import torch
from provenance import RESULTS, record, stamp
from torch import Tensor

from clearformer import load
from clearformer.bundled.grammar import english
from clearformer.bundled.grammar.lexicon import NOUNS, VERBS, Tense
from clearformer.bundled.grammar.speaker import Speaker, nouns
from clearformer.bundled.grammar.trees import Phrase
from clearformer.handles.translator import Translator
from clearformer.lens.reading import read
from clearformer.plots.style import BLUE, MUTED, ORANGE, saved_figure

RUNS = [Path("runs/compare-ablations") / f"layer norm-{seed}" for seed in (0, 1, 2)]
FIGURE = Path(__file__).parent.parent / "docs" / "images" / "head-roles.png"
SENTENCES = 400
PATTERNS = "encoder.blocks.*.attn.pattern"
NOUN_FORMS = {form for noun in NOUNS for form in (noun.singular, noun.plural)}
ROLES = {"subject": ("verb", "subject"), "object": ("verb", "object"), "verb": ("subject", "verb")}  # from, to


class Marked(NamedTuple):
    text: str
    places: dict[str, int]  # of the subject, the verb and the object, in words


def draw(n: int, rng: Random) -> list[Marked]:
    """Draw sentences with a relative clause on the subject, a verb of one word, and an object."""
    speaker, marked = Speaker(rng), list[Marked]()
    usable = [verb for verb in VERBS if verb.objects and not verb.recipient and nouns(verb.subjects, 1)]
    while len(marked) < n:
        verb = rng.choice(usable)
        subject = speaker.phrase(speaker.noun(verb.subjects, 1), 1)
        tense = rng.choice((Tense.PRESENT, Tense.PAST))
        tree = replace(speaker.action(subject, verb), tense=tense)
        assert subject.relative is not None
        assert isinstance(tree.object, Phrase)
        n_subject = len(english.noun_phrase(subject).split())
        places = {
            "subject": n_subject - len(english.clause(subject.relative).split()) - 1,
            "verb": n_subject,
            "object": n_subject + len(english.noun_phrase(tree.object).split()),
        }
        marked.append(Marked(english.sentence(tree), places))
    return marked


def patterns(translator: Translator, text: str) -> Tensor:
    """Return the pattern of each encoder head, (L · H, T, T); the last position is EOS."""
    _, seen = read(translator, text, "").look(keep=[PATTERNS])
    return torch.cat([seen[name][0] for name in seen])


def measure(translator: Translator, sentences: Sequence[Marked]) -> dict[str, Any]:
    hits: dict[str, list[Tensor]] = {role: [] for role in ROLES}
    masses, shares = [], []
    for sentence in sentences:
        pattern, words = patterns(translator, sentence.text), sentence.text.lower().split()
        assert pattern.size(1) == len(words) + 1, "one token for each word, and EOS"
        is_noun = torch.tensor([word in NOUN_FORMS for word in words])
        masses.append(pattern[:, :-1, :-1][:, :, is_noun].sum(2).mean(1))
        shares.append(is_noun.float().mean().item())
        for role, (start, end) in ROLES.items():
            hits[role].append(pattern[:, sentence.places[start]].argmax(1) == sentence.places[end])
    nouns_of_heads = torch.stack(masses).mean(0)
    half = len(sentences) // 2
    results = {}
    for role, rows in hits.items():
        right = torch.stack(rows).float()  # (sentences, heads)
        best = int(right[:half].mean(0).argmax())
        start, end = ROLES[role]
        away = [sentence.places[end] - sentence.places[start] for sentence in sentences]
        [(_, most)] = Counter(away).most_common(1)
        others = [value for head, value in enumerate(right[half:].mean(0).tolist()) if head != best]
        results[role] = {
            "head": best,
            "fraction": right[half:, best].mean().item(),
            "other_heads": fmean(others),
            "offset": most / len(away),
        }
    heads = nouns_of_heads.tolist()
    return {"roles": results, "nouns": {"most": max(heads), "least": min(heads), "words": fmean(shares)}}


def plot(results: Mapping[str, Any], path: Path) -> None:
    """The fraction of sentences that the best head of each role gets right, beside a constant distance."""
    titles = [f"from the {start}\nto the {end}" for start, end in ROLES.values()]
    series = (
        ("fraction", "best head", BLUE, "o", -0.15),
        ("other_heads", "other heads, mean", MUTED, "o", 0),
        ("offset", "constant distance", ORANGE, "D", 0.15),
    )
    with saved_figure(path, 5.4, 3.0) as figure:
        ax = figure.subplots()
        for key, label, colour, marker, shift in series:
            for x, role in enumerate(ROLES):
                seeds = [run["roles"][role][key] for run in results["runs"]]
                ax.plot([x + shift] * len(seeds), seeds, "_", color=colour, markersize=10)
                mean = results["mean"][role][key]
                ax.plot(x + shift, mean, marker, color=colour, markersize=5, label=None if x else label)
        ax.set_xticks(range(len(ROLES)), titles)
        ax.set(xlim=(-0.5, len(ROLES) - 0.5), ylim=(0, None), ylabel="fraction of sentences, mean and each model")
        ax.grid(axis="y")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, action="append", help="run folder of a translator; repeatable")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--out", type=Path, default=RESULTS / "head-roles.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the result")
    args = parser.parse_args()
    if not args.draw:
        results = measure_runs(args.runs or RUNS, args.sentences)
        record({**results, **stamp("python benchmarks/head_roles.py")}, args.out)
    plot(json.loads(args.out.read_text(encoding="utf-8")), args.figure)


def measure_runs(paths: Sequence[Path], n: int) -> dict[str, Any]:
    sentences = draw(n, Random(0))
    runs = []
    for path in paths:
        translator = load(path)
        assert isinstance(translator, Translator)
        runs.append({"run": path.name, **measure(translator, sentences)})
    mean = {
        role: {key: fmean(run["roles"][role][key] for run in runs) for key in ("fraction", "other_heads", "offset")}
        for role in ROLES
    }
    return {"mean": mean, "runs": runs}


if __name__ == "__main__":
    main()
