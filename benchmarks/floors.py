"""How much code runs between a command and the training loop, counted by tracing the commands.

    python benchmarks/floors.py                          this checkout
    python benchmarks/floors.py --package ../before      another one, to compare with

files      package files whose functions run between the command and the loop, in the packages above data, models and
           the loop (the packages in LOWER are not counted)
passes     how often the training file is read, by its lines
weights    how often a file of weights is read
tunes      how often a model is changed by a tuning method
places     functions, outside the files of the recipe, that create a changed copy of a recipe after it was planned

Each command runs in a separate process for one step, on generated files.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LOWER = {
    *("data", "layers", "models", "objectives", "text", "training", "tuning", "evaluation", "generation", "interop"),
    *("plots", "errors", "config", "registry", "checkpoint", "memory", "version", "metric", "wording"),
    *("__init__", "__main__"),
}
LINES = 400
ONE = ["--device", "cpu", "--set", "train.steps=1", "--set", "train.tokens=512"]
COMMANDS = {
    "train --pairs": ["train", "--pairs", "pairs.tsv", "--out", "pairs", *ONE],
    "train --labels": ["train", "--labels", "reviews.tsv", "--out", "labels", *ONE],
    "finetune --labels --method lora": [
        *("finetune", "--model", "labels", "--labels", "reviews.tsv", "--method", "lora", "--out", "lora", *ONE)
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, default=ROOT, help="checkout of the package to trace")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trace", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        trace(options.package.resolve(), options.trace)
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        write_corpora(Path(folder))
        for name, command in COMMANDS.items():
            here = [sys.executable, __file__, "--package", str(options.package.resolve()), "--trace", *command]
            done = subprocess.run(here, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            results[name] = json.loads(done.stdout.splitlines()[-1])
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, result in results.items():
        counts = {key: len(value) if isinstance(value, list) else value for key, value in result.items()}
        print(name, "  ".join(f"{key} {value}" for key, value in counts.items()), sep="\n    ")
        print("    " + " ".join(result["files"]))


def write_corpora(folder: Path) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(60)]
    texts = [" ".join(draw.choices(words, k=5)) for _ in range(LINES)]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    (folder / "reviews.tsv").write_text("".join(f"{text}\t{'ab'[i % 2]}\n" for i, text in enumerate(texts)))


def trace(package: Path, command: list[str]) -> None:
    """Run a command of this package under a profiler, and print the counts as one line of JSON."""
    sys.path.insert(0, str(package))
    from clearformer.cli import app

    root = f"{package}/clearformer/"
    files: list[str] = []
    calls: Counter[str] = Counter()
    places: set[str] = set()
    state = {"is_looping": False, "is_planned": False}

    def profile(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if (
            event == "return"
            and code.co_name == "read_lines_with_ends"
            and argument is not None
            and not state["is_looping"]
        ):
            calls["lines"] += 1  # a generator yields a line
        if event != "call" or not code.co_filename.startswith(root):
            return
        file, name = code.co_filename.removeprefix(root), code.co_name
        is_function = code.co_flags & 0x2 and not name.startswith("<")
        state["is_looping"] |= (file, name) == ("training/loop.py", "train")
        if state["is_looping"] or not is_function:
            return
        state["is_planned"] |= name in ("probe", "open_folder", "claim_folder")
        is_read = name in ("load_tensors", "map_tensors")
        calls["weights"] += is_read and frame.f_locals["path"].name == "model.safetensors"
        calls["tunes"] += (file, name) == ("tuning/methods.py", "tune")
        if state["is_planned"] and name in ("with_model", "with_tables", "with_vocab", "changed"):
            caller = frame.f_back
            where = caller.f_code.co_filename.removeprefix(root)
            if where not in ("recipe.py", "tables.py", "config.py") and is_recipe(frame):
                places.add(f"{where}:{caller.f_code.co_name}")
        is_higher = file.split("/")[0].removesuffix(".py") not in LOWER
        if is_higher and file not in files and not is_importing(frame):
            files.append(file)

    def is_importing(frame: Any) -> bool:
        while frame is not None and frame.f_code.co_name != "main":
            if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
                return True
            frame = frame.f_back
        return False

    def is_recipe(frame: Any) -> bool:
        return type(frame.f_locals.get("self")).__name__ in ("Recipe", "Tables")

    sys.setprofile(profile)
    try:
        app(command, standalone_mode=False)
    finally:
        sys.setprofile(None)
    passes = round(calls.pop("lines") / LINES)
    print(json.dumps({"files": files, "passes": passes, **calls, "places": sorted(places)}))


if __name__ == "__main__":
    main()
