"""`clearformer serve` under the load of many HTTP clients, beside offline decoding, one client, and Hugging Face.

    python benchmarks/serve_http.py [--clients 64] [--seconds 60] [--out FILE]
    python benchmarks/serve_http.py --minutes 10 [--out FILE]                          only the memory of the server
    python benchmarks/serve_http.py --device cuda --clients 256 [--model runs/gpt2] [--workers 8]    on a GPU

The clients are another process on the same cores (http_clients.py). Each asks for one text at a time, of 1 to 4
sentences, with a beam of 1 to 5; greedy ones are streamed. Every answer is compared with offline decoding.

    offline     all texts at once by the handle that `load` returns: the better of one thread and of all threads
    served      the clients together
    one_client  the same requests to the same server, one after the other
    bare        the clients together, and a loop of `generate` of transformers behind FastAPI (bare_generate.py), on
                the same weights, with as many threads; its beams are not streamed, and neither are greedy searches

Throughput is in tokens of the best hypotheses per second. `memory_mb` is the resident set of the server and its worker
processes after its first answer, at its peak and at the end. A language model instead of a translator continues texts.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from process_tree import memory_mb
from provenance import RESULTS, record, stamp
from serve_engine import mixed_texts, offline

import clearformer
from clearformer.handles.translator import Translator
from clearformer.memory import keep_freed_memory
from clearformer.verbs.export import export_model

HERE = Path(__file__).parent
DEFAULT = "en-fr-small"
MAX_TOKENS = 64  # of the continuations of a language model


@contextmanager
def process(*words):
    """Start a server, and yield its process and the address that it prints."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=log, text=True) as one,
    ):
        try:
            match = re.search(r"http://[\d.]+:\d+", one.stdout.readline())
            if match is None:
                log.seek(0)
                raise SystemExit(log.read())
            yield one, match[0]
        finally:
            one.terminate()
            one.communicate(timeout=60)


def requests_for(handle, texts, beams, is_streamed=True):
    """Return the requests for all texts. Greedy ones are streamed."""
    stream = [{"stream": True} if is_streamed and beam == 1 else {} for beam in beams]
    if isinstance(handle, Translator):
        bodies = [{"text": text, "beam": beam, **more} for text, beam, more in zip(texts, beams, stream)]
        return [{"path": "/v1/translate", "body": body} for body in bodies]
    settings = {"max_tokens": MAX_TOKENS, "temperature": 0}
    bodies = [{"prompt": text, "beam": beam, **settings, **more} for text, beam, more in zip(texts, beams, stream)]
    return [{"path": "/v1/completions", "body": body} for body in bodies]


def decode_offline(handle, texts, beams):
    """Return the text and the number of tokens of every answer, EOS included."""
    if isinstance(handle, Translator):
        answers = offline(handle, texts, beams)
    else:
        answers = {}
        for beam in sorted(set(beams)):
            rows = [row for row in range(len(texts)) if beams[row] == beam]
            found = handle.writer().generate(
                [texts[row] for row in rows], beam=beam, max_new=MAX_TOKENS, temperature=0.0
            )
            answers.update({row: one[0] for row, one in zip(rows, found)})
    return {row: (answer.text, len(answer.tokens) + 1) for row, answer in answers.items()}


def offline_rates(handle, texts, beams):
    """Return the answers, and the tokens per second with one thread and with all."""
    rates, most = {}, torch.get_num_threads()
    for name, threads in (("one_thread", 1), ("all_threads", most)):
        torch.set_num_threads(threads)
        expected = decode_offline(handle, texts, beams)  # a warm-up
        begin = time.perf_counter()
        expected = decode_offline(handle, texts, beams)
        rates[name] = sum(n for _, n in expected.values()) / (time.perf_counter() - begin)
    torch.set_num_threads(most)
    return expected, rates


def ask(url, requests, n_clients, seconds):
    command = [sys.executable, str(HERE / "http_clients.py"), url, str(n_clients), str(seconds)]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def summary(outcome, expected, beams):
    """Return throughput, errors, differences and latencies of what the clients saw."""
    answers = outcome["answers"]
    right = [one for one in answers if one[1] == 200]
    errors = [one[2] or one[1] for one in answers if one[1] != 200 or one[2] is None]
    different = [[row, expected[row][0], text] for row, _, text, *_ in right if text != expected[row][0]]
    streamed = [first for row, _, _, first, _ in right if beams[row] == 1]
    return {
        "answers": len(answers),
        "errors": len(errors),
        "different": len(different),
        "tokens_per_second": round(sum(expected[row][1] for row, *_ in right) / outcome["seconds"]),
        "first_token_ms": percentiles(streamed),
        "last_token_ms": percentiles([last for *_, last in right]),
        "examples": [*errors[:3], *different[:3]],
    }


