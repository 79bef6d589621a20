"""`clearformer train --pairs FILE` with nothing configured, on four sizes and on languages it was not tuned for.

    python benchmarks/zero_config.py [--data FOLDER] [--at-once 3] [--only WORD] [--set train.seed=1]

FOLDER contains multi30k/raw, tatoeba-eng-fra, tatoeba-eng-hin and hindi-visual-genome, with the files as published.
The smaller corpora are drawn from Multi30k's training pairs with a fixed seed. BLEU is sacrebleu, cased, on the test
sets of Multi30k and Hindi Visual Genome, and otherwise on sentences held out by their source. Unfinished runs are
resumed.
"""

import argparse
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from provenance import RESULTS, record, stamp
from quality import row, train

from clearformer.data.sources import read_lines


def draw(data: Path, n: int, folder: Path) -> list[str]:
    """Write n of Multi30k's raw training pairs to a .tsv file; return the options for `clearformer train`."""
    path = folder / f"multi30k-{n}.tsv"
    pairs = list(zip(*(read_lines(data / f"multi30k/raw/train.{side}.gz") for side in ("en", "de"))))
    chosen = random.Random(0).sample(pairs, n)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in chosen), encoding="utf-8")
    return ["--pairs", str(path), "--test", captions(data, "test_2016_flickr")]


def captions(data: Path, name: str) -> str:
    return ",".join(str(data / f"multi30k/raw/{name}.{side}.gz") for side in ("en", "de"))


def cases(data: Path, folder: Path) -> dict[str, list[str]]:
    genome = data / "hindi-visual-genome"
    return {
        "en-de-1k": draw(data, 1000, folder),
        "en-de-3k": draw(data, 3000, folder),
        "en-de-29k": ["--pairs", captions(data, "train"), "--test", captions(data, "test_2016_flickr")],
        "en-fr-167k": ["--pairs", str(data / "tatoeba-eng-fra/fra.txt.gz"), "--set", "data.held_out_test=0.012"],
        "en-hi-3k": ["--pairs", str(data / "tatoeba-eng-hin/hin.txt.gz"), "--set", "data.held_out_test=0.1"],
        "en-hi-29k": ["--pairs", f"{genome}/train.txt.gz", "--test", f"{genome}/test.txt.gz", "--columns", "5,6"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--only", default="", help="run only cases with this text in their name")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "zero-config.json")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    more = [word for setting in args.settings for word in ("--set", setting)]
    chosen = {name: case for name, case in cases(args.data, args.runs).items() if args.only in name}
    with ThreadPoolExecutor(args.at_once) as pool:
        runs = {n: pool.submit(train, args.runs / f"zero-{n}", [*case, *more], 0) for n, case in chosen.items()}
        reports = {name: run.result() for name, run in runs.items()}
    results = {name: row(report, 0) for name, report in reports.items() if report.exists()}
    details = {"what": "zero configuration, cased sacrebleu", "side_by_side": args.at_once, "settings": args.settings}
    record({**details, **results, **stamp("python benchmarks/zero_config.py")}, args.out)


if __name__ == "__main__":
    main()
