"""Summaries and topics of generated stories by one T5, with ROUGE, beside the first sentence of each story.

    python benchmarks/summaries.py [--seeds 1,2,3] [--folder runs/stories] [--out FILE] [--figure FILE]

recipes/t5-stories.toml is trained by the public command on the stories of benchmarks/stories.py, once for each seed.
The stories of all seeds are the same. Unfinished runs are resumed, and finished runs are only read. Two files are
judged, 500 stories each: `test`, and `combinations`, in which the verb and the object of the summary never occur
together in training. Summaries are written with greedy search, and judged by `clearformer evaluate --hypotheses FILE
--refs FILE --metrics rouge`:

    lead_1     the first sentence of the story
    closest    the sentence of the story with the highest ROUGE-L against the reference: the bound for copying sentences
    t5         the model; `exact` is the fraction of summaries that are equal to the reference

The accuracy of topics is beside the fraction of the most frequent topic. The recipe and the stories were settled with
seed 100, which is not among the results. The learning rate was 0.003 at first, and was reduced after results/
summaries-large-rate.json had been computed with the three seeds.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import stories
from provenance import RESULTS, record, stamp
from quality import train

import clearformer
from clearformer.evaluation.metrics.rouge import rouge_l, words_of
from clearformer.plots.style import COLOURS, saved_figure

HERE = Path(__file__).parent
RECIPE, FIGURE = HERE.parent / "recipes" / "t5-stories.toml", HERE.parent / "docs" / "images" / "summaries.png"
METRICS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
JUDGED = ("test", "combinations")
EXAMPLES = 3


def closest(story: stories.Story) -> str:
    """The sentence with the highest ROUGE-L against the summary."""
    reference = words_of(story.summary)
    return max(story.sentences, key=lambda sentence: rouge_l(words_of(sentence), reference))


def rouge(systems: dict[str, Sequence[str]], references: Sequence[str], folder: Path) -> dict[str, dict[str, float]]:
    """Write the summaries of each system to FOLDER/NAME.txt, and evaluate them as output files."""
    files = {name: write(lines, folder / f"{name}.txt") for name, lines in systems.items()}
    refs = write(references, folder / "references.txt")
    rows = {name: clearformer.evaluate(hypotheses=file, refs=refs, metrics=["rouge"]) for name, file in files.items()}
    return {name: {metric: round(row[metric], 4) for metric in METRICS} for name, row in rows.items()}


def write(lines: Sequence[str], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def fraction(these: Sequence[str], those: Sequence[str]) -> float:
    """The fraction of equal texts."""
    return round(mean(one == other for one, other in zip(these, those, strict=True)), 4)


def answers(run: Path, told: Sequence[stories.Story]) -> dict[str, list[str]]:
    """What the model writes for each task."""
    return {task: clearformer.translate(run, [story.rows[task][0] for story in told]) for task in stories.TASKS}


def judge(run: Path, told: Sequence[stories.Story], folder: Path) -> tuple[dict[str, float], list[dict[str, str]]]:
    """Return the metrics of a model on stories, and some of its summaries, one that is wrong first."""
    written, references = answers(run, told), [story.summary for story in told]
    summaries, topics = written["summarise"], written["topic"]
    metrics = rouge({"t5": summaries}, references, folder)["t5"]
    metrics |= {"exact": fraction(summaries, references), "topic_accuracy": fraction(topics, [s.topic for s in told])}
    order = sorted(range(len(told)), key=lambda i: summaries[i] == references[i])  # stable
    chosen = [order[0], *(i for i in range(EXAMPLES) if i != order[0])][:EXAMPLES]
    keys = ("story", "reference", "summary", "topic", "named")
    rows = [(told[i].text, references[i], summaries[i], told[i].topic, topics[i]) for i in chosen]
    return metrics, [dict(zip(keys, row)) for row in rows]


def baselines(told: Sequence[stories.Story], folder: Path) -> dict[str, Any]:
    systems = {"lead_1": [story.sentences[0] for story in told], "closest": [closest(story) for story in told]}
    counts = Counter(story.topic for story in told)
    rows = rouge(systems, [story.summary for story in told], folder)
    return {**rows, "most_frequent_topic": round(counts.most_common(1)[0][1] / len(told), 4)}


def plot(result: dict[str, Any], path: Path) -> None:
    """ROUGE of the first sentence, of the closest sentence and of the model, for both files."""
    with saved_figure(path, 7.2, 2.6) as figure:
        titles = {"test": "Test stories", "combinations": "Verb and object never together in training"}
        for ax, split in zip(figure.subplots(1, 2, sharey=True), JUDGED):
            rows = result[split]
            bars = {"first sentence": rows["lead_1"], "closest sentence": rows["closest"], "T5": rows["t5"]["mean"]}
            for i, (name, row) in enumerate(bars.items()):
                places = [x + 0.27 * (i - 1) for x in range(len(METRICS))]
                ax.bar(places, [row[metric] for metric in METRICS], 0.24, color=COLOURS[i], label=name)
            for seed in rows["t5"]["seeds"].values():
                ax.plot([x + 0.27 for x in range(3)], [seed[metric] for metric in METRICS], "_", color="black")
            ax.set_xticks(range(len(METRICS)), METRICS.values())
            ax.set(title=titles[split], ylim=(0, 1.02))
            ax.grid(axis="y")
            ax.set_axisbelow(True)
        figure.axes[0].set_ylabel("mean F1")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--folder", type=Path, default=Path("runs/stories"), help="folder of the stories and the runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "summaries.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    parts = stories.splits()
    stories.write(parts, args.folder)
    arguments = [str(RECIPE), f"--set=data.root={args.folder}"]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    reports = {seed: train(args.folder / f"t5-{seed}", arguments, seed) for seed in seeds}
    if missing := [str(report) for report in reports.values() if not report.exists()]:
        sys.exit(f"unfinished runs: {', '.join(missing)}; see the .log file of each run, then repeat this command")
    result: dict[str, Any] = {"stories": {split: len(told) for split, told in parts.items()}}
    for split in JUDGED:
        told = parts[split]
        judged = {seed: judge(r.parent, told, args.folder / split / str(seed)) for seed, r in reports.items()}
        rows = {str(seed): metrics for seed, (metrics, _) in judged.items()}
        means = {key: round(mean(row[key] for row in rows.values()), 4) for key in rows[str(seeds[0])]}
        t5 = {"mean": means, "seeds": rows, "examples": judged[seeds[0]][1]}
        result[split] = {**baselines(told, args.folder / split), "t5": t5}
    record({**result, **stamp(f"python benchmarks/summaries.py --seeds {args.seeds}")}, args.out)
    plot(result, args.figure)


if __name__ == "__main__":
    main()
