"""Zero configuration by a table, as it was in version 0.1, and by smooth functions of the data, side by side.

    python benchmarks/smooth_config.py [--data FOLDER] [--at-once 6] [--seconds 540] [--only en-de-1000]

BLEU (sacrebleu, cased) of `clearformer train --pairs FILE` on 1,000 to 29,000 pairs of English-German captions
(Multi30k), English-French sentences (Tatoeba) and English-Hindi captions (Hindi Visual Genome). The corpora of one
language pair are nested; test data is the same for all sizes. `old` gets the settings of the former table with --set,
`new` gets nothing but the seed. A second seed is trained where the two differ by more than 0.5 BLEU.

The command stops after --seconds; repeat it until the table is complete. Unfinished runs are resumed. FOLDER contains
multi30k/raw, tatoeba-eng-fra and hindi-visual-genome with the files as published.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from provenance import RESULTS, record, stamp
from quality import row

from clearformer.checkpoint import RunFolder
from clearformer.data.corpora import PairCorpora
from clearformer.data.parallel import PairSurvey, survey_pairs
from clearformer.data.sources import read_lines

SIZES = (1_000, 2_000, 5_000, 11_000, 29_000)
SMALL = {"train.steps": 20, "train.validate_every": 10, "train.save_every": 10, "model.d_model": 32}
ARMS = ("old", "new")
UNCLEAR = 0.5  # BLEU: a larger difference of two runs is measured with a second seed
TESTS = 1_000  # pairs held out of Tatoeba

Pairs = list[tuple[str, str]]

# The former table, unchanged. Columns: maximum number of pairs, preset, vocabulary, dropout, tokens per side
# and step, epochs, peak learning rate.
TABLE = [
    (2_000, "transformer-tiny", 1_000, 0.3, 1024, 150, 2e-3),
    (10_000, "transformer-tiny", 4_000, 0.3, 2048, 100, 3e-3),
    (60_000, "transformer-tiny", 8_000, 0.3, 4096, 60, 4e-3),
    (400_000, "transformer-small", 10_000, 0.2, 8192, 30, 2e-3),
]


def old_settings(survey: PairSurvey) -> dict[str, object]:
    """Return the choices of the former table for a corpus of at most 400,000 pairs, on a GPU, as settings."""
    _, preset, vocab, dropout, tokens, epochs, lr = next(row for row in TABLE if survey.n_pairs <= row[0])
    n_tokens = survey.n_pairs * max(4.0, survey.mean_chars / 4)
    steps = int(max(2000, round(epochs * n_tokens / (0.9 * tokens), -2)))
    interval = int(max(50, min(1000, round(steps / 40, -1))))
    return {
        "text.vocab_size": vocab,
        "text.strict": "false",
        "model.preset": preset,
        "model.dropout": dropout,
        "optim.lr": lr,
        "schedule.warmup": min(4000, steps // 10),
        "objective.label_smoothing": 0.1,
        "train.tokens": tokens,
        "train.accumulation": 1,
        "train.steps": steps,
        "train.validate_every": interval,
        "train.save_every": interval,
        "train.log_every": min(50, interval),
        "train.patience": 10,
        "train.ema": 0.999,
    }


def german(data: Path) -> tuple[Pairs, Pairs]:
    def read(name: str) -> Pairs:
        return list(zip(*(read_lines(data / f"multi30k/raw/{name}.{side}.gz") for side in ("en", "de"))))

    return read("train"), read("test_2016_flickr")


def french(data: Path) -> tuple[Pairs, Pairs]:
    """Hold out all translations of TESTS English sentences, and test on the first of each."""
    pairs = [(line.split("\t")[0], line.split("\t")[1]) for line in read_lines(data / "tatoeba-eng-fra/fra.txt.gz")]
    first = dict(reversed(pairs))
    held_out = set(random.Random(1).sample(sorted(first), TESTS))
    return [pair for pair in pairs if pair[0] not in held_out], [(text, first[text]) for text in sorted(held_out)]


def hindi(data: Path) -> tuple[Pairs, Pairs]:
    def read(name: str) -> Pairs:
        rows = (line.split("\t") for line in read_lines(data / f"hindi-visual-genome/{name}.txt.gz"))
        return [(row[5], row[6]) for row in rows]

    return read("train"), read("test")


LANGUAGES = {"en-de": german, "en-fr": french, "en-hi": hindi}


def write_corpora(
    data: Path, folder: Path, sizes: list[int], only: str, n_tests: int | None = None
) -> Iterator[tuple[str, int, Path, Path]]:
    """Write nested training corpora and the test data as .tsv files; yield (language pair, size, training, test)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, read in LANGUAGES.items():
        chosen = [n for n in sizes if only in f"{name}-{n}"]
        if not chosen:
            continue
        train, test = read(data)
        random.Random(0).shuffle(train)
        tests = write_pairs(test[:n_tests], folder / f"{name}-test.tsv")
        for n in chosen:
            yield name, n, write_pairs(train[:n], folder / f"{name}-{n}.tsv"), tests


def write_pairs(pairs: Pairs, path: Path) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


