"""Our side of every row, by the public commands and handles, as a user's script would call them.

train            clearformer train …, read from metrics.jsonl, ended when enough is measured
translate        clearformer.load(folder).candidates(…)
generate         clearformer.load(folder).generate(…)
translate_cold   clearformer translate "…", from the start of the process to its end
prepare          clearformer train --pairs FILE for one step
"""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from clearformer.speed import corpora
from clearformer.speed.context import Context, rates, seconds_of, set_threads
from clearformer.speed.models import GPT_SIZES, SIZES, as_text, gpt_folder, marian_folder, random_ids

COMMAND = (sys.executable, "-m", "clearformer")
UNDISTURBED = ("train.validate_every=1000000", "train.save_every=1000000", "train.patience=0", "train.accumulation=1")
INTERRUPTED = 128 + signal.SIGTERM  # the exit code of a run that was ended and saved
SENTENCE = "The cat eats the mouse."


def train(
    context: Context,
    corpus: str,
    words: list[str],
    settings: list[str],
    corpus_options: dict[str, Any] | None = None,
    steps: int = 0,
    n_batches: int = 60,
    log_every: int = 50,
) -> dict[str, Any]:
    """Target tokens per second of `clearformer train`, one value per record of metrics.jsonl after the warm-up.

    `{corpus}` in the words is the file of the corpus. The run ends, as by Ctrl-C, when both the time and the number of
    `steps` are reached. Its first batches are written for the peers.
    """
    file, name = as_pair(getattr(corpora, corpus)(context, **(corpus_options or {})))
    arguments = [word.format(corpus=file) for word in words]
    period = log_every if context.device == "cuda" else max(1, log_every // 10)
    settings = [*UNDISTURBED, f"train.log_every={period}", *settings]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [*COMMAND, "train", *arguments, "--device", context.device, "--out", str(context.run), *options]
    log = context.run.with_suffix(".log")
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        records = watch(process, context.run / "metrics.jsonl", context, steps)
    if not records or process.returncode not in (0, INTERRUPTED):
        raise RuntimeError(f"clearformer train: {last_line(log)}")
    if not context.batches.exists() and n_batches:
        context.call("clearformer.speed.batches:write", run=str(context.run), n=max(n_batches, steps))
    first = records[0][0]
    late = [record for at, record in records if at >= first + context.warm_up] or [records[-1][1]]
    return {
        "values": [record["tokens_per_s"] for record in late],
        "corpus": name,
        "seconds_to_first_record": round(first - begun, 1),
        "losses": [[record["step"], round(record["loss"], 4)] for _, record in records],
    }


def as_pair(corpus: tuple[str, str] | str) -> tuple[str, str]:
    return corpus if isinstance(corpus, tuple) else (corpus, "random words")


def watch(
    process: "subprocess.Popen[bytes]", metrics: Path, context: Context, steps: int
) -> list[tuple[float, dict[str, Any]]]:
    """Read the training records of a run with their times of arrival, and end it when enough are read."""
    records: list[tuple[float, dict[str, Any]]] = []
    while True:
        has_ended = process.poll() is not None
        lines = metrics.read_text(encoding="utf-8").split("\n")[:-1] if metrics.exists() else []
        rows = [row for row in map(json.loads, lines) if row["kind"] == "train"]
        records += [(time.monotonic(), row) for row in rows[len(records) :]]
        if has_ended:
            return records
        span = records[-1][0] - records[0][0] if records else 0.0
        if span >= context.warm_up + context.seconds and records[-1][1]["step"] >= steps:
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            return records
        time.sleep(0.05)


def last_line(log: Path) -> str:
    """The error in the output of a command, or its last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "hint:"))]
    return " ".join(errors or lines[-1:] or ["no output"])


def opened(folder: Path, context: Context, precision: str, engine: str = "auto") -> Any:
    """The handle of a model on the device, with its weights in this precision. Engines are cached for the benchmark."""
    set_threads(context)
    os.environ["CLEARFORMER_CACHE"] = str(context.folder("engines"))
    import_module("clearformer.memory").keep_freed_memory()  # as every command does
    return import_module("clearformer").load(folder, context.device, engine, precision)


def translate(
    context: Context,
    size: str,
    batch: int,
    beam: int,
    length: int,
    precision: str = "float32",
    engine: str = "auto",
) -> dict[str, Any]:
    """Target tokens per second of a translator. Sources have `length` tokens with EOS, targets exactly as many."""
    handle = opened(marian_folder(context, size), context, precision, engine)
    texts = as_text(random_ids(batch, length - 1, SIZES[size][-1]))
    budget = 2 * batch * beam * (length + 1)  # one batch
    settings = {"beam": beam, "min_length": length, "max_ratio": 1e-6, "max_extra": length, "tokens": budget}
    outputs: list[list[int]] = []

    def work() -> None:
        outputs[:] = [row[0].tokens for row in handle.candidates(texts, **settings)]

    values = rates(work, batch * length, context)
    return {"values": values, "tokens": checked(outputs, length)}


def generate(context: Context, size: str, batch: int, prompt: int, length: int, precision: str) -> dict[str, Any]:
    """New tokens per second of a language model, by greedy search after prompts of `prompt` tokens."""
    handle = opened(gpt_folder(context, size), context, precision)
    texts = as_text(random_ids(batch, prompt, GPT_SIZES[size][-1]))
    outputs: list[list[int]] = []

    def work() -> None:
        continuations = handle.generate(texts, temperature=0.0, max_new=length, min_length=length)
        outputs[:] = [row[0].tokens for row in continuations]

    values = rates(work, batch * length, context)
    return {"values": values, "tokens": checked(outputs, length)}


def checked(outputs: list[list[int]], length: int) -> list[list[int]]:
    """The first four outputs, to compare engines; every output must have the forced length."""
    wrong = {len(row) for row in outputs} - {length}
    if wrong:
        raise RuntimeError(f"expected {length} tokens per output, not {sorted(wrong)}")
    return outputs[:4]


def translate_cold(context: Context) -> dict[str, Any]:
    """Seconds of `clearformer translate` with the bundled model, from the start of the process to its end."""
    return {"values": seconds_of([*COMMAND, "translate", SENTENCE], context)}


def prepare(context: Context, n: int, n_quick: int) -> dict[str, Any]:
    """Seconds of preparing a million pairs: `clearformer train` for one step on n pairs, less the same on 2,000."""
    n = n_quick if context.is_quick else n
    settings = ("train.steps=1", "train.tokens=1024", "train.accumulation=1", "evaluate.max_validation=8")
    times = {}
    for size in (2_000, n):
        file = corpora.random_pairs(context, size)
        out = context.folder("runs", context.row, f"{context.turn}-{size}")
        log = out.with_suffix(".log")
        words = ["--pairs", file, "--model", "transformer-tiny", "--device", context.device, "--out", str(out)]
        begun = time.monotonic()
        with log.open("w", encoding="utf-8") as output:
            options = [part for setting in settings for part in ("--set", setting)]
            done = subprocess.run([*COMMAND, "train", *words, *options], stdout=output, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(f"clearformer train: {last_line(log)}")
        times[size] = time.monotonic() - begun
    return {"values": [(times[n] - times[2_000]) * 1e6 / (n - 2_000)], "pairs": n, "seconds": round(times[n], 1)}
