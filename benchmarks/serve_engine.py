"""The engine of the server beside offline decoding of the same texts, and beside one text at a time.

    python benchmarks/serve_engine.py [--clients 64] [--texts 768] [--repeats 5] [--device cpu] [--out FILE]

64 clients ask for translations by the bundled model, each for one text at a time, and for the next one as soon as it is
answered. Texts have 1 to 4 sentences of the bundled corpus' grammar, and beams of 1 to 5 hypotheses. In turn, and in
one process:

    offline         `Translator.candidates` on all texts of a beam at once: sorted by length, in large batches
    one_thread      the same with one thread of torch instead of one per core
    engine          the clients are threads; texts join and leave one running batch
    single          the same clients and a part of the texts, but the engine decodes one text at a time

The result is the median of the repeats, in tokens of the best hypotheses per second; the engine is compared with the
better of the two offline ones. Every answer of the engine is compared with the offline one.
"""

import argparse
import random
import statistics
import time
from pathlib import Path
from threading import Lock, Thread

import torch
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.bundled import corpus
from clearformer.memory import keep_freed_memory, peak_mb
from clearformer.serve.engine import Engine
from clearformer.serve.scheduler import Room
from clearformer.serve.work import Translate

BEAMS = (1, 1, 2, 3, 4, 5)


def mixed_texts(n, seed=0):
    """Return texts of different lengths, and the beam that each is translated with."""
    draw = random.Random(seed)
    sentences = [pair.english + "." for depth in (0, 1, 2) for pair in corpus.generate(200, seed=depth, depth=depth)]
    texts = [" ".join(draw.choices(sentences, k=draw.choice((1, 1, 1, 1, 2, 2, 3, 4)))) for _ in range(n)]
    return texts, [draw.choice(BEAMS) for _ in texts]


def offline(translator, texts, beams):
    answers = {}
    for beam in sorted(set(beams)):
        rows = [row for row in range(len(texts)) if beams[row] == beam]
        found = translator.candidates([texts[row] for row in rows], beam=beam)
        answers.update({row: candidates[0] for row, candidates in zip(rows, found)})
    return answers


def served(engine, texts, beams, n_clients):
    """Answer all texts by an engine; returns the answers, and the seconds that each took from request to answer."""
    rows, lock, answers, seconds = iter(range(len(texts))), Lock(), {}, []

    def client():
        while True:
            with lock:
                row = next(rows, None)
            if row is None:
                return
            ticket = engine.submit(Translate([texts[row]], settings={"beam": beams[row]}))
            answers[row] = ticket.result()[0][0]
            seconds.append(ticket.finished - ticket.submitted)

    clients = [Thread(target=client) for _ in range(n_clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return answers, seconds


def n_tokens(answers):
    return sum(len(answer.tokens) + 1 for answer in answers.values())


def differences(expected, answers, texts):
    """Return the answers that differ, with the scores of both."""
    return [
        {"text": texts[row], "offline": theirs.text, "engine": ours.text, "scores": [theirs.score, ours.score]}
        for row, ours in sorted(answers.items())
        if (theirs := expected[row]).tokens != ours.tokens
    ]


def timed(work):
    """Return the result of a function, the seconds that it took, and those of the processor."""
    started, cpu_started = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - started, time.process_time() - cpu_started


def measure(arguments, texts, beams):
    """Return the rates of all contestants, by wall time and by processor time, and what the clients saw."""
    translator, threads = clearformer.load(device=arguments.device), torch.get_num_threads()
    engine, single = Engine(translator), Engine(translator, room=Room(rows=1))
    some = texts[: arguments.singles]
    contestants = {
        "offline": lambda: (torch.set_num_threads(threads), offline(translator, texts, beams))[1:],
        "one_thread": lambda: (torch.set_num_threads(1), offline(translator, texts, beams))[1:],
        "engine": lambda: served(engine, texts, beams, arguments.clients),
        "single": lambda: served(single, some, beams, arguments.clients),
    }
    rates, cpu = ({name: [] for name in contestants} for _ in range(2))
    different, seconds, expected = [], [], {}
    for turn in range(arguments.repeats + 1):
        for name, work in contestants.items():
            (answers, *latencies), wall, used = timed(work)
            if turn == 0:  # a warm-up
                continue
            rates[name].append(n_tokens(answers) / wall)
            cpu[name].append(n_tokens(answers) / used)
            if name == "offline":
                expected = answers
            different += differences(expected, answers, texts)
            seconds += latencies[0] if name == "engine" else []
    engine.close()
    single.close()
    return rates, cpu, different, sorted(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=768)
    parser.add_argument("--singles", type=int, default=96, help="texts that are decoded one at a time")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS / "serve-engine.json")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the commands do
    rates, cpu, different, seconds = measure(arguments, *(mixed := mixed_texts(arguments.texts)))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    by_cpu = {name: statistics.median(values) for name, values in cpu.items()}
    options = [f"--{name} {getattr(arguments, name)}" for name in ("clients", "texts", "singles", "repeats", "device")]
    record(
        {
            "tokens_per_second": {name: round(value) for name, value in medians.items()},
            "tokens_per_cpu_second": {name: round(value) for name, value in by_cpu.items()},
            "over_offline": round(medians["engine"] / max(medians["offline"], medians["one_thread"]), 2),
            "over_single": round(medians["engine"] / medians["single"], 2),
            "answers": arguments.repeats * (len(mixed[0]) + min(arguments.singles, len(mixed[0]))),
            "different": len(different),
            "differences": different[:10],
            "latency_ms": {f"p{p}": round(1000 * seconds[len(seconds) * p // 100]) for p in (50, 95, 99)},
            "peak_mb": round(peak_mb()),
            **stamp(f"python benchmarks/serve_engine.py {' '.join(options)}"),
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
