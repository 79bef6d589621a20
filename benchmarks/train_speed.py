"""Training speed on CUDA, compared with torch.nn.Transformer in the same bare loop, precision and process.

    python benchmarks/train_speed.py [--out FILE] [--only WORD]

Transformer-base (6+6 layers, width 512, feed-forward width 2048, 8 heads, vocabulary 32768, dropout 0.1 in the same
places as nn.Transformer), 256 pairs of 64 + 64 tokens, bf16 autocast, fused AdamW: forward, backward, step. Results
are target tokens per second, the median of five timings of 20 steps each.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from provenance import RESULTS, record, stamp
from torch import nn

from clearformer.data.batch import Batch
from clearformer.models.build import build_model
from clearformer.models.transformer import TransformerConfig
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.training.compiling import compiled

PAIRS, LENGTH, VOCAB = 256, 64, 32768
DROPOUT = 0.1


def timed(step, warm=8, n=20, repeats=5):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    rates = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        for _ in range(n):
            step()
        end.record()
        torch.cuda.synchronize()
        rates.append(n * PAIRS * LENGTH / (start.elapsed_time(end) / 1e3))
    return round(statistics.median(rates))


def ours(how):
    config = TransformerConfig(
        source_vocab=VOCAB,
        target_vocab=VOCAB,
        dropout=DROPOUT,
        attention_dropout=DROPOUT,
        activation_dropout=DROPOUT,
        residual="post",
    )
    model = build_model(config).cuda().train()
    objective = Translation(TranslationConfig(label_smoothing=0.1))
    x = torch.randint(3, VOCAB, (PAIRS, LENGTH), device="cuda")
    y = torch.randint(3, VOCAB, (PAIRS, LENGTH), device="cuda")
    batch = Batch(x, None, y, y, PAIRS * LENGTH)
    loss = compiled(objective, model, how)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            total, count = loss(model, batch)
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def peer(is_compiled):
    class Peer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCAB, 512)
            self.positions = nn.Embedding(512, 512)
            self.transformer = nn.Transformer(512, 8, 6, 6, 2048, DROPOUT, batch_first=True)

        def forward(self, x, y):
            where = torch.arange(LENGTH, device=x.device)
            mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=x.device)
            source, target = (self.embedding(tokens) + self.positions(where) for tokens in (x, y))
            hidden = self.transformer(source, target, tgt_mask=mask, tgt_is_causal=True)
            logits = (hidden @ self.embedding.weight.t()).flatten(0, 1).float()
            return F.cross_entropy(logits, y.flatten(), label_smoothing=0.1)

    model = Peer().cuda().train()
    run = torch.compile(model) if is_compiled else model
    x = torch.randint(3, VOCAB, (PAIRS, LENGTH), device="cuda")
    y = torch.randint(3, VOCAB, (PAIRS, LENGTH), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


ENGINES = {
    "nn-transformer": lambda: peer(True),
    "eager": lambda: ours("off"),
    "blocks": lambda: ours("blocks"),
    "whole": lambda: ours("whole"),
    "nn-transformer-again": lambda: peer(True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "train-speed.json")
    parser.add_argument("--only", default="", help="measure only engines with this text in their name")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    rows = {}
    for name, build in ENGINES.items():
        if arguments.only not in name:
            continue
        # Ours runs without cuDNN's attention, which is slow for batches of varying shapes; nn.Transformer uses it.
        torch.backends.cuda.enable_cudnn_sdp(name.startswith("nn-"))
        begun = time.monotonic()
        rows[name] = timed(build())
        print(
            f"{name:22} {rows[name]:>10,} target tokens/s   ({time.monotonic() - begun:.0f} s with warm-up)", flush=True
        )
        gc.collect()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    record({"tokens_per_second": rows, **stamp("python benchmarks/train_speed.py")}, arguments.out)


if __name__ == "__main__":
    main()
