"""What a longer text costs: every word looks at every other, or each takes one step after the last.

    attention     4 T D² + 2 T² D multiplications      all words at once, quadratic once T is beyond 2 D
    LSTM          8 T D²                               linear, but no step can begin before the last has ended

Seconds are measured here and now, on one thread, the least of several runs; multiplications are counted as they are
made. The exponent p of cost ∝ T^p is the slope of log cost over log T, at lengths from LONG on.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from clearformer.layers.attention import MultiHeadAttention, PlainCore
from clearformer.layers.backends import FusedCore
from clearformer.layers.recurrent import Fused, Unrolled

D, H = 64, 2
LENGTHS = tuple(2**i for i in range(6, 13))
LONG = 512
ROUNDS = 4


def measure(seed: int = 0) -> dict[str, Any]:
    """The numbers that `clearformer plot complexity` draws."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {
        "attention, fused": MultiHeadAttention(D, H, core=FusedCore()),
        "LSTM, fused": Fused("lstm", D, D),
        "attention, as the equation": MultiHeadAttention(D, H, core=PlainCore()),
    }
    counted = {"attention": layers["attention, as the equation"], "LSTM": Unrolled("lstm", D, D)}
    with torch.no_grad():
        # Round after round, so that a busy minute of the machine does not fall on one layer alone.
        rounds = [
            {name: [seconds_of(layer, T) for T in LENGTHS] for name, layer in layers.items()} for _ in range(ROUNDS)
        ]
        seconds = {name: fitted([min(times) for times in zip(*(one[name] for one in rounds))]) for name in layers}
        products = {name: fitted([products_of(layer, T) for T in LENGTHS]) for name, layer in counted.items()}
    title = (
        f"Measured, attention costs T to the {seconds['attention, fused']['exponent']:.2f}, "
        f"an LSTM T to the {seconds['LSTM, fused']['exponent']:.2f}; "
        f"counted, {products['attention']['exponent']:.2f} and {products['LSTM']['exponent']:.2f}"
    )
    return {
        "title": title,
        "width": D,
        "heads": H,
        "lengths": list(LENGTHS),
        "fitted_from": LONG,
        "seconds": seconds,
        "multiplications": products,
    }


def seconds_of(layer: nn.Module, T: int) -> float:
    run = Timer("layer(x)", globals={"layer": layer, "x": torch.randn(1, T, D)})  # on one thread
    return min(run.blocked_autorange(min_run_time=0.05).times)


def products_of(layer: nn.Module, T: int) -> float:
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, T, D))
    return counter.get_total_flops() // 2  # an addition goes with each


def fitted(costs: list[float]) -> dict[str, Any]:
    return {"cost": costs, "exponent": exponent(LENGTHS, costs)}


def exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """p of the least-squares line log cost = p log T + c."""
    x, y = torch.tensor([(T, cost) for T, cost in zip(lengths, costs) if T >= LONG], dtype=torch.float64).log().T
    return (((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()).item()
