"""A model taken to pieces, layer by layer: output shapes, parameters, multiplications; of one for pictures, receptive
fields. Nothing is allocated.

The model is built on torch's meta device, where tensors have shapes and no data, and one forward pass is watched.

    linear           B·T · in · out
    attention        T·S · (K + N) a head: scores, then the mixing of values
    recurrence       B·T · the sizes of all matrices
    convolution      places · the size of a filter, for each filter
    everything else  counted as none: additions, norms and look-ups are cheap beside products
"""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch, Tensors, blank
from clearformer.errors import ConfigError, suggest
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.masks import Mask
from clearformer.layers.receptive import Sight
from clearformer.layers.recurrent import Step, Unrolled, Weights
from clearformer.loading.contents import read_recipe
from clearformer.loading.folders import bundled
from clearformer.recipe import build_model, model_config, preset_name, presets
from clearformer.registry import names

POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


@dataclass(frozen=True)
class Layer:
    name: str
    output: list[int]
    parameters: int  # its own, not those of layers inside it; a shared tensor is counted where it first occurs
    multiplications: int  # of one forward pass, its own likewise
    receptive_field: int | None = None  # pixels a side that one of its numbers can see


def inspect(name: str | Path, length: int | None = None) -> dict[str, Any]:
    """A run folder, a bundled model, a preset or a model kind: its layers and totals for one text, pair or picture.

    `length` is tokens a side, 32 if not given, or the pixels of a picture's side, by default those of the model.
    """
    if Path(name).exists() or str(name) in bundled():
        config = read_recipe(name).model
    elif preset_name(str(name)) in (known := [*presets(), *names("model"), *bundled()]):
        config = model_config(str(name))
    else:
        raise ConfigError(f"there is no run folder, preset or model called `{name}`", suggest(str(name), known))
    usual = getattr(config, "size", None)
    if usual is not None and length is not None:
        config.changed(size=length)  # what is too small for its filters is refused
    length = length or usual or 32
    with torch.device("meta"):
        model = build_model(config)
        batch = blank(getattr(model, "task", "translation"), 1, length, getattr(config, "channels", 3))
    layers = watch(model.eval(), batch)
    return {
        "name": str(name),
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiplications": sum(layer.multiplications for layer in layers),
        "length": length,
        "layers": [asdict(layer) for layer in layers],
    }


def watch(model: nn.Module, batch: Tensors) -> list[Layer]:
    """One forward pass; every module that has parameters of its own, attends or pools is a row, in order of use.

    Those that the pass does not use, such as BERT's pooler, come last, without an output.
    """
    sight = Sight(batch.pixels) if isinstance(batch, ImageBatch) else None
    rows, handles = Rows(sight), []

    def hook(name: str, owner: nn.Module) -> Any:
        def called(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output  # recurrent layers return their state as well
            rows.add(name, first, products(owner, first), owner)

        return called

    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.core = CountingCore(name, module, rows)
        elif type(module) is Unrolled:  # its matrices are read, not called
            handles.append(module.register_forward_hook(hook(f"{name}.weights", module.weights)))
        elif isinstance(module, POOLS) or any(True for _ in module.parameters(recurse=False)):
            handles.append(module.register_forward_hook(hook(name, module)))
    with torch.no_grad(), sight or nullcontext():
        model(batch)
    for name, module in model.named_modules():
        rows.rest(name, module)
    for handle in handles:
        handle.remove()
    return list(rows.by_name.values())


def products(module: nn.Module, output: Tensor) -> int:
    """The multiplications of a module that has weights of its own, given what it returned."""
    if isinstance(module, nn.Linear):
        return output.numel() * module.in_features
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return output.numel() * module.weight[0].numel()
    if isinstance(module, nn.RNNBase | Weights):  # every matrix at every time
        return output.shape[:-1].numel() * sum(p.numel() for p in module.parameters() if p.dim() == 2)
    if isinstance(module, Step):  # which returns a state of one vector or two
        return output[0].shape[:-1].numel() * module.weight_hh.numel()
    return 0


class Rows:
    """Layers in order of first use. One that is used again, as an embedding shared by both sides, keeps its row."""

    def __init__(self, sight: Sight | None = None) -> None:
        self.sight = sight
        self.by_name: dict[str, Layer] = {}
        self.counted: set[int] = set()

    def add(self, name: str, output: Tensor, products: int, owner: nn.Module | None = None) -> None:
        own = [] if owner is None else [p for p in owner.parameters(recurse=False) if id(p) not in self.counted]
        self.counted.update(map(id, own))
        before = self.by_name.get(name, Layer(name, [], 0, 0))
        n_parameters = before.parameters + sum(p.numel() for p in own)
        field = None if self.sight is None else self.sight.of(output)
        self.by_name[name] = Layer(
            name,
            list(output.shape),
            n_parameters,
            before.multiplications + products,
            None if field is None else field.size,
        )

    def rest(self, name: str, owner: nn.Module) -> None:
        """A row for parameters that were not met."""
        if any(id(p) not in self.counted for p in owner.parameters(recurse=False)):
            self.add(name, torch.empty(()), 0, owner)


class CountingCore:
    """An attention core that computes nothing but the right shape, and counts what computing would cost."""

    def __init__(self, name: str, layer: MultiHeadAttention, rows: Rows) -> None:
        self.name, self.qkv, self.rows = name, layer.qkv, rows

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        (B, H, T, K), S, N = q.shape, k.size(2), v.size(3)
        if f"{self.name}.qkv" not in self.rows.by_name:
            # Cross-attention takes rows of qkv's matrix by itself: some for x, the others for memory.
            products = (q.numel() + k.numel() + v.numel()) * self.qkv.in_features
            self.rows.add(f"{self.name}.qkv", q.new_empty(B, T, self.qkv.out_features), products, self.qkv)
        z = q.new_empty(B, H, T, N)
        if self.rows.sight is not None:
            self.rows.sight.sees_all(z)
        self.rows.add(f"{self.name}.core", z, B * H * T * S * (K + N))
        return z
