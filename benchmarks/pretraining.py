"""BERT or RoBERTa: the same encoder, text and steps, pretrained with the objective of each, by the public command.

    python benchmarks/pretraining.py [--data FOLDER] [--small] [--seeds 0,1,2] [--at-once 1] [--device cuda]
    python benchmarks/pretraining.py --draw           only the figure, from the result

    BERT                 pairs of texts, next-sentence head; each row masked in advance, in ten versions
    static masks         rows of full sentences, no next-sentence head; masked in advance, in ten versions
    RoBERTa              rows of full sentences, no next-sentence head; masked anew in every epoch
    larger batches       the same, four times the tokens per step and a quarter of the steps
    untrained            one step: what the second task learns without pretraining

The text is the Penn Treebank, whose lines are sentences of news in their order. Every encoder is then judged twice:

    loss        of masked tokens on the test text, as rows of full sentences and as pairs, masked the same for all
    accuracy    on the test sentences of rt-polarity, after `finetune --method full` on some of the others

`--small` is for a CPU: 2 layers of width 128 on the first 6,000 lines, and four versions, since there are fewer epochs.
Everything else is as in recipes/bert-mini.toml. Finished runs are only read.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from provenance import RESULTS, record, stamp
from transfer import rt_polarity, write

from clearformer.checkpoint import RunFolder, read_report
from clearformer.data.batch import Tensors
from clearformer.data.masked_rows import FullSentences, MaskedRows, RowFormat, SentencePairs
from clearformer.data.masking import MaskingConfig
from clearformer.data.sentences import Sentences
from clearformer.data.store import DocumentStore
from clearformer.handles.masked_model import MaskedModel
from clearformer.plots.style import COLOURS, saved_figure
from clearformer.tasks.masked_lm import masked_metrics
from clearformer.tasks.sampled_text import FIXED_TOKENS, SampledBatches
from clearformer.text import Tokenizer
from clearformer.verbs.load import load_as

ROOT = Path(__file__).parent.parent
FIGURE = ROOT / "docs" / "images" / "pretraining.png"
RECIPE = ROOT / "recipes" / "bert-mini.toml"
NO_PAIRS = ["objective.next_sentence=false"]
VERSIONS, SMALL_VERSIONS = 10, 4  # of each row masked in advance: BERT had 10 for 40 epochs
SMALL = [
    "model.n_layers=2", "model.d_model=128", "model.d_ff=512", "model.n_heads=2", "model.max_length=64",
    "data.length=64", "text.vocab_size=4000", "optim.lr=0.003", "schedule.warmup=50",
    "train.ema=0.98",
]  # fmt: skip
FORMS: dict[str, Callable[[Sentences, Tokenizer, int], RowFormat]] = {
    "full_sentences": FullSentences,
    "pairs": SentencePairs,
}
TITLES = {
    "full_sentences": "loss of masked tokens,\nrows of full sentences",
    "pairs": "loss of masked tokens,\npairs of texts",
    "accuracy": "accuracy on rt-polarity\nafter fine-tuning",
}


def arms(steps: int, tokens: int, versions: int) -> dict[str, list[str]]:
    """Return the settings of each encoder."""
    static = [f"objective.fixed_masks={versions}"]
    budget = [f"train.steps={steps}", f"train.tokens={tokens}"]
    larger = [f"train.steps={steps // 4}", f"train.tokens={4 * tokens}"]
    return {
        "BERT": [*static, *budget],
        "static masks": [*NO_PAIRS, *static, *budget],
        "RoBERTa": [*NO_PAIRS, *budget],
        "larger batches": [*NO_PAIRS, *larger],
        "untrained": [*NO_PAIRS, "train.steps=1", f"train.tokens={tokens}"],
    }


def corpus(data: Path, lines: int | None, folder: Path) -> list[str]:
    """Write the splits of the Penn Treebank, with `lines` lines to train on; return the settings that read them."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        text = gzip.decompress((data / "ptb" / f"ptb.{split}.txt.gz").read_bytes()).decode().splitlines()
        write([line.strip() for line in text[: lines if split == "train" else None]], folder / f"{split}.txt")
    return [f"data.root={folder.resolve()}", *(f"data.{s}={{path='{s}.txt'}}" for s in ("train", "valid", "test"))]


