"""How the cost of attention and of an LSTM grows with the length of a text.

    attention     4 T D² + 2 T² D multiply-adds        all positions at once; quadratic for T well above 2 D
    LSTM          8 T D²                               linear, but every step has to wait for the previous one

Seconds are measured on this machine, on one thread, as the minimum of several runs. Multiply-adds are counted during a
forward pass. The exponent p of cost ∝ T^p is the slope of log cost over log T, fitted to lengths ≥ LONG.
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
    """Return the data that `clearformer plot complexity` shows."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {
        "attention, fused": MultiHeadAttention(D, H, core=FusedCore()),
        "LSTM, fused": Fused("lstm", D, D),
        "attention, as the equation": MultiHeadAttention(D, H, core=PlainCore()),
    }
    counted = {"attention": layers["attention, as the equation"], "LSTM": Unrolled("lstm", D, D)}
    with torch.no_grad():
        # Measured in rounds, so that a busy moment of the machine does not affect only one layer.
        rounds = [
            {name: [seconds_of(layer, T) for T in LENGTHS] for name, layer in layers.items()} for _ in range(ROUNDS)
        ]
        seconds = {name: fitted([min(times) for times in zip(*(times[name] for times in rounds))]) for name in layers}
        multiply_adds = {name: fitted([multiply_adds_of(layer, T) for T in LENGTHS]) for name, layer in counted.items()}
    title = (
        f"Time grows as T^{seconds['attention, fused']['exponent']:.2f} for attention and "
        f"T^{seconds['LSTM, fused']['exponent']:.2f} for an LSTM; multiply-adds as "
        f"T^{multiply_adds['attention']['exponent']:.2f} and T^{multiply_adds['LSTM']['exponent']:.2f}"
    )
    return {
        "title": title,
        "width": D,
        "heads": H,
        "lengths": list(LENGTHS),
        "fitted_from": LONG,
        "seconds": seconds,
        "multiply_adds": multiply_adds,
        "multiplications": multiply_adds,  # the name in 0.1, kept for one version
    }


def seconds_of(layer: nn.Module, T: int) -> float:
    run = Timer("layer(x)", globals={"layer": layer, "x": torch.randn(1, T, D)})  # on one thread
    return min(run.blocked_autorange(min_run_time=0.05).times)


def multiply_adds_of(layer: nn.Module, T: int) -> float:
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, T, D))
    return counter.get_total_flops() // 2  # a multiply-add is two operations


def fitted(costs: list[float]) -> dict[str, Any]:
    return {"cost": costs, "exponent": exponent(LENGTHS, costs)}


def exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope p of the least-squares line log cost = p log T + c."""
    x, y = torch.tensor([(T, cost) for T, cost in zip(lengths, costs) if T >= LONG], dtype=torch.float64).log().T
    return (((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()).item()
