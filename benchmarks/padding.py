"""Padded batches of fixed shape against packed batches without padding: one encoder block, real tokens per second.

    python benchmarks/padding.py [--out FILE]

A block of Transformer-base (512 wide, 8 heads, 2,048 hidden units), forward and backward in bfloat16, recorded as a
CUDA graph, on 16,384 positions. In a padded batch, every sentence has the length L of its bucket and a fraction FILL of
the positions is real, as in the buckets of Tatoeba and Multi30k; attention is the kernel of recorded training steps. In
a packed batch, all positions are real, and attention is torch's varlen_attn. Both count real tokens only, so a ratio
above 1 means that padded buckets are faster. The time of attention alone is recorded too.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from provenance import RESULTS, record, stamp
from torch import Tensor, nn

from clearformer.layers.short_cuda import attend_short, is_short

POSITIONS, WIDTH, HEADS, HIDDEN = 16384, 512, 8, 2048
FILL = 0.89
LENGTHS = (8, 16, 32, 64, 128)  # divisors of POSITIONS

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v (positions, heads, features)


class Block(nn.Module):
    """x + W attend(norm(x)), then x + MLP(norm(x)), over all positions at once."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend, self.first, self.second = attend, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(self.first(x)).view(len(x), 3, HEADS, -1).unbind(1)
        x = x + self.output(self.attend(q, k, v).flatten(1))
        return x + self.down(F.relu(self.up(self.second(x))))


def padded(length: int) -> Attend:
    rows = POSITIONS // length
    real = (torch.rand(rows, length, device="cuda") < FILL).sort(descending=True).values
    mask = torch.zeros(rows, 1, 1, length, device="cuda", dtype=torch.bfloat16).masked_fill(~real[:, None, None], -1e30)

    def attend(*qkv: Tensor) -> Tensor:
        q, k, v = (x.view(rows, length, HEADS, -1).transpose(1, 2) for x in qkv)
        if is_short(q, k, v, mask, 0.0):
            z = attend_short(q, k, v, mask, q.size(3) ** -0.5)
        else:
            z = F.scaled_dot_product_attention(q, k, v, mask.expand(-1, HEADS, length, -1))
        return z.transpose(1, 2).reshape(rows * length, HEADS, -1)

    return attend


def packed(length: int) -> Attend:
    """Sentences with the mean length of the padded batch, one after another."""
    from torch.nn.attention.varlen import varlen_attn

    mean = max(1, round(FILL * length))
    ends = torch.arange(0, POSITIONS, mean, dtype=torch.int32, device="cuda")
    offsets = torch.cat([ends, ends.new_tensor([POSITIONS])])
    return lambda q, k, v: varlen_attn(q, k, v, offsets, offsets, length, length)


def milliseconds(work: Callable[[], Any]) -> float:
    """The median of 20 replays of the recorded work."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times)


def measure(attend: Attend) -> dict[str, float]:
    block = Block(attend).to("cuda", torch.bfloat16)
    x = torch.randn(POSITIONS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    qkv = [torch.randn(POSITIONS, HEADS, WIDTH // HEADS, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    qkv = [each.requires_grad_() for each in qkv]
    inputs = [x, *block.parameters()]
    return {
        "block_ms": round(milliseconds(lambda: torch.autograd.grad(block(x).sum(), inputs)), 4),
        "attention_ms": round(milliseconds(lambda: torch.autograd.grad(attend(*qkv).sum(), qkv)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "padding.json")
    args = parser.parse_args()
    results: dict[str, Any] = {}
    for length in LENGTHS:
        torch.manual_seed(length)
        row: dict[str, Any] = {"padded": measure(padded(length)), "packed": measure(packed(length))}
        row["padded_over_packed"] = round(FILL * row["packed"]["block_ms"] / row["padded"]["block_ms"], 3)
        results[str(length)] = row
        print(length, json.dumps(row), flush=True)
        more = {"device": torch.cuda.get_device_name(), "fill": FILL, "positions": POSITIONS}
        record({"lengths": results, **more, **stamp("python benchmarks/padding.py")}, args.out)


if __name__ == "__main__":
    main()