def finish(words: Sequence[str], run: RunFolder) -> None:
    """Run a command of clearformer that writes a run folder, unless the folder is finished. FOLDER.log is its log."""
    if run.report.exists():
        return
    with open(f"{run.path}.log", "a") as log:
        command = [sys.executable, "-m", "clearformer", *words, "--out", str(run.path)]
        subprocess.run(command, stdout=log, stderr=log, check=True, env={**os.environ, "PYTHONPATH": pythonpath()})


def pythonpath() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def common_batches(run: RunFolder, tokenizer: Tokenizer, length: int, form: str) -> Iterator[Tensors]:
    """Yield the test text in rows of one form, masked in the same way for every encoder."""
    sentences = Sentences(DocumentStore(run.data / "test.safetensors"), tokenizer.eos_id)
    rows = MaskedRows(FORMS[form](sentences, tokenizer, length), tokenizer, MaskingConfig())
    return SampledBatches(rows, FIXED_TOKENS, 0).fixed()


def judge(run: RunFolder, device: str) -> dict[str, Any]:
    """Return the losses of an encoder on the test text, by form, and what it was trained on."""
    handle, report = load_as(MaskedModel, run.path, device), read_report(run)
    length = handle.model.config.max_length
    losses, next_sentence = {}, None
    with torch.inference_mode():
        for form in FORMS:
            batches = common_batches(run, handle.tokenizer, length, form)
            metrics = masked_metrics(handle.model, without_classes(batches, handle.model))
            losses[form] = metrics["loss"]
            next_sentence = metrics.get("next_sentence", next_sentence)
    return {
        "loss": losses,
        "next_sentence": next_sentence,
        "tokenizer": handle.tokenizer.fingerprint(),
        **{key: report[key] for key in ("steps", "tokens", "seconds", "parameters")},
    }


def without_classes(batches: Iterator[Any], network: Any) -> Iterator[Any]:
    """Remove the classes of pairs for a network without a head for them."""
    for batch in batches:
        yield batch if getattr(network, "next_sentence_head", None) is not None else replace(batch, classes=None)


def sentiment(data: Path, folder: Path, n: int, seed: int) -> list[str]:
    """Write n sentences of rt-polarity, drawn by the seed, and all others of its split; return the options for them."""
    splits = rt_polarity(data)
    files = {split: write(splits[split], folder / f"rt-{split}.tsv") for split in ("valid", "test")}
    train = write(random.Random(seed).sample(splits["train"], n), folder / f"rt-train-{seed}.tsv")
    columns = ["--label-column", "0", "--text-columns", "1"]
    return ["--labels", str(train), "--valid", str(files["valid"]), "--test", str(files["test"]), *columns]


