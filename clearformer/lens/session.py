"""Read and change the activations of a model by name, while it computes as usual.

    with Lens(model, keep=["decoder.blocks.*.cross.pattern"], put={"encoder.blocks.0.attn.z": zero_heads(2)}) as look:
        model(batch)
    look["decoder.blocks.1.cross.pattern"]          (B, H, T, S)

points.py defines the names, and patches.py the usual changes. Reading never changes a result, not by a bit: attention
keeps its fused kernel, and its pattern is computed a second time from queries and keys, only for the heads asked for.
Only a layer whose scores or pattern are changed computes by the plain equation. All hooks are removed at the end.
"""

from collections.abc import Callable, Iterable, Mapping
from math import sqrt
from types import TracebackType
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.errors import ConfigError, suggest
from clearformer.layers.attention import Core, MultiHeadAttention, match, normalise, repeat_heads
from clearformer.layers.backends import innermost, rewrap
from clearformer.layers.masks import Mask
from clearformer.layers.recurrent import Unrolled
from clearformer.lens.cells import watch_layers, watch_step
from clearformer.lens.points import Point, points, select

Patch = Callable[[Tensor, str], Tensor | None]
"""A change: (activation, its name) -> the new activation, or None to leave it as it is."""


class Lens:
    """Keeps activations of a model inside a `with` block, and puts others in their place.

    `keep` and the keys of `put` are names or patterns. A kept activation is a copy; if gradients are computed it is the
    tensor itself, so that torch.autograd.grad can differentiate with respect to it. A model may be used several
    times inside the block, as in decoding: an activation is then a list of tensors, one for each time.
    """

    def __init__(self, model: nn.Module, keep: Iterable[str] = (), put: Mapping[str, Patch] | None = None) -> None:
        self.model, self.known = model, points(model)
        known = self.known
        self.heads = select(keep, known)
        self.patches: dict[str, list[Patch]] = {}
        for asked, patch in (put or {}).items():
            for name in select([asked], known):
                self.patches.setdefault(name, []).append(patch)
        self.points = [known[name] for name in known if self.wants(name)]
        self.kept: dict[str, list[Tensor]] = {}
        self.undo: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        try:
            self.attach()
        except BaseException:
            self.detach()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()

    def __getitem__(self, name: str) -> Any:
        """Return a kept activation: a tensor, or a list of tensors if it occurred several times."""
        values = self.kept.get(name)
        if values is None:
            if name in self.heads:
                raise ConfigError(f"{name} was kept but did not occur", "run the model inside the `with` block")
            raise ConfigError(f"{name} was not kept", suggest(name, self.kept))
        return values[0] if len(values) == 1 else values

    def __contains__(self, name: str) -> bool:
        return name in self.kept

    def __iter__(self) -> Any:
        return iter(self.kept)

    def visit(self, name: str, value: Tensor) -> Tensor:
        """Apply the patches of an activation, keep it if it is asked for, and return it."""
        value = self.patched(name, value)
        self.keep_if_wanted(name, value)
        return value

    def patched(self, name: str, value: Tensor) -> Tensor:
        for patch in self.patches.get(name, ()):
            changed = patch(value, name)
            if changed is not None:
                if changed.shape != value.shape:
                    raise ConfigError(
                        f"{name} has the shape {tuple(value.shape)}, its patch {tuple(changed.shape)}",
                        "a patch returns a tensor of the same shape",
                    )
                value = changed.to(value)
        return value

    def keep_if_wanted(self, name: str, value: Tensor) -> None:
        if name in self.heads:
            heads = self.heads[name]
            if heads is not None:
                value = value[:, heads]  # a copy
            elif not value.requires_grad:
                value = value.clone()
            self.keep(name, value)

    def keep(self, name: str, value: Tensor) -> None:
        """Keep a tensor that nothing will change."""
        self.kept.setdefault(name, []).append(value)

    def wants(self, name: str) -> bool:
        return name in self.heads or name in self.patches

    def attach(self) -> None:
        for module in self.model.modules():
            if getattr(module, "_compiled_call_impl", None) is not None:  # compiled code has no hooks
                self.undo.append(restore(module, "_compiled_call_impl"))
                module._compiled_call_impl = None
        inside: dict[nn.Module, list[Point]] = {}
        for point in self.points:
            if point.place in ("core", "cell"):
                inside.setdefault(point.module, []).append(point)
            else:
                self.undo.append(self.hook(point).remove)
        for module, wanted in inside.items():
            prefix = wanted[0].name.removesuffix(wanted[0].leaf)
            if isinstance(module, MultiHeadAttention):
                self.undo.append(restore(module, "core"))
                module.core = rewrap(module.core, LensCore(innermost(module.core), prefix, self))
            else:
                watch = watch_layers if isinstance(module, Unrolled) else watch_step
                self.undo.append(watch(module, prefix, self))  # type: ignore[arg-type]

    def detach(self) -> None:
        while self.undo:
            self.undo.pop()()

    def hook(self, point: Point) -> Any:
        if point.place == "input":

            def before(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
                return (self.visit(point.name, inputs[0]), *inputs[1:])

            return point.module.register_forward_pre_hook(before)
        index = 1 if point.place == "second" else 0

        def after(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            if isinstance(output, Tensor):
                return self.visit(point.name, output)
            if isinstance(output, tuple) and isinstance(output[index], Tensor):
                return *output[:index], self.visit(point.name, output[index]), *output[index + 1 :]
            return output

        return point.module.register_forward_hook(after)


def restore(module: nn.Module, name: str) -> Callable[[], None]:
    """Return a function that gives an attribute of a module its present value again."""
    value = getattr(module, name)
    return lambda: setattr(module, name, value)


class LensCore:
    """An attention core around another that lets a Lens see queries, keys, values, scores, pattern and result.

    It is the innermost core, inside wrappers such as a learned prefix, so that it sees the keys that they add.
    """

    def __init__(self, inner: Core, prefix: str, lens: Lens) -> None:
        self.inner, self.prefix, self.lens = inner, prefix, lens
        self.weights = [f"{prefix}{leaf}" for leaf in ("scores", "pattern")]

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> Any:
        if mask is None:
            return None
        dense = mask.dense(T, S, device) if any(self.lens.wants(name) for name in self.weights) else None
        return self.inner.lower(mask, T, S, device, dtype), dense

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        lowered, dense = (None, None) if mask is None else mask
        scale = 1 / sqrt(q.size(-1)) if scale is None else scale
        q, k, v = (self.lens.visit(f"{self.prefix}{name}", x) for name, x in zip("qkv", (q, k, v)))
        if any(name in self.lens.patches for name in self.weights):
            scores = self.lens.visit(self.weights[0], match(q, k, bias, scale))
            pattern = F.dropout(self.lens.visit(self.weights[1], normalise(scores, dense)), dropout)
            z = pattern.to(v.dtype) @ repeat_heads(v, q.size(1))
        else:
            for name in self.weights:
                if name in self.lens.heads:
                    self.record(name, q, k, dense, bias, scale)
            z = self.inner(q, k, v, lowered, bias, scale, dropout)
        return self.lens.visit(f"{self.prefix}z", z)

    def record(self, name: str, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None, scale: float) -> None:
        """Compute scores or pattern a second time, for the heads asked for, and keep them."""
        heads = self.lens.heads[name]
        if heads is not None:
            n = q.size(1) // k.size(1)  # query heads per key head
            q, k = q[:, heads], k[:, [head // n for head in heads]]
            bias = bias if bias is None or bias.size(-3) == 1 else bias[..., heads, :, :]  # (…, H, T, S)
        scores = match(q, k, bias, scale)
        self.lens.keep(name, scores if name.endswith("scores") else normalise(scores, mask))
