"""Training speed of the Penn Treebank LSTMs, compared with plain torch.nn.LSTM code of the same size.

    python benchmarks/lstm_speed.py [--device cuda] [--out FILE]

The sizes and dropout of recipes/lstm-ptb-small.toml and -medium.toml, float32, 20 rows that continue from batch to
batch, SGD with clipping. `ours` is the whole trainer: batches read from disk, state carried and detached, random
generators seeded, losses and gradient norms recorded. The plain code keeps its tokens on the device and only trains.
Results are tokens per second, the median of five timings of 200 steps each; the two take turns.
"""

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from provenance import RESULTS, record, stamp
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.store import DocumentWriter
from clearformer.data.streams import Streams
from clearformer.models.build import build_model
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.training.feed import Steps, feed
from clearformer.training.loop import Progress, Trainer

RECIPES = Path(__file__).parent.parent / "recipes"
VOCAB, ROWS, REPEATS = 10_000, 20, 5


def timed(runs, n, tokens, device):
    """Tokens per second of each run over `n` steps, taking turns, after `n` steps of warm-up."""
    rates = [[] for _ in runs]
    for _ in range(REPEATS + 1):
        for run, timings in zip(runs, rates):
            finish(device)
            begun = time.perf_counter()
            for _ in range(n):
                next(run)
            finish(device)
            timings.append(n * tokens / (time.perf_counter() - begun))
    return [round(statistics.median(timings[1:])) for timings in rates]


def finish(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def ours(recipe, stream, device, folder):
    with DocumentWriter(folder / "text", VOCAB, 0) as writer:
        writer.add([stream.tolist()])
        store = writer.close()
    model = build_model(recipe.model.changed(vocab=VOCAB)).to(device)
    optimizer = recipe.optim.build(model)
    objective, world = CausalLM(CausalLMConfig()), World()
    trainer = Trainer(
        model, objective, optimizer, recipe.schedule, recipe.train, RunFolder(folder), device, world,
        carried=objective.carried,
    )  # fmt: skip
    steps = Steps(Streams(store, recipe.data.length, ROWS, joined=True), 1)
    model.train()
    for batches, count in feed(steps, Progress(), 10**9, world, device):
        trainer.step(batches, count)
        yield


def plain(recipe, stream, device):
    config, length = recipe.model, recipe.data.length
    drop, D = nn.Dropout(config.dropout), config.d_model
    embedding, head = nn.Embedding(VOCAB, D), nn.Linear(D, VOCAB)
    lstm = nn.LSTM(D, D, config.n_layers, batch_first=True, dropout=config.dropout)
    model = nn.ModuleList([embedding, lstm, head]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), recipe.optim.lr)
    rows = torch.from_numpy(stream[: len(stream) // ROWS * ROWS].reshape(ROWS, -1)).to(device)
    while True:
        state = None
        for at in range(0, rows.size(1) - length - 1, length):
            read, state = lstm(drop(embedding(rows[:, at : at + length])), state)
            state = tuple(part.detach() for part in state)
            labels = rows[:, at + 1 : at + 1 + length]
            F.cross_entropy(head(drop(read)).flatten(0, 1), labels.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=200, help="steps per timing")
    parser.add_argument("--out", type=Path, default=RESULTS / "lstm-speed.json")
    args = parser.parse_args()
    device = torch.device(args.device)
    stream = np.random.default_rng(0).integers(0, VOCAB, 929_589)
    results = {}
    for size in ("small", "medium"):
        recipe = Recipe.read(RECIPES / f"lstm-ptb-{size}.toml")
        tokens = ROWS * recipe.data.length
        with TemporaryDirectory() as folder:
            runs = [ours(recipe, stream, device, Path(folder)), plain(recipe, stream, device)]
            rate, plain_rate = timed(runs, args.steps, tokens, device)
        results[size] = {"ours": rate, "plain": plain_rate, "ratio": round(rate / plain_rate, 2)}
        print(size, results[size], flush=True)
    record({**results, **stamp(f"python benchmarks/lstm_speed.py --device {device}")}, args.out)


if __name__ == "__main__":
    main()
