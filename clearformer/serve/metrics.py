"""Measurements of a server in the text format of Prometheus, with the names of vLLM's metrics and our prefix.

    clearformer_request_success_total{model_name="en-fr-small",finished_reason="stop"} 12
    clearformer_time_to_first_token_seconds_bucket{model_name="en-fr-small",le="0.1"} 11

A histogram counts the values up to each bound, their number and their sum.
"""

import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock

PREFIX = "clearformer_"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TOKEN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
Labels = tuple[tuple[str, str], ...]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def labelled(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def line(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{escaped(text)}"' for key, text in labels)
    return f"{PREFIX}{name}{f'{{{pairs}}}' if pairs else ''} {value:.10g}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Counter:
    """A number for each combination of labels that only grows."""

    kind = "counter"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help, self.lock = name, help, Lock()
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, amount: float = 1, **labels: str) -> None:
        with self.lock:
            self.values[labelled(labels)] += amount

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self.values.items()):
            yield line(self.name, labels, value)


class Histogram:
    """Counts of values up to each bound, for each combination of labels."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float] = SECONDS) -> None:
        self.name, self.help, self.bounds, self.lock = name, help, tuple(bounds), Lock()
        self.counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self.sums: dict[Labels, float] = defaultdict(float)

    def add(self, value: float, **labels: str) -> None:
        key = labelled(labels)
        with self.lock:
            self.counts[key][bisect_left(self.bounds, value)] += 1
            self.sums[key] += value

    def lines(self) -> Iterator[str]:
        for labels, counts in sorted(self.counts.items()):
            total = 0
            for bound, n in zip([*map("{:g}".format, self.bounds), "+Inf"], counts):
                total += n
                yield line(f"{self.name}_bucket", (*labels, ("le", bound)), total)
            yield line(f"{self.name}_sum", labels, self.sums[labels])
            yield line(f"{self.name}_count", labels, total)


class Gauge:
    """A number that is read when it is asked for: read() -> values by labels."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        self.name, self.help, self.read = name, help, read

    def lines(self) -> Iterator[str]:
        for labels, value in sorted(self.read().items()):
            yield line(self.name, labels, value)


class Metrics:
    """All measurements of a server."""

    def __init__(self) -> None:
        self.requests = Counter("http_requests_total", "Requests by path, method and status.")
        self.success = Counter("request_success_total", "Sequences that ended: stop, length, abort, error.")
        self.prompt_tokens = Counter("prompt_tokens_total", "Tokens read.")
        self.generation_tokens = Counter("generation_tokens_total", "Tokens generated.")
        self.first_token = Histogram("time_to_first_token_seconds", "From a complete request to its first token.")
        self.per_token = Histogram(
            "time_per_output_token_seconds", "Between two tokens of a sequence, on average.", TOKEN_SECONDS
        )
        self.latency = Histogram("e2e_request_latency_seconds", "From a request to the last byte of its answer.")
        started = time.time()
        self.gauges = [Gauge("start_time_seconds", "When the server started.", lambda: {(): started})]

    def add_gauge(self, name: str, help: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        self.gauges.append(Gauge(name, help, read))

    def render(self) -> str:
        """Return all measurements as text."""
        counters = (self.requests, self.success, self.prompt_tokens, self.generation_tokens)
        histograms = (self.first_token, self.per_token, self.latency)
        metrics: list[Counter | Histogram | Gauge] = [*counters, *histograms, *self.gauges]
        lines = []
        for metric in metrics:
            lines += [f"# HELP {PREFIX}{metric.name} {metric.help}", f"# TYPE {PREFIX}{metric.name} {metric.kind}"]
            lines += metric.lines()
        return "\n".join([*lines, ""])


def parse(text: str) -> dict[str, float]:
    """Return the values of the text format by name and labels, as they are written: `name{a="b"}` -> value."""
    rows = re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in rows}