def percentiles(seconds):
    ordered = sorted(seconds)
    return {f"p{p}": round(1000 * ordered[len(ordered) * p // 100]) for p in (50, 95, 99)} if ordered else {}


def serve_words(arguments):
    words = ["-m", "clearformer", "serve", "--port", "0", "--device", arguments.device, "--model", arguments.model]
    return words if arguments.workers is None else [*words, "--workers", str(arguments.workers)]


def measure(arguments):
    texts, beams = mixed_texts(arguments.texts)
    handle = clearformer.load(arguments.model, device=arguments.device)
    expected, rates = offline_rates(handle, texts, beams)
    requests = requests_for(handle, texts, beams)
    result = {"offline_tokens_per_second": {name: round(rate) for name, rate in rates.items()}}
    with process(*serve_words(arguments)) as (server, url):
        ask(url, requests, 1, 0.01)
        start = memory_mb(server.pid)
        ask(url, requests, arguments.clients, 3)  # a warm-up
        result["served"] = summary(ask(url, requests, arguments.clients, arguments.seconds), expected, beams)
        result["served"]["memory_mb"] = {
            "start": start,
            "peak": memory_mb(server.pid, "VmHWM"),
            "end": memory_mb(server.pid),
        }
        result["one_client"] = summary(ask(url, requests, 1, arguments.seconds / 4), expected, beams)
    if arguments.model == DEFAULT:
        result["bare"] = bare(arguments, requests_for(handle, texts, beams, is_streamed=False), expected, beams)
    ours = result["served"]["tokens_per_second"]
    result["over_offline"] = round(ours / max(rates.values()), 2)
    result["over_one_client"] = round(ours / result["one_client"]["tokens_per_second"], 2)
    if "bare" in result:
        result["over_bare"] = round(ours / result["bare"]["tokens_per_second"], 2)
    return result


def bare(arguments, requests, expected, beams):
    """Return what the clients see of the loop around `generate`: it has the same weights, exported by us."""
    with tempfile.TemporaryDirectory() as folder:
        export_model(DEFAULT, f"{folder}/model")
        words = (str(HERE / "bare_generate.py"), f"{folder}/model", "--device", arguments.device)
        with process(*words) as (server, url):
            ask(url, requests, 1, 0.01)
            outcome = summary(ask(url, requests, arguments.clients, arguments.seconds / 2), expected, beams)
            return {**outcome, "memory_mb": {"peak": memory_mb(server.pid, "VmHWM")}}


def soak(arguments):
    """Return the memory of a server after every minute under load."""
    texts, beams = mixed_texts(arguments.texts)
    handle = clearformer.load(arguments.model, device=arguments.device)
    expected, requests = decode_offline(handle, texts, beams), requests_for(handle, texts, beams)
    minutes, answers, errors, different = [], 0, 0, 0
    with process(*serve_words(arguments)) as (server, url):
        ask(url, requests, 1, 0.01)
        start = memory_mb(server.pid)
        for _ in range(arguments.minutes):
            seen = summary(ask(url, requests, arguments.clients, 60), expected, beams)
            minutes.append(memory_mb(server.pid))
            answers, errors, different = (
                total + seen[name]
                for total, name in ((answers, "answers"), (errors, "errors"), (different, "different"))
            )
        peak = memory_mb(server.pid, "VmHWM")
    growth = round(minutes[-1] - minutes[0]) if len(minutes) > 1 else None
    totals = {"answers": answers, "errors": errors, "different": different}
    return {**totals, "memory_mb": {"start": start, "by_minute": minutes, "peak": peak}, "growth_mb": growth}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=768)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--minutes", type=int, help="observe only the memory of the server, for so long")
    parser.add_argument("--model", default=DEFAULT, help="a run folder or a Hugging Face folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, help="worker processes of the server; by default as many as it chooses")
    parser.add_argument("--out", type=Path, help="a file in results/ by default")
    arguments = parser.parse_args()
    out = arguments.out or RESULTS / ("serve-soak.json" if arguments.minutes else "serve-http.json")
    keep_freed_memory()  # as the commands do
    result = soak(arguments) if arguments.minutes else measure(arguments)
    names = ("clients", "texts", "minutes" if arguments.minutes else "seconds", "model", "device", "workers")
    given = [f"--{name} {value}" for name in names if (value := getattr(arguments, name)) is not None]
    command = f"python benchmarks/serve_http.py {' '.join(given)}"
    record({**result, **stamp(command, transformers=version("transformers"))}, out)


if __name__ == "__main__":
    main()