def measure(args: argparse.Namespace, name: str, settings: Sequence[str], seed: int) -> dict[str, Any]:
    run = RunFolder(args.runs / f"{name.replace(' ', '-')}-{seed}")
    finish(["train", str(RECIPE), "--device", args.device, *options([*settings, f"train.seed={seed}"])], run)
    tuned = RunFolder(Path(f"{run.path}-tuned"))
    labels = sentiment(args.data, args.runs, args.labels, seed)
    start = ["finetune", "--model", str(run.path), "--method", "full", *labels, "--device", args.device]
    finish([*start, *options([f"train.seed={seed}", *args.tuning])], tuned)
    result = {"seed": seed, **judge(run, args.device), "accuracy": read_report(tuned)["test"]["accuracy"]}
    print(name, json.dumps(result), flush=True)
    return result


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over the seeds of each figure."""
    values = {form: [run["loss"][form] for run in runs] for form in FORMS}
    values["accuracy"] = [run["accuracy"] for run in runs]
    if all(run["next_sentence"] is not None for run in runs):
        values["next_sentence"] = [run["next_sentence"] for run in runs]
    return {key: {"mean": mean(v), "sd": stdev(v) if len(v) > 1 else None} for key, v in values.items()}


def margins(runs: Mapping[str, Sequence[Mapping[str, Any]]], one: str, other: str) -> dict[str, list[float]]:
    """Return for each seed by how much `one` has lower losses than `other`, and a higher accuracy."""
    pairs = list(zip(runs[one], runs[other], strict=True))
    losses = {form: [b["loss"][form] - a["loss"][form] for a, b in pairs] for form in FORMS}
    return {**losses, "accuracy": [a["accuracy"] - b["accuracy"] for a, b in pairs]}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    shared = [*corpus(args.data, args.lines, args.runs / "corpus"), *(SMALL if args.small else []), *args.settings]
    versions = SMALL_VERSIONS if args.small else VERSIONS
    all_arms = arms(args.steps, args.tokens, versions)
    encoders = {name: [*shared, *all_arms[name]] for name in args.encoders}
    todo = [(name, seed) for seed in args.seeds for name in encoders]
    with ThreadPoolExecutor(args.at_once) as pool:
        done = list(pool.map(lambda job: measure(args, job[0], encoders[job[0]], job[1]), todo))
    runs = {name: [r for (n, _), r in zip(todo, done) if n == name] for name in encoders}
    assert len({run.pop("tokenizer") for seeds in runs.values() for run in seeds}) == 1, "one vocabulary for all"
    return {
        "mean": {name: summary(seeds) for name, seeds in runs.items()},
        "RoBERTa_over_BERT": margins(runs, "RoBERTa", "BERT"),
        "RoBERTa_over_static_masks": margins(runs, "RoBERTa", "static masks"),
        "static_masks_over_BERT": margins(runs, "static masks", "BERT"),
        "fixed_masks": versions,
        "training_lines": len((args.runs / "corpus" / "train.txt").read_text().splitlines()),
        "labelled_sentences": args.labels,
        "runs": runs,
    }


def draw(result: Mapping[str, Any], path: Path) -> None:
    """One panel for each figure of merit: dashes are the seeds, dots their mean."""
    with saved_figure(path, 8.4, 3.3) as figure:
        for ax, (key, title) in zip(figure.subplots(1, len(TITLES)), TITLES.items()):
            for x, (name, runs) in enumerate(result["runs"].items()):
                seeds = [run["accuracy"] if key == "accuracy" else run["loss"][key] for run in runs]
                ax.plot([x] * len(seeds), seeds, "_", color=COLOURS[x], markersize=12)
                ax.plot(x, result["mean"][name][key]["mean"], "o", color=COLOURS[x], markersize=5, label=name)
            ax.set_xticks([])
            ax.set_xlim(-0.6, len(result["runs"]) - 0.4)
            ax.set_title(title, fontweight="bold")
            ax.grid(axis="y")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(result["runs"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "shared" / "data", help="folder with ptb and rt-polarity")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "pretraining")
    parser.add_argument("--small", action="store_true", help="a size for a CPU")
    parser.add_argument("--lines", type=int, help="lines of the training text; by default all, or 6,000 if small")
    parser.add_argument("--steps", type=int, help="steps of pretraining; by default 4,000, or 600 if small")
    parser.add_argument("--tokens", type=int, help="tokens per step; by default 16,384, or 4,096 if small")
    parser.add_argument("--labels", type=int, default=1000, help="labelled sentences to fine-tune on")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--encoders", type=lambda text: text.split(","), default=list(arms(0, 0, 0)), help="by name")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="setting of pretraining")
    parser.add_argument("--set-tuning", dest="tuning", action="append", default=[], help="setting of fine-tuning")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the result")
    parser.add_argument("--out", type=Path, default=RESULTS / "pretraining.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    if not args.draw:
        args.lines = args.lines or (6000 if args.small else None)
        args.steps, args.tokens = (
            args.steps or (600 if args.small else 4000),
            args.tokens or (4096 if args.small else 16384),
        )
        chosen = f"--steps {args.steps} --tokens {args.tokens}"
        chosen += f" --encoders '{','.join(args.encoders)}'" if len(args.encoders) < len(arms(0, 0, 0)) else ""
        shown = f"python benchmarks/pretraining.py {'--small ' if args.small else ''}{chosen} --device {args.device}"
        record({**compare(args), **stamp(shown)}, args.out)
    draw(json.loads(args.out.read_text(encoding="utf-8")), args.figure)


if __name__ == "__main__":
    main()
