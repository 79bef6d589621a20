"""The engine of the server beside offline decoding of the same texts, and beside one text at a time.

    python benchmarks/serve_engine.py [--clients 64] [--texts 768] [--seconds 60] [--device cpu] [--workers N]

For 60 seconds, after 10 others, 64 clients ask for translations by the bundled model, each for one text at a time, and
for the next one as soon as it is answered. Texts have 1 to 4 sentences of the bundled corpus' grammar, and beams of 1
to 5 hypotheses. Each contestant has a process of its own, because two pools of threads in one process take each other's
cores:

    offline         `Translator.candidates` on all texts of a beam at once: sorted by length, in large batches
    one_thread      the same with one thread of torch instead of one per core
    engine          the clients are threads; texts join and leave running batches, in as many processes as
                    `clearformer serve --workers N` starts for the model
    one_process     the same with one batch, in the process of the clients
    single          the same clients, but the engine decodes one text at a time

The result is in tokens of the best hypotheses per second, offline the median of `--repeats` turns; the engine is
compared with the better of the two offline ones. Every answer of the engine is compared with the offline one.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Thread

import torch
from process_tree import cpu_seconds, memory_mb
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.bundled import corpus
from clearformer.loading.folder import DEFAULT, find
from clearformer.memory import keep_freed_memory
from clearformer.serve.engine import Engine
from clearformer.serve.opener import Opener
from clearformer.serve.scheduler import Room
from clearformer.serve.work import Translate
from clearformer.verbs.load import open_packed

BEAMS = (1, 1, 2, 3, 4, 5)
WARM_UP = 10  # seconds
CONTESTANTS = ("offline", "one_thread", "engine", "one_process", "single")


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


def served(engine, texts, beams, n_clients, seconds):
    """Answer texts by an engine for so long, round after round; returns the row, tokens and latency of every answer."""
    numbers, end, answers = count(), time.perf_counter() + seconds, []

    def client():
        while time.perf_counter() < end:
            row = next(numbers) % len(texts)
            ticket = engine.submit(Translate([texts[row]], settings={"beam": beams[row]}))
            tokens = ticket.result()[0][0].tokens
            if time.perf_counter() < end:  # the last ones find a machine with less and less to do
                answers.append((row, tokens, ticket.finished - ticket.submitted))

    clients = [Thread(target=client) for _ in range(n_clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return answers


def n_tokens(found):
    return sum(len(tokens) + 1 for tokens in found)


def start_engine(device, room, n_workers):
    """Start an engine, and wait for its worker processes, if it has any."""
    opener = Opener(find(DEFAULT), device, open_packed)
    engine = Engine(clearformer.load(device=device), room=room, opener=opener, n_workers=n_workers)
    crew = engine.served.crew
    while crew is not None and not all(member.is_ready for member in crew.members):
        time.sleep(0.1)
    return engine


def compete(arguments):
    """Measure one contestant in this process, and print what the others are compared with."""
    keep_freed_memory()  # as the commands do
    texts, beams = mixed_texts(arguments.texts)
    is_offline = arguments.only in ("offline", "one_thread")
    outcome = decode_all(arguments, texts, beams) if is_offline else serve_all(arguments, texts, beams)
    json.dump({**outcome, "peak_mb": memory_mb(name="VmHWM")}, sys.stdout)


def decode_all(arguments, texts, beams):
    translator = clearformer.load(device=arguments.device)
    torch.set_num_threads(1 if arguments.only == "one_thread" else torch.get_num_threads())
    rates, by_cpu = [], []
    for turn in range(arguments.repeats + 1):
        started, cpu_started = time.perf_counter(), cpu_seconds()
        found = {row: answer.tokens for row, answer in offline(translator, texts, beams).items()}
        if turn > 0:  # the first is a warm-up
            rates.append(n_tokens(found.values()) / (time.perf_counter() - started))
            by_cpu.append(n_tokens(found.values()) / (cpu_seconds() - cpu_started))
    answers = [(row, tokens, None) for row, tokens in found.items()]
    return {"rate": statistics.median(rates), "by_cpu": statistics.median(by_cpu), "answers": answers}


def serve_all(arguments, texts, beams):
    is_single = arguments.only == "single"
    with ThreadPoolExecutor(1) as starter:  # a thread that ends, as in the server: OpenMP keeps threads for each
        n_workers = arguments.workers if arguments.only == "engine" else 0
        room = Room(rows=1) if is_single else None
        engine = starter.submit(start_engine, arguments.device, room, n_workers).result()
    served(engine, texts, beams, arguments.clients, WARM_UP)
    cpu_started, seconds = cpu_seconds(), arguments.seconds
    answers = served(engine, texts, beams, arguments.clients, seconds)
    n = n_tokens(tokens for _, tokens, _ in answers)
    return {"rate": n / seconds, "by_cpu": n / (cpu_seconds() - cpu_started), "answers": answers}


def differences(outcomes):
    """Return the numbers of all answers, and of those whose tokens are not the offline ones."""
    expected = {row: tokens for row, tokens, _ in outcomes["offline"]["answers"]}
    pairs = [
        (tokens, expected[row])
        for name in ("engine", "one_process", "single")
        for row, tokens, _ in outcomes[name]["answers"]
    ]
    return len(pairs), sum(tokens != theirs for tokens, theirs in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--texts", type=int, default=768)
    parser.add_argument("--seconds", type=int, default=60, help="how long the engine answers")
    parser.add_argument("--repeats", type=int, default=5, help="turns of offline decoding")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, help="worker processes of the engine; by default as many as it chooses")
    parser.add_argument("--only", choices=CONTESTANTS, help="measure one contestant in this process")
    parser.add_argument("--out", type=Path, help="a file in results/ by default")
    arguments = parser.parse_args()
    if arguments.only:
        compete(arguments)
        return
    given = {name: getattr(arguments, name) for name in ("clients", "texts", "seconds", "repeats", "device", "workers")}
    options = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    outcomes = {}
    for name in CONTESTANTS:
        command = [sys.executable, __file__, *options, "--only", name]
        outcomes[name] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    rates = {name: outcome["rate"] for name, outcome in outcomes.items()}
    seconds = sorted(latency for _, _, latency in outcomes["engine"]["answers"])
    n_answers, n_different = differences(outcomes)
    record(
        {
            "tokens_per_second": {name: round(value) for name, value in rates.items()},
            "tokens_per_cpu_second": {name: round(outcome["by_cpu"]) for name, outcome in outcomes.items()},
            "over_offline": round(rates["engine"] / max(rates["offline"], rates["one_thread"]), 2),
            "over_single": round(rates["engine"] / rates["single"], 2),
            "answers": n_answers,
            "different": n_different,
            "latency_ms": {f"p{p}": round(1000 * seconds[len(seconds) * p // 100]) for p in (50, 95, 99)},
            "peak_mb": round(outcomes["engine"]["peak_mb"]),
            **stamp(f"python benchmarks/serve_engine.py {' '.join(options)}"),
        },
        arguments.out or RESULTS / f"serve-engine-{arguments.device}.json",
    )


if __name__ == "__main__":
    main()
