"""Training speed of the public command on the CPU, compared with torch.nn.Transformer on the same batches.

    python benchmarks/cpu_train.py [--only demo] [--rounds 5] [--steps 100] [--more] [--out FILE]

The recipe is the one of `clearformer demo` (2 + 2 layers), or the same with the layers of transformer-tiny (4 + 4), in
float32. The command is `clearformer train`; its target tokens per second are read from metrics.jsonl, including data
loading, clipping, averaged weights and logging. The peer is nn.Transformer of the same sizes with tied embeddings,
pre-norm, label smoothing, clipping and AdamW. It reads the batches that the command prepared, with the same loader
thread, and has no averaged weights. Its dropout is where Clearformer has it, on embeddings and sublayer outputs;
"nn-transformer-dropout" keeps the dropout on attention patterns and activations that nn.Transformer has by default.

Every engine runs in a separate process with 1 and with 2 threads, and the engines take turns. The speed of a run is the
median over windows of 25 steps in its second half; a result is the median of the runs, with their range. Ratios
compare the better number of threads of each engine, and for the peers also the better of fused and foreach AdamW.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import RESULTS, record, stamp

RECIPE = Path(__file__).parent.parent / "clearformer" / "bundled" / "demo.toml"
CASES = {"demo": (), "transformer-tiny": ("model.n_encoder_layers=4", "model.n_decoder_layers=4")}
WINDOW = 25  # steps
PEERS = ("nn-transformer", "nn-transformer-dropout")
OPTIMIZERS = ("fused", "foreach")
THREADS = (1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="run one case  [default: all]")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every engine  [default: 5]")
    parser.add_argument("--steps", type=int, default=100, help="training steps of a run  [default: 100]")
    parser.add_argument("--more", action="store_true", help="add rounds to the result in --out")
    parser.add_argument("--set", action="append", default=[], help="override a key of the recipe; repeatable")
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu-train.json")
    parser.add_argument("--peer", nargs=3, metavar=("NAME", "RUN", "OPTIMIZER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        name, run, optimizer = options.peer
        print(json.dumps(train_peer(name, Path(run), optimizer, options.steps)))
        return
    results = json.loads(options.out.read_text())["target_tokens_per_second"] if options.more else {}
    with tempfile.TemporaryDirectory() as folder:
        write_demo_corpus(Path(folder) / "corpus")
        for case in [options.only] if options.only else CASES:
            settings = [*CASES[case], *options.set]
            rates = {name: {int(t): row["runs"] for t, row in by.items()} for name, by in runs_of(results, case)}
            results[case] = compare(Path(folder), case, settings, options.rounds, options.steps, rates)
            words = [f"--set {setting}" for setting in options.set] + ([f"--only {case}"] if options.only else [])
            command = " ".join(["python benchmarks/cpu_train.py", *words, f"--steps {options.steps}"])
            record({"target_tokens_per_second": results, **stamp(command)}, options.out)


def write_demo_corpus(folder):
    from clearformer.bundled.corpus import splits, write_corpus

    write_corpus(splits(train=24_000, seed=0), folder)


def runs_of(results, case):
    return results[case]["by_threads"].items() if case in results else ()


def compare(work, case, settings, rounds, steps, rates):
    """The speeds of the command and of the peers, in turns, added to those in `rates`, by engine and threads."""
    for i in range(rounds):
        for threads in THREADS:
            run = work / f"{case}-{i}-{threads}"
            add(rates, "clearformer", threads, train_by_command(run, work / "corpus", settings, steps, threads))
            for name in PEERS:
                for optimizer in OPTIMIZERS:
                    peer = ["--peer", name, str(run), optimizer, "--steps", str(steps)]
                    done = subprocess.run([sys.executable, __file__, *peer], env=environment(threads), **CAPTURE)
                    add(rates, f"{name} {optimizer}", threads, json.loads(done.stdout))
    by_threads = {engine: {t: summary(values) for t, values in by.items()} for engine, by in rates.items()}
    medians = {engine: max(row["tokens_per_second"] for row in by.values()) for engine, by in by_threads.items()}
    best = {name: max(medians[engine] for engine in medians if engine.split()[0] == name) for name in ENGINES}
    ratios = {f"over_{name}": round(best["clearformer"] / best[name], 2) for name in PEERS}
    return {**best, **ratios, "by_threads": by_threads}


CAPTURE = {"check": True, "stdout": subprocess.PIPE, "text": True}
ENGINES = ("clearformer", *PEERS)


def add(rates, engine, threads, rate):
    rates.setdefault(engine, {}).setdefault(threads, []).append(rate)
    print(f"{engine:30} threads: {threads} {rate:9,.0f} tokens/s", file=sys.stderr, flush=True)


def summary(values):
    runs = [round(value) for value in values]
    return {"tokens_per_second": round(statistics.median(runs)), "range": [min(runs), max(runs)], "runs": runs}


def environment(threads):
    return {**os.environ, "OMP_NUM_THREADS": str(threads)}


def train_by_command(out, corpus, settings, steps, threads):
    """Target tokens per second of `clearformer train`, without validation during the measured steps."""
    fixed = [f"data.root={corpus}", f"train.steps={steps}", f"train.log_every={WINDOW}"]
    fixed += [f"train.validate_every={steps}", "evaluate.max_validation=1"]
    words = [word for setting in (*fixed, *settings) for word in ("--set", setting)]
    command = [sys.executable, "-m", "clearformer", "train", str(RECIPE), "--device", "cpu", "--out", str(out)]
    subprocess.run([*command, *words], env=environment(threads), stderr=subprocess.PIPE, **CAPTURE)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return late_median([row["tokens_per_s"] for row in rows if row["kind"] == "train"])


def late_median(rates):
    return statistics.median(rates[len(rates) // 2 :])


def train_peer(name, folder, kind, steps):
    """Target tokens per second of nn.Transformer on the batches of a run. Runs in a separate process."""
    import torch

    from clearformer.checkpoint import RunFolder
    from clearformer.recipe import Recipe
    from clearformer.tasks import task_named
    from clearformer.training.distributed import World
    from clearformer.training.feed import feed
    from clearformer.training.loop import Progress

    run = RunFolder(folder)
    recipe = Recipe.read(run.recipe)
    task = task_named(recipe.objective.kind)(recipe, run)
    task.load()
    torch.manual_seed(0)
    model = build_peer(recipe.model, has_all_dropout=name == "nn-transformer-dropout").train()
    settings = {"betas": recipe.optim.betas, "weight_decay": recipe.optim.weight_decay, kind: True}
    optimizer = torch.optim.AdamW(model.parameters(), recipe.optim.lr, **settings)
    rates, n_tokens, begun = [], 0, time.perf_counter()
    for i, (batches, count) in enumerate(feed(task.steps(World()), Progress(), steps, World(), torch.device("cpu"))):
        for group in optimizer.param_groups:
            group["lr"] = recipe.optim.lr * recipe.schedule.factor(i + 1, steps)
        loss = model(batches[0], recipe.objective.label_smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        n_tokens += count
        if (i + 1) % WINDOW == 0:
            print(f"step {i + 1} loss {loss.item():.3f}", file=sys.stderr)
            rates.append(n_tokens / (time.perf_counter() - begun))
            n_tokens, begun = 0, time.perf_counter()
    return late_median(rates)


def build_peer(config, has_all_dropout):
    """nn.Transformer with embeddings and a head tied to them, of the sizes of a recipe."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Peer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(config.target_vocab, config.d_model)
            nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
            self.register_buffer("positions", sinusoids(config.max_length, config.d_model))
            self.dropout = nn.Dropout(config.dropout)
            sizes = (config.d_model, config.n_heads, config.n_encoder_layers, config.n_decoder_layers, config.d_ff)
            self.transformer = nn.Transformer(*sizes, config.dropout, batch_first=True, norm_first=True)

        def embed(self, tokens):
            return self.dropout(self.embedding(tokens) * config.d_model**0.5 + self.positions[: tokens.size(1)])

        def forward(self, batch, label_smoothing):
            padding = ~batch.source_mask
            causal = nn.Transformer.generate_square_subsequent_mask(batch.target.size(1))
            hidden = self.transformer(
                self.embed(batch.source),
                self.embed(batch.target),
                tgt_mask=causal,
                tgt_is_causal=True,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
            logits = F.linear(hidden, self.embedding.weight).flatten(0, 1)
            return F.cross_entropy(logits, batch.labels.flatten(), ignore_index=-100, label_smoothing=label_smoothing)

    def sinusoids(n, width):
        angles = torch.arange(n)[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
        return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)

    model = Peer()
    if not has_all_dropout:
        for layer in (*model.transformer.encoder.layers, *model.transformer.decoder.layers):
            layer.dropout.p = 0.0  # inside the feed-forward network
            for attention in (layer.self_attn, getattr(layer, "multihead_attn", None)):
                if attention is not None:
                    attention.dropout = 0.0
    return model


if __name__ == "__main__":
    main()
