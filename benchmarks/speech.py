"""Spoken digits by the public commands: how many words are misheard in strings of five, by speakers known and unknown.

    python benchmarks/speech.py --data FOLDER [--seeds 1,2,3] [--at-once 7] [--set train.steps=2000]

FOLDER holds the Free Spoken Digit Dataset: recordings/, or recordings.tar.gz. A thousand strings are made of its test
recordings alone (index 0-4), each of five by one speaker, with up to 0.3 s of silence around each: WAV files, drawn by
a fixed seed, for `clearformer evaluate --recordings`. One training hears all six speakers. Each of six others never
hears one of them, neither to learn from nor to validate on, and is tested on the strings of that one. Trainings that
are finished are only read; those that were cut off begin anew. The checkpoint that was best on validation is tested,
once.
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
    """Where the WAV files lie, unpacked if they are not yet."""
    if (data / "recordings").is_dir():
        return data / "recordings"
    if not (runs / "recordings").is_dir():
        with tarfile.open(data / "recordings.tar.gz") as archive:
            archive.extractall(runs, filter="data")
    return runs / "recordings"


def part_of(index: int) -> str:
    """The data set's own split, and a part of its training part to validate on."""
    return "test" if index < 5 else "valid" if index < 10 else "train"


def write_lists(folder: Path, out: Path) -> None:
    """train.tsv, valid.tsv and test.tsv; and of each speaker the same without, tested on the speaker alone."""
    rows = []
    for path in sorted(folder.glob("*.wav")):
        digit, speaker, index = path.stem.split("_")
        rows.append((part_of(int(index)), speaker, f"{path.resolve()}\t{WORDS[int(digit)]}\t{speaker}\n"))
    for left_out in (None, *SPEAKERS):
        for part in ("train", "valid", "test"):
            kept = [line for own, speaker, line in rows if own == part and heard(part, speaker, left_out)]
            write(out / (left_out or "nobody") / f"{part}.tsv", kept)


def heard(part: str, speaker: str, left_out: str | None) -> bool:
    return left_out is None or (speaker == left_out) == (part == "test")


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def write_strings(folder: Path, lists: Path, out: Path) -> None:
    """The strings as WAV files, and strings.tsv beside the other lists: those of everybody, and of each speaker."""
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
    for speaker, own in lines.items():
        write(lists / speaker / "strings.tsv", own)
    write(lists / "nobody" / "strings.tsv", [line for own in lines.values() for line in own])


def silence(draw: random.Random) -> bytes:
    return bytes(2 * int(draw.uniform(0, SILENCE) * RATE))


def measure(given, left_out: str, seed: int) -> dict | None:
    """Train without somebody, or nobody, and evaluate; the log lies beside the run folder."""
    folder, lists = given.runs / f"without-{left_out}-{seed}", given.runs / "lists" / left_out
    run, done = RunFolder(folder), Path(f"{folder}.json")
    clearformer = [sys.executable, "-m", "clearformer"]
    with open(f"{folder}.log", "a") as log:
        if not run.report.exists():
            rmtree(folder, ignore_errors=True)
            done.unlink(missing_ok=True)
            settings = (f"data.root={lists}", f"train.seed={seed}", *given.settings)
            words = [word for setting in settings for word in ("--set", setting)]
            subprocess.run(
                [*clearformer, "train", RECIPE, *words, "--out", folder], stdout=log, stderr=log, check=False
            )
        if run.report.exists() and not done.exists():
            words = ["--model", folder, "--recordings", lists / "strings.tsv", "--json"]
            told = subprocess.run([*clearformer, "evaluate", *words], stdout=subprocess.PIPE, stderr=log, check=True)
            done.write_bytes(told.stdout)
    return json.loads(run.report.read_text()) | json.loads(done.read_text()) if run.report.exists() else None


def summary(reports: list[dict]) -> dict:
    """Percentages, the mean over seeds first."""
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
    parser.add_argument("--seeds", default="1,2,3", help="divided by commas")
    parser.add_argument("--at-once", type=int, default=1, help="trainings side by side on one device")
    parser.add_argument("--without", default=",".join(("nobody", *SPEAKERS)), help="who is left out, divided by commas")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on")
    parser.add_argument("--runs", type=Path, default=Path("runs/speech"))
    parser.add_argument("--out", type=Path, default=RESULTS / "speech-digits.json")
    given = parser.parse_args()
    given.runs = given.runs.resolve()
    given.runs.mkdir(parents=True, exist_ok=True)
    folder = recordings(given.data, given.runs)
    write_lists(folder, given.runs / "lists")
    write_strings(folder, given.runs / "lists", given.runs / "strings")
    seeds, absent = [int(seed) for seed in given.seeds.split(",")], given.without.split(",")
    with ThreadPoolExecutor(given.at_once) as pool:
        jobs = {job: pool.submit(measure, given, *job) for job in product(absent, seeds)}
        reports = {job: job_done.result() for job, job_done in jobs.items()}
    if missing := [job for job, report in reports.items() if report is None]:
        sys.exit(f"not finished, see the logs: {missing}")
    found = {who: summary([reports[who, seed] for seed in seeds]) for who in absent}
    unknown = {who: row for who, row in found.items() if who != "nobody"}
    told = {"seeds": seeds, "side_by_side": given.at_once, "parameters": reports[absent[0], seeds[0]]["parameters"]}
    result = {"all_speakers": found.get("nobody"), "unknown_speaker": unknown}
    if unknown:
        result["mean_unknown_wer"] = round(mean(row["wer"] for row in unknown.values()), 2)
    settings = "".join(f" --set {setting}" for setting in given.settings)
    command = f"python benchmarks/speech.py --seeds {given.seeds} --without {given.without}{settings}"
    record({**result, **told, **stamp(command)}, given.out)


if __name__ == "__main__":
    main()
