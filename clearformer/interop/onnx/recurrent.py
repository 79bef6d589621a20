"""Recurrent networks as ONNX graphs, whose loop over time is the operator Scan.

    s_t = cell(U x_t + b, s_t−1)        any cell of layers/cells.py; a Scan in either direction, of any length

    encoder of a translator    source, mask                    ->  state (N, B, 1, D), memory (B, S, M), keys (B, S, A)
    step of its decoder        last, state, memory, keys, mask ->  logits of the next token (B, V), state
    language model             prompt without its last token   ->  state (N, L, B, 1, D)
    its step                   last, state                     ->  logits of the next token (B, V), state

torch's exporter would unroll the loops for the length of its example.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.interop.onnx.graphs import BATCH, LENGTH, SOURCE, graph
from clearformer.layers.cache import RecurrentState
from clearformer.layers.recurrent import Unrolled


class Scanned(Unrolled):
    """`Unrolled` with a scan in place of the loop over time. It uses the weights of the given layers."""

    def __init__(self, layers: Unrolled) -> None:
        nn.Module.__init__(self)
        self.cell, self.n_layers, self.d_hidden = layers.cell, layers.n_layers, layers.d_hidden
        self.directions, self.dropout, self.weights = layers.directions, layers.dropout, layers.weights

    def run_layer(self, name: str, x: Tensor, state: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_exporting():
            return super().run_layer(name, x, state, real)
        from torch._higher_order_ops.scan import scan

        U, W, b = (getattr(self.weights, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih"))
        b2, cell = getattr(self.weights, f"bias_hh_{name}", None), self.cell
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real

        def step(before: Tensor, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            inputs, is_real = given
            after = torch.where(is_real, cell.step(inputs, before, W, b2), before)
            return after, torch.where(is_real, cell.read(after), 0.0)

        start = state.clone(memory_format=torch.contiguous_format)  # with the strides of the states after it
        times = F.linear(x, U, b).transpose(0, 1), real.transpose(0, 1)[:, :, None]  # (T, B, G·D), (T, B, 1)
        last, outputs = scan(step, start, times, reverse=name.endswith("reverse"))
        return outputs.transpose(0, 1), last


def scan_all(network: nn.Module) -> None:
    """Replace all recurrent layers of a network by layers that scan."""
    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, Unrolled):
                setattr(module, name, Scanned(child))


class Encoder(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        state = self.network.start(source, mask)
        keys, memory, _ = state.memory
        return state.vectors, memory, *([] if keys is None else [keys])


class Prompt(Encoder):
    def forward(self, prompt: Tensor) -> Tensor:  # type: ignore[override]
        S = prompt.size(1)
        is_read = (torch.arange(S) < S - 1).expand(prompt.shape)  # the search reads the last token
        vectors: Tensor = self.network.start(prompt, is_read).vectors
        return vectors


class Step(Encoder):
    def forward(  # type: ignore[override]
        self,
        last: Tensor,
        state: Tensor,
        memory: Tensor | None = None,
        keys: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        parts = () if memory is None else (keys, memory, mask)
        logits, after = self.network.step(last, RecurrentState(state, *parts))
        return logits[:, 0], after.vectors


def translator_graphs(network: Any) -> tuple[Any, Any]:
    """Return the graphs of the encoder and of a decoder step, for `search.translator`."""
    source = torch.ones(2, 7, dtype=torch.long)
    shapes: list[dict[int, Any]] = [{0: BATCH, 1: SOURCE}] * 2
    with torch.no_grad():
        state, *memory = Encoder(network)(source, source == 1)
    names = ["memory", "keys"][: len(memory)]
    encoder = graph(Encoder(network), {"source": source, "mask": source == 1}, shapes, ["state", *names])
    inputs = {"last": source[:, :1], "state_before": state, **dict(zip(names, memory))}
    shapes = [{0: BATCH}, {1: BATCH}, {0: BATCH}]
    if len(memory) == 2:  # attention, to a source of any length
        inputs["mask"] = source == 1
        shapes = [{0: BATCH}, {1: BATCH}, *[{0: BATCH, 1: SOURCE}] * 3]
    return encoder, graph(Step(network), inputs, shapes, ["logits", "state_after"])


def generator_graphs(network: Any) -> tuple[Any, Any]:
    """Return the graphs that read a prompt and a further token, for `search.generator`."""
    prompt = torch.ones(2, 7, dtype=torch.long)
    start = graph(Prompt(network), {"prompt": prompt}, [{0: BATCH, 1: LENGTH}], ["state"])
    with torch.no_grad():
        state = Prompt(network)(prompt)
    inputs = {"last": prompt[:, :1], "state_before": state}
    return start, graph(Step(network), inputs, [{0: BATCH}, {2: BATCH}], ["logits", "state_after"])