def train(folder: Path, arguments: list[str], deadline: float) -> Path:
    """Start or resume one run. Interrupt it at the deadline: it then saves a checkpoint. Return its report."""
    run = RunFolder(folder)
    if run.report.exists() or time.monotonic() > deadline:
        return run.report
    command = ["train", *(["--resume"] if run.last.exists() else arguments), "--out", str(folder)]
    with open(f"{folder}.log", "a") as log:
        process = subprocess.Popen([sys.executable, "-m", "clearformer", *command], stdout=log, stderr=log)
        try:
            process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
    return run.report


class Bench:
    """The runs of all corpora. A job is (corpus, arm, seed); its run folder is RUNS/CORPUS-ARM-SEED."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.deadline = args, time.monotonic() + args.seconds
        sizes = [int(n) for n in args.sizes.split(",")]
        self.files, self.old = {}, {}
        for name, n, path, tests in write_corpora(
            args.data, args.runs / "data", sizes, args.only, 20 if args.small else None
        ):
            self.files[f"{name}-{n}"] = ["--pairs", str(path), "--test", str(tests)]
            self.old[f"{name}-{n}"] = old_settings(survey_pairs(PairCorpora(train={"path": path})))

    def folder(self, corpus: str, arm: str, seed: int) -> Path:
        return self.args.runs / f"{corpus}-{arm}-{seed}"

    def run(self, seed: int, corpora: list[str]) -> None:
        """Train all corpora with both arms, the longest runs first, so that the device is busy to the end."""
        jobs = [(corpus, arm) for corpus in sorted(corpora, key=self.length, reverse=True) for arm in ARMS]
        with ThreadPoolExecutor(self.args.at_once) as pool:
            list(pool.map(lambda job: self.train(*job, seed), jobs))

    def length(self, corpus: str) -> int:
        return int(str(self.old[corpus]["train.steps"]))

    def train(self, corpus: str, arm: str, seed: int) -> None:
        settings = {**(self.old[corpus] if arm == "old" else {}), **(SMALL if self.args.small else {})}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        arguments = [*self.files[corpus], *words, "--set", f"train.seed={seed}", "--device", self.args.device]
        train(self.folder(corpus, arm, seed), arguments, self.deadline)

    def rows(self, corpus: str, arm: str) -> list[dict]:
        folders = ((seed, self.folder(corpus, arm, seed)) for seed in range(self.args.seeds))
        return [row(RunFolder(path).report, seed) for seed, path in folders if RunFolder(path).report.exists()]

    def results(self) -> dict[str, dict]:
        """Return the runs of each corpus that both arms have finished, and their difference on equal seeds."""
        table = {}
        for corpus in self.files:
            runs = {arm: self.rows(corpus, arm) for arm in ARMS}
            n = min(map(len, runs.values()))
            if n:
                bleu = {arm: round(mean(run["bleu"] for run in rows[:n]), 2) for arm, rows in runs.items()}
                table[corpus] = {**bleu, "change": round(bleu["new"] - bleu["old"], 2), "runs": runs}
        return table

    def unclear(self) -> list[str]:
        return [corpus for corpus, result in self.results().items() if abs(result["change"]) > UNCLEAR]


def print_table(results: dict[str, dict]) -> None:
    print(f"{'corpus':<14}{'old':>8}{'new':>8}{'change':>8}{'seeds':>7}   steps of the best checkpoint, and of the run")
    for corpus, result in results.items():
        runs = result["runs"]
        steps = "; ".join(f"{arm} {runs[arm][0]['best_step']:,} of {runs[arm][0]['steps']:,}" for arm in ARMS)
        seeds = min(map(len, runs.values()))
        print(f"{corpus:<14}{result['old']:8.2f}{result['new']:8.2f}{result['change']:+8.2f}{seeds:7}   {steps}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--seconds", type=float, default=1e9, help="seconds after which runs are interrupted and saved")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of pairs, comma-separated")
    parser.add_argument("--only", default="", help="train only corpora with this text in their name")
    parser.add_argument("--seeds", type=int, default=2, help="seeds where the arms differ by more than 0.5 BLEU")
    parser.add_argument(
        "--small", action="store_true", help="check the script: 20 steps of a tiny model, 20 test pairs"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs/smooth-config"))
    parser.add_argument("--out", type=Path, default=RESULTS / "smooth-config.json")
    args = parser.parse_args()
    bench = Bench(args)
    bench.run(0, list(bench.files))
    for seed in range(1, args.seeds):
        bench.run(seed, bench.unclear())
    results = bench.results()
    if not results:
        sys.exit("no corpus is finished; repeat the command to resume")
    missing = [corpus for corpus in bench.files if corpus not in results]
    summary = {
        "what": "BLEU of zero configuration: the former table (old) and smooth functions (new)",
        "mean": {arm: round(mean(result[arm] for result in results.values()), 2) for arm in ARMS},
        "lowest_change": min(result["change"] for result in results.values()),
        "unfinished": missing,
        "side_by_side": args.at_once,
    }
    first = next(iter(bench.files))
    provenance = stamp("python benchmarks/smooth_config.py")
    report = RunFolder(bench.folder(first, "new", 0)).report
    if report.exists():
        provenance["versions"] = json.loads(report.read_text())["versions"]  # of the machine that trained
    record({**summary, "corpora": results, **provenance}, args.out)
    print_table(results)
    print(f"mean: {summary['mean']}; unfinished: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
