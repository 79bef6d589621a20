"""What it costs a training to be watched by the studio: its speed alone, and with a server and a stream of events.

    python benchmarks/studio_watch.py [--rounds 7] [--steps 200] [--threads 2] [--out FILE]

`clearformer train` with the recipe of the demo on a CPU, which writes a record every few steps. `clearformer studio` is
started before a watched training, and a client reads GET /api/metrics as a stream of events, as the Training page does;
every record of the training must arrive. Trainings alone and watched take turns. The speed of a training is the median
of its target tokens per second in the second half; `cost_percent` is the median over the rounds of alone / watched − 1,
and `noise_percent` the same of a second training alone, compared with the first one.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

from provenance import RESULTS, record, stamp

from clearformer.bundled.corpus import splits, write_corpus

RECIPE = Path(__file__).parent.parent / "clearformer" / "bundled" / "demo.toml"
LOG_EVERY, SETTLED_SECONDS = 5, 8


def train(corpus: Path, out: Path, steps: int, threads: int) -> list[dict[str, Any]]:
    """Train, and return the records of metrics.jsonl."""
    settings = [f"data.root={corpus}", f"train.steps={steps}", f"train.log_every={LOG_EVERY}"]
    settings += [f"train.validate_every={steps}", "evaluate.max_validation=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "clearformer", "train", str(RECIPE), "--device", "cpu", "--out", str(out), *words]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, capture_output=True, check=True)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def speed(records: list[dict[str, Any]]) -> float:
    rates = [row["tokens_per_s"] for row in records if row["kind"] == "train"]
    return statistics.median(rates[len(rates) // 2 :])


class Watch:
    """A client that reads the events of a run until the server ends, and counts their records."""

    def __init__(self, url: str, run: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self.n_records = 0
        self.connection = HTTPConnection(address.hostname, address.port)
        token = address.query.removeprefix("token=")
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        self.connection.request("GET", f"/api/metrics?{urlencode({'run': run})}", headers=headers)
        self.thread = Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        name = b""
        for line in self.connection.getresponse():
            if line.startswith(b"event: "):
                name = line[7:].strip()
            elif line.startswith(b"data: ") and name == b"records":
                self.n_records += len(json.loads(line[6:])["records"])


@contextmanager
def watched(runs: Path, run: Path) -> Iterator[Watch]:
    """Serve the studio, and read the events of a run that begins."""
    run.mkdir()
    (run / "metrics.jsonl").touch()  # the training takes the folder over
    command = [sys.executable, "-m", "clearformer", "studio", "--no-open", "--runs", str(runs)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    watch = Watch(server.stdout.readline().strip(), run.name)
    time.sleep(SETTLED_SECONDS)  # until it has opened the bundled model, as it does once at its start
    try:
        yield watch
        time.sleep(2)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        watch.thread.join(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "studio-watch.json")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        corpus, runs = Path(folder) / "corpus", Path(folder) / "runs"
        write_corpus(splits(train=24_000, seed=0), corpus)
        runs.mkdir()
        for i in range(given.rounds):
            row = {"alone": speed(train(corpus, runs / f"alone-{i}", given.steps, given.threads))}
            with watched(runs, runs / f"watched-{i}") as watch:
                records = train(corpus, runs / f"watched-{i}", given.steps, given.threads)
            assert watch.n_records == len(records), f"{watch.n_records} of {len(records)} records have arrived"
            row["watched"] = speed(records)
            row["again"] = speed(train(corpus, runs / f"again-{i}", given.steps, given.threads))
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    cost, noise = ([100 * (row["alone"] / row[name] - 1) for row in rows] for name in ("watched", "again"))
    result = {
        **stamp("python benchmarks/studio_watch.py"),
        "cores": os.cpu_count(),
        "threads": given.threads,
        "steps": given.steps,
        "target_tokens_per_second": round(statistics.median(row["alone"] for row in rows)),
        "cost_percent": round(statistics.median(cost), 2),
        "noise_percent": round(statistics.median(noise), 2),
        "cost_percent_by_round": [round(value, 2) for value in cost],
        "noise_percent_by_round": [round(value, 2) for value in noise],
    }
    record(result, given.out)


if __name__ == "__main__":
    main()
