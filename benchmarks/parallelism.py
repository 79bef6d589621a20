"""How well a layer uses a GPU as texts grow longer: table 1 of "Attention Is All You Need", measured.

    python benchmarks/parallelism.py [--device cuda] [--out FILE] [--figure FILE]
    python benchmarks/parallelism.py --draw            only the figure, from the results

One layer of width 512 reads and differentiates the same number of tokens as many short or as few long texts, float32:

    attention             8 heads, torch's fused kernel
    LSTM                  torch's kernel for all steps (cuDNN on a GPU)
    convolution           of width 3
    LSTM step by step     the equation, one step after the other; up to 512 tokens

`millions_per_second`, of tokens, is from the median time of several runs. The other columns of the table are read off
the autograd graph:

    sequential            nodes on its longest chain, from the inputs to the outputs: what cannot be done at once
    path                  nodes on the shortest chain from the last output to the first input, through as many layers as
                          it takes until the one depends on the other
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from provenance import RESULTS, record, stamp
from torch import nn

from clearformer.layers.attention import MultiHeadAttention, PlainCore
from clearformer.layers.backends import FusedCore
from clearformer.layers.recurrent import Fused, Unrolled

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "parallelism.png"
D, H, WIDTH = 512, 8, 3
TOKENS = 32_768  # of a batch
LENGTHS = (16, 64, 256, 1024, 4096, 16384)
STEPWISE = 512  # longest text of the LSTM that is computed step by step
COUNTED = (4, 8, 16, 32)  # lengths whose autograd graphs are read


class Convolution(nn.Conv1d):
    """A convolution over the positions of x (B, T, D)."""

    def forward(self, x):
        return super().forward(x.mT).mT


class Outputs(nn.Module):
    """The outputs of a recurrent layer, without its last state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer.outputs(x)

    def last(self, words):
        """Return the last output, reading word by word: a product of all words would join them in the graph."""
        state = None
        for word in words:
            output, state = self.layer(word[:, None], state)
        return output


def attention(core, width=D, n_heads=H):
    return MultiHeadAttention(width, n_heads, core=core)


def lstm(kind, width=D):
    return Outputs(kind("lstm", width, width))


def convolution(width=D):
    return Convolution(width, width, WIDTH, padding=WIDTH // 2)


def seconds(layer, T, device):
    """Return the median time of a forward and backward pass over TOKENS tokens in texts of T."""
    x = torch.randn(TOKENS // T, T, D, device=device, requires_grad=True)
    times = []
    while len(times) < 3 or (sum(times) < 1 and len(times) < 50):
        begin = time.perf_counter()
        layer(x).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def measure(device):
    torch.manual_seed(0)
    layers = {
        "attention": attention(FusedCore()),
        "LSTM": lstm(Fused),
        "convolution": convolution(),
        "LSTM_step_by_step": lstm(Unrolled),
    }
    rates = {}
    for name, layer in layers.items():
        layer.to(device)
        lengths = [T for T in LENGTHS if name != "LSTM_step_by_step" or T <= STEPWISE]
        rates[name] = {str(T): round(TOKENS / seconds(layer, T, device) / 1e6, 3) for T in lengths}
        print(name, rates[name], flush=True)
    return rates


def parents(node):
    return [parent for parent, _ in node.next_functions if parent is not None]


def longest_chain(node):
    """Return the number of nodes on the longest chain that ends in a node of an autograd graph."""
    lengths, stack = {}, [node]
    while stack:
        one = stack[-1]
        missing = [parent for parent in parents(one) if parent not in lengths]
        stack.extend(missing)
        if not missing:
            lengths[stack.pop()] = 1 + max((lengths[parent] for parent in parents(one)), default=0)
    return lengths[node]


def shortest_chain(node, leaf):
    """Return the number of nodes on the shortest chain from a node to a leaf."""
    row, seen, n = {node}, set(), 1
    while not any(getattr(one, "variable", None) is leaf for one in row):
        seen |= row
        row, n = {parent for one in row for parent in parents(one)} - seen, n + 1
    return n


def look(make, T):
    """Return (sequential, path) of a layer over a text of T words."""
    torch.manual_seed(0)
    words = [torch.randn(1, 4, requires_grad=True) for _ in range(T)]
    layer, x = make(), torch.stack(words, dim=1)  # (1, T, D)
    sequential = longest_chain(layer(x).grad_fn)
    x = layer.last(words) if isinstance(layer, Outputs) else layer(x)
    while not torch.autograd.grad(x[:, -1].sum(), words[0], retain_graph=True)[0].any():
        x = make()(x)  # one more layer
    return sequential, shortest_chain(x[:, -1].sum().grad_fn, words[0])


def read_graphs():
    layers = {
        "attention": lambda: attention(PlainCore(), 4, 2),
        "LSTM": lambda: lstm(Unrolled, 4),
        "convolution": lambda: convolution(4),
    }
    result = {}
    for name, make in layers.items():
        counts = {str(T): look(make, T) for T in COUNTED}
        result[name] = {
            "sequential": {T: counted[0] for T, counted in counts.items()},
            "path": {T: counted[1] for T, counted in counts.items()},
        }
    return result


def draw(result, path):
    from clearformer.plots.lines import by_logarithm, draw_lines
    from clearformer.plots.style import saved_figure

    def series(lines):
        return {name.replace("_", " "): ([int(T) for T in line], list(line.values())) for name, line in lines.items()}

    with saved_figure(path, 12, 4) as figure:
        figure.suptitle(f"{TOKENS:,} tokens in texts of different lengths: one layer of width {D}", fontsize=11)
        speed, sequential, far = figure.subplots(1, 3)
        draw_lines(
            speed, series(result["millions_per_second"]), "length of a text, tokens", "million tokens per second", "log"
        )
        speed.set_title(f"forward and backward, {result['versions']['device']}", fontweight="bold")
        for ax, key, title in (
            (sequential, "sequential", "operations that must wait for each other"),
            (far, "path", "from the last output to the first input"),
        ):
            lines = {name: counts[key] for name, counts in result["graphs"].items()}
            draw_lines(ax, series(lines), "length of a text, tokens", "nodes of the autograd graph", "log")
            ax.set_title(title, fontweight="bold")
        for ax in (speed, sequential, far):
            by_logarithm(ax)
            ax.legend()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "parallelism.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    if not options.draw:
        shown = f"python benchmarks/parallelism.py --device {options.device}"
        result = {"graphs": read_graphs(), "millions_per_second": measure(options.device)}
        rates = result["millions_per_second"]
        result["longest_over_shortest"] = {
            name: round(rate / line[str(LENGTHS[0])], 4)
            for name, line in rates.items()
            if (rate := line.get(str(LENGTHS[-1])))
        }
        record({**result, "tokens": TOKENS, "width": D, **stamp(shown)}, options.out)
    draw(json.loads(options.out.read_text()), options.figure)


if __name__ == "__main__":
    main()
