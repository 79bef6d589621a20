"""Training speed of the public command on a GPU: plain steps, recorded steps (train.compile = auto), and a peer.

    python benchmarks/command_speed.py --data ../shared/data [--only tatoeba-base] [--out FILE]

Every figure is read from the metrics.jsonl of `clearformer train`: target tokens per second, including data loading,
clipping, averaged weights and logging; the median of the records in the second half of the run, with their range.
The peer of tatoeba-base is Hugging Face's Marian of the same sizes, eager, fed the batches that the command prepared.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from provenance import RESULTS, record, stamp

from clearformer.checkpoint import RunFolder
from clearformer.recipe import Recipe
from clearformer.tasks import task_named
from clearformer.training.distributed import World
from clearformer.training.feed import feed
from clearformer.training.loop import Progress

RECIPES = Path(__file__).parent.parent / "recipes"
SETTINGS = ("train.validate_every=1000000", "train.save_every=1000000", "train.patience=0")

# the arguments of `clearformer train` and the number of steps
CASES = {
    "multi30k-recipe": ("{recipes}/multi30k-en-de.toml --set data.root={data}/multi30k/revisit-mmt-bpe/en-de", 800),
    "multi30k-zero": ("--pairs {data}/multi30k/raw/train.en.gz,{data}/multi30k/raw/train.de.gz", 800),
    "tatoeba-base": ("--pairs {work}/fra.tsv --model transformer-base --set train.tokens=16384", 300),
    "ptb-lstm-small": ("{recipes}/lstm-ptb-small.toml --set data.root={data}/ptb", 1000),
}
# the values of train.compile to compare, if not off and auto
HOW = {"tatoeba-base": ("off", "graph", "blocks")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    parser.add_argument("--only", choices=CASES, help="run one case  [default: all]")
    parser.add_argument("--out", type=Path, default=RESULTS / "command-speed.json")
    args = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_pairs(args.data / "tatoeba-eng-fra" / "fra.txt.gz", work / "fra.tsv")
        for name in [args.only] if args.only else CASES:
            rows = {how: by_command(name, how, args.data.resolve(), work) for how in HOW.get(name, ("off", "auto"))}
            if name == "tatoeba-base":
                rows["marian-eager"] = {"tokens_per_second": marian(work / f"{name}-graph")}
            results[name] = rows
            print(name, json.dumps(rows), flush=True)
            machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
            record({"target_tokens_per_second": results, "device": machine, **provenance()}, args.out)


def provenance():
    try:
        from importlib.metadata import version

        return stamp("python benchmarks/command_speed.py", transformers=version("transformers"))
    except ImportError:
        return stamp("python benchmarks/command_speed.py")


def write_pairs(source, target):
    """The first two columns of a Tatoeba file."""
    with gzip.open(source, "rt", encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
        out.writelines("\t".join(line.split("\t")[:2]).rstrip("\n") + "\n" for line in lines)


def by_command(name, how, data, work):
    arguments, steps = CASES[name]
    out = work / f"{name}-{how}"
    words = arguments.format(recipes=RECIPES, data=data, work=work).split()
    settings = [*SETTINGS, f"train.steps={steps}", f"train.compile={how}"]
    command = [sys.executable, "-m", "clearformer", "train", *words, "--out", str(out)]
    begun = time.monotonic()
    subprocess.run([*command, *(word for setting in settings for word in ("--set", setting))], check=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [row["tokens_per_s"] for row in rows if row["kind"] == "train"]
    late = rates[len(rates) // 2 :]
    return {
        "tokens_per_second": round(statistics.median(late)),
        "range": [round(min(late)), round(max(late))],
        "seconds_of_command": round(time.monotonic() - begun, 1),
        "loss": round(next(row["loss"] for row in reversed(rows) if row["kind"] == "train"), 4),
    }


def marian(folder, n_warm=60, n=100):
    """Target tokens per second of Marian on the batches of a run; None if transformers is not installed."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError:
        return None
    run = RunFolder(folder)
    recipe = Recipe.read(run.recipe)
    task = task_named(recipe.objective.kind)(recipe, run)
    task.load()
    sizes = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "max_position_embeddings": 512}
    ids = {"pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2}
    config = MarianConfig(vocab_size=recipe.model.source_vocab, dropout=0.1, use_cache=False, **sizes, **heads, **ids)
    device = torch.device("cuda", 0)
    model = MarianMTModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)
    n_tokens, begun = 0, 0.0
    for i, (batches, count) in enumerate(feed(task.steps(World()), Progress(), n_warm + n, World(), device)):
        if i == n_warm:
            torch.cuda.synchronize()
            n_tokens, begun = 0, time.perf_counter()
        batch = batches[0]
        with torch.autocast("cuda", torch.bfloat16):
            inputs = {"input_ids": batch.source, "attention_mask": batch.source_mask.long()}
            loss = model(**inputs, decoder_input_ids=batch.target, labels=batch.labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        n_tokens += count
    torch.cuda.synchronize()
    return round(n_tokens / (time.perf_counter() - begun))


if __name__ == "__main__":
    main()
