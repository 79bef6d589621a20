"""Time to prepare sentence pairs: `clearformer train --pairs FILE` from its start to the first step, by stage.

    python benchmarks/preparation.py --data ../shared/data [--pairs 1000000] [--against ../before]

The corpus is sampled from Tatoeba (English-French), Multi30k (English-German) and Hindi Visual Genome: one to three
sentences per side, with invented names and other numbers, so that the vocabulary grows with the corpus.

start      imports, and the header of the corpus
survey     first pass: clean, filter, count and sample the pairs
learn      train the tokenizer
store      second pass: clean, filter, split and tokenise the pairs
begin      build the model and the first batches

`cpu_seconds` is the CPU time of all processes, `cores` the CPU time divided by the time that passed, and `peak_mb` the
largest memory of all processes together, in which shared pages count once. With --against, another checkout prepares
the same corpus, in turns with this one; tokenizer and data must be equal, and the ratios say how much faster this
checkout is.
"""

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random

from provenance import RESULTS, record, stamp

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"\b(Tom|Mary|John|Marie|Jean)\b")
NUMBER = re.compile(r"\d+")
N_NAMES = 500_000
# Settings that only concern the training after the first step.
SETTINGS = ("train.tokens=1024", "train.accumulation=1", "model.preset=transformer-tiny", "train.steps=1")
STAGES = ("start", "survey", "learn", "store", "begin")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="number of pairs")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=1, help="runs per checkout; the median is reported")
    parser.add_argument("--out", type=Path, default=RESULTS / "preparation.json")
    parser.add_argument("--timed", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed:
        run_timed(*options.timed)
        return
    checkouts = {"now": ROOT} | ({"before": options.against.resolve()} if options.against else {})
    rows = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "pairs.tsv"
        write_pairs(options.data, corpus, options.pairs)
        megabytes = round(corpus.stat().st_size / 1e6)
        for turn in range(options.rounds):
            for name in sorted(checkouts, reverse=turn % 2 == 1):
                rows[name].append(measure(checkouts[name], corpus, Path(folder) / "run"))
                print(name, json.dumps(rows[name][-1]), flush=True)
    hashes = [row.pop("files") for results in rows.values() for row in results]
    if different := sorted({name for files in hashes for name in files if files[name] != hashes[0].get(name)}):
        sys.exit(f"the prepared files differ between runs: {', '.join(different)}")
    result = {"pairs": options.pairs, "file_mb": megabytes, "cpus": len(os.sched_getaffinity(0))}
    result |= {name: summary(results, options.pairs) for name, results in rows.items()}
    if options.against:
        describe = ["git", "-C", str(options.against), "describe", "--always", "--dirty"]
        result["before"]["commit"] = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
        for key in ("seconds", "cpu_seconds"):
            result[f"ratio_of_{key}"] = round(result["before"][key] / result["now"][key], 2)
    shown = f"--pairs {options.pairs}" + (f" --against CHECKOUT --rounds {options.rounds}" if options.against else "")
    record({**result, **stamp(f"python benchmarks/preparation.py {shown}")}, options.out)


def summary(rows, n_pairs):
    """The median run, by its total time."""
    row = sorted(rows, key=lambda row: row["seconds"])[(len(rows) - 1) // 2]
    stages = row["stages"].items()
    return {
        "seconds": row["seconds"],
        "cpu_seconds": row["cpu_seconds"],
        "cores": round(row["cpu_seconds"] / row["seconds"], 2),
        "peak_mb": row["peak_mb"],
        "seconds_per_million": {name: round(stage["seconds"] / n_pairs * 1e6, 1) for name, stage in stages},
        "cores_by_stage": {name: round(stage["cpu"] / stage["seconds"], 2) for name, stage in stages},
        "seconds_of_all_runs": [row["seconds"] for row in rows],
    }


def write_pairs(data, path, n_pairs):
    """Write sampled and varied pairs. Names are drawn by Zipf's law from N_NAMES, numbers from 10,000."""
    draw = Random(0)
    corpora = read_corpora(data)
    syllables = [consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou"]
    names = ["".join(draw.choices(syllables, k=draw.randint(2, 4))).title() for _ in range(N_NAMES)]
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for _ in range(n_pairs):
            corpus = draw.choices(corpora, (6, 3, 1))[0]
            pairs = draw.choices(corpus, k=draw.choice((1, 1, 2, 3)))
            name, number = names[int(N_NAMES ** draw.random()) - 1], str(draw.randrange(10_000))
            sides = (NUMBER.sub(number, NAME.sub(name, " ".join(side))) for side in zip(*pairs))
            file.write("\t".join(sides) + "\n")


def read_corpora(data):
    multi30k = [read_cells(data / "multi30k" / "raw" / f"train.{language}.gz", 0) for language in ("en", "de")]
    return [
        read_cells(data / "tatoeba-eng-fra" / "fra.txt.gz", 0, 1),
        [(source, target) for (source,), (target,) in zip(*multi30k)],
        read_cells(data / "hindi-visual-genome" / "train.txt.gz", 5, 6),
    ]


def read_cells(path, *columns):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        rows = (line.rstrip("\r\n").split("\t") for line in lines)
        return [tuple(row[column] for column in columns) for row in rows]


def measure(checkout, corpus, run):
    """Prepare the corpus with a checkout: seconds, cores and memory, by stage and in total, and hashes of its files."""
    begun, peak = time.monotonic(), 0.0
    command = [sys.executable, __file__, "--timed", str(checkout), str(corpus), str(run), str(begun)]
    with tempfile.TemporaryFile("w+") as output:
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        process = subprocess.Popen(command, stdout=output, cwd=corpus.parent, env=environment)
        while process.poll() is None:
            peak = max(peak, resident_mb(process.pid))
            time.sleep(0.2)
        seconds = time.monotonic() - begun
        output.seek(0)
        lines = output.read().splitlines()
    if process.returncode:
        sys.exit(f"{checkout}: the command failed with exit code {process.returncode}")
    stages = json.loads(lines[-1])
    prepared = [path for path in run.rglob("*") if path.is_file() and path.name != "recipe.toml"]
    files = {str(path.relative_to(run)): digest(path) for path in prepared}
    shutil.rmtree(run)
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(sum(stage["cpu"] for stage in stages.values()), 1),
        "peak_mb": round(peak),
        "stages": stages,
        "files": files,
    }


def digest(path):
    return sha256(path.read_bytes()).hexdigest()


def resident_mb(pid):
    """Resident memory of a process and its descendants. A page that several processes share is divided among them."""
    parents, total, level = {}, 0, [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # the process has ended
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    while level:
        total += sum(map(proportional_kb, level))
        level = [process for process, parent in parents.items() if parent in level]
    return total * 1024 / 1e6


def proportional_kb(pid):
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def run_timed(checkout, corpus, run, begun):
    """Run the command of a checkout up to the first step, and print the time and the CPU time of each stage."""
    marks = [(float(begun), 0.0)]  # the time, and the CPU time of this process and its ended children

    def around(module, name):
        original = getattr(module, name)

        def timed(*arguments):
            marks.append(now())
            result = original(*arguments)
            marks.append(now())
            return result

        setattr(module, name, timed)

    from clearformer.cli import app
    from clearformer.tasks import translation
    from clearformer.tasks.auto import pairs
    from clearformer.training.loop import Trainer

    assert Path(translation.__file__).is_relative_to(checkout), "another checkout was imported"
    around(pairs, "survey_pairs")
    around(translation, "learn_tokenizers")
    around(translation, "encode_pairs")
    Trainer.train = lambda *_: sys.exit(0)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    try:
        app(["train", "--pairs", corpus, "--out", run, "--device", "cpu", *settings])
    finally:
        marks.append(now())
        edges = [marks[0], marks[1], marks[2], marks[4], marks[6], marks[-1]]  # the little time between is the next's
        spans = {
            stage: {"seconds": round(end[0] - start[0], 2), "cpu": round(end[1] - start[1], 2)}
            for stage, start, end in zip(STAGES, edges, edges[1:])
        }
        print(json.dumps(spans), flush=True)


def now():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
