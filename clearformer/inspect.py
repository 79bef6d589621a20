"""A model taken to pieces, layer by layer: output shapes, parameters, multiplications. Nothing is allocated.

The model is built on torch's meta device, where tensors have shapes and no data, and one forward pass is watched.

    linear           B·T · in · out
    attention        T·S · (K + N) a head: scores, then the mixing of values
    everything else  counted as none: additions, norms and look-ups are cheap beside products
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import Batch
from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.masks import Mask
from clearformer.load import build_model, bundled, find
from clearformer.recipe import Recipe, model_config


@dataclass(frozen=True)
class Layer:
    name: str
    output: list[int]
    parameters: int  # its own, not those of layers inside it; a shared tensor is counted where it first occurs
    multiplications: int  # of one forward pass, its own likewise


def inspect(name: str | Path, length: int = 32) -> dict[str, Any]:
    """A run folder, a bundled model, a preset or a model kind: its layers and totals for one sentence pair."""
    is_folder = Path(name).exists() or str(name) in bundled()
    config = Recipe.read(find(name) / "recipe.toml").model if is_folder else model_config(str(name))
    with torch.device("meta"):
        model = build_model(config)
        tokens = torch.zeros(1, length, dtype=torch.long)
        batch = Batch(tokens, torch.ones(1, length, dtype=torch.bool), tokens, tokens, n_tokens=length)
    layers = watch(model.eval(), batch)
    return {
        "name": str(name),
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiplications": sum(layer.multiplications for layer in layers),
        "length": length,
        "layers": [asdict(layer) for layer in layers],
    }


def watch(model: nn.Module, batch: Batch) -> list[Layer]:
    """One forward pass; every module that has parameters of its own, or attends, becomes a row in order of use."""
    rows: dict[str, Layer] = {}
    seen: set[int] = set()
    handles = []

    def hook(name: str) -> Any:
        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
            seen.update(map(id, own))
            n = sum(p.numel() for p in own)
            rows[name] = Layer(name, list(output.shape), n, multiplications(module, output))

        return record

    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.core = CountingCore(module.core, name, rows)
        elif any(True for _ in module.parameters(recurse=False)):
            handles.append(module.register_forward_hook(hook(name)))
    model(batch)
    for handle in handles:
        handle.remove()
    return list(rows.values())


def multiplications(module: nn.Module, output: Tensor) -> int:
    return output.numel() * module.in_features if isinstance(module, nn.Linear) else 0


class CountingCore:
    """An attention core that computes nothing but the right shape, and counts what computing would cost."""

    def __init__(self, core: Core, name: str, rows: dict[str, Layer]) -> None:
        self.core, self.name, self.rows = core, name, rows

    def lower(self, mask: Mask | None, T: int, S: int) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        z = q.new_empty(*q.shape[:3], v.size(3))
        cost = q.size(0) * q.size(1) * q.size(2) * k.size(2) * (q.size(3) + v.size(3))
        self.rows[f"{self.name}.core"] = Layer(f"{self.name}.core", list(z.shape), 0, cost)
        return z
