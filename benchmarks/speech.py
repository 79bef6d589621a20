"""Word error rates on strings of five spoken digits, for known and unknown speakers, by the public commands.

    python benchmarks/speech.py --data FOLDER [--seeds 1,2,3] [--at-once 7] [--set train.steps=2000]

FOLDER contains the Free Spoken Digit Dataset: recordings/, or recordings.tar.gz. The test data for `clearformer
evaluate --recordings` is a thousand WAV files, drawn with a fixed seed: each concatenates five test recordings (index
0-4) of one speaker, with up to 0.3 s of silence around each. One model is trained on all six speakers. Six others are
each trained and validated without one speaker and tested on the strings of this speaker. Finished runs are only read;
unfinished runs are started again. Only the best checkpoint is tested, once.
"""

import argparse
import json
import random
import subprocess
import sys
import tarfile
import wave
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from shutil import rmtree
from statistics import mean

from provenance import RESULTS, record, stamp

from clearformer.checkpoint import RunFolder

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
STRINGS, LENGTH, SILENCE, RATE = 1000, 5, 0.3, 8000
RECIPE = Path(__file__).parent.parent / "recipes" / "speech-digits.toml"


def recordings(data: Path, runs: Path) -> Path:
    """The folder of the WAV files, which are unpacked if necessary."""
    if (data / "recordings").is_dir():
        return data / "recordings"
    if not (runs / "recordings").is_dir():
        with tarfile.open(data / "recordings.tar.gz") as archive:
            archive.extractall(runs, filter="data")
    return runs / "recordings"


def part_of(index: int) -> str:
    """The split of the dataset, with a part of its training data for validation."""
    return "test" if index < 5 else "valid" if index < 10 else "train"


def write_lists(folder: Path, out: Path) -> None:
    """Write train.tsv, valid.tsv and test.tsv with all speakers, and without each speaker, who is then tested."""
    rows = []
    for path in sorted(folder.glob("*.wav")):
        digit, speaker, index = path.stem.split("_")
        rows.append((part_of(int(index)), speaker, f"{path.resolve()}\t{WORDS[int(digit)]}\t{speaker}\n"))
    for left_out in (None, *SPEAKERS):
        for part in ("train", "valid", "test"):
            lines = [line for split, speaker, line in rows if split == part and is_included(part, speaker, left_out)]
            write(out / (left_out or "nobody") / f"{part}.tsv", lines)


def is_included(part: str, speaker: str, left_out: str | None) -> bool:
    return left_out is None or (speaker == left_out) == (part == "test")


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def write_strings(folder: Path, lists: Path, out: Path) -> None:
    """Write the strings as WAV files, and strings.tsv beside the other lists, for all speakers and for each one."""
    draw, lines = random.Random(0), {speaker: [] for speaker in SPEAKERS}
    out.mkdir(parents=True, exist_ok=True)
    for i in range(STRINGS):
        speaker, digits = draw.choice(SPEAKERS), draw.choices(range(10), k=LENGTH)
        sound = silence(draw)
        for digit in digits:
            with wave.open(str(folder / f"{digit}_{speaker}_{draw.randrange(5)}.wav")) as file:
                sound += file.readframes(file.getnframes()) + silence(draw)
        with wave.open(str(out / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(sound)
        lines[speaker].append(f"{(out / f'{i}.wav').resolve()}\t{' '.join(WORDS[digit] for digit in digits)}\n")
    for speaker, rows in lines.items():
        write(lists / speaker / "strings.tsv", rows)
    write(lists / "nobody" / "strings.tsv", [line for rows in lines.values() for line in rows])


def silence(draw: random.Random) -> bytes:
    return bytes(2 * int(draw.uniform(0, SILENCE) * RATE))


def measure(args, left_out: str, seed: int) -> dict | None:
    """Train without one speaker (or with all: `nobody`) and evaluate. The log is beside the run folder."""
    folder, lists = args.runs / f"without-{left_out}-{seed}", args.runs / "lists" / left_out
    run, done = RunFolder(folder), Path(f"{folder}.json")
    clearformer = [sys.executable, "-m", "clearformer"]
    with open(f"{folder}.log", "a") as log:
        if not run.report.exists():
            rmtree(folder, ignore_errors=True)
            done.unlink(missing_ok=True)
            settings = (f"data.root={lists}", f"train.seed={seed}", *args.settings)
            words = [word for setting in settings for word in ("--set", setting)]
            subprocess.run(
                [*clearformer, "train", RECIPE, *words, "--out", folder], stdout=log, stderr=log, check=False
            )
        if run.report.exists() and not done.exists():
            words = ["--model", folder, "--recordings", lists / "strings.tsv", "--json"]
            result = subprocess.run([*clearformer, "evaluate", *words], stdout=subprocess.PIPE, stderr=log, check=True)
            done.write_bytes(result.stdout)
    return json.loads(run.report.read_text()) | json.loads(done.read_text()) if run.report.exists() else None


def summary(reports: list[dict]) -> dict:
    """Error rates in per cent; `wer` is the mean over the seeds."""
    return {
        "wer": round(100 * mean(report["wer"] for report in reports), 2),
        "wers": [round(100 * report["wer"], 2) for report in reports],
        "cer": round(100 * mean(report["cer"] for report in reports), 2),
        "valid_wer": round(100 * mean(report["valid"]["wer"] for report in reports), 2),
        "words": reports[0]["words"],
        "strings": reports[0]["sentences"],
        "seconds": round(mean(report["seconds"] for report in reports), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/fsdd"))
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument(
        "--without",
        default=",".join(("nobody", *SPEAKERS)),
        help="speakers to leave out, comma-separated; nobody: train on all",
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/speech"))
    parser.add_argument("--out", type=Path, default=RESULTS / "speech-digits.json")
    args = parser.parse_args()
    args.runs = args.runs.resolve()
    args.runs.mkdir(parents=True, exist_ok=True)
    folder = recordings(args.data, args.runs)
    write_lists(folder, args.runs / "lists")
    write_strings(folder, args.runs / "lists", args.runs / "strings")
    seeds, absent = [int(seed) for seed in args.seeds.split(",")], args.without.split(",")
    with ThreadPoolExecutor(args.at_once) as pool:
        jobs = {job: pool.submit(measure, args, *job) for job in product(absent, seeds)}
        reports = {job: job_done.result() for job, job_done in jobs.items()}
    if missing := [job for job, report in reports.items() if report is None]:
        sys.exit(f"unfinished runs: {missing}; see the .log file of each run, then repeat this command")
    summaries = {who: summary([reports[who, seed] for seed in seeds]) for who in absent}
    unknown = {who: row for who, row in summaries.items() if who != "nobody"}
    details = {"seeds": seeds, "side_by_side": args.at_once, "parameters": reports[absent[0], seeds[0]]["parameters"]}
    result = {"all_speakers": summaries.get("nobody"), "unknown_speaker": unknown}
    if unknown:
        result["mean_unknown_wer"] = round(mean(row["wer"] for row in unknown.values()), 2)
    settings = "".join(f" --set {setting}" for setting in args.settings)
    command = f"python benchmarks/speech.py --seeds {args.seeds} --without {args.without}{settings}"
    record({**result, **details, **stamp(command)}, args.out)


if __name__ == "__main__":
    main()
