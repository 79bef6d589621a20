"""Linear layers y = x W' + b that can compute a subset of their outputs, or whose weights are packed for the CPU.

A matrix kernel reads its weights in tiles. oneDNN can lay them out in tiles once, instead of at every product. This
saves time if few rows are multiplied, but hardly any for a hundred rows. oneDNN can also apply the ReLU of a
feed-forward network to each tile of the result; its GELU takes four times as long as torch's.
"""

from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.embeddings import Unembedding
from clearformer.layers.feedforward import ACTIVATIONS, FeedForward
from clearformer.memory import on_huge_pages

FUSED = {None: "none", "relu": "relu"}  # activations that oneDNN applies, by its names


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which linear layers compute with an input x: its own, or the dtype of autocast."""
    kind = x.device.type
    is_mixed = not x.is_meta and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_mixed else x.dtype


class Linear(nn.Linear):
    """An nn.Linear that can also compute only a subset of its output features."""

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Return only the output features from `start` to `stop`: x (…, in) -> (…, stop − start)."""
        return F.linear(x, self.weight[start:stop], None if self.bias is None else self.bias[start:stop])


class PackedLinear(Linear):
    """A Linear for inference in float32 on the CPU. The tiles are copies, so the weights must not change afterwards."""

    tiles: dict[tuple[int, int], Tensor]
    n_rows: int
    activation: str | None

    @classmethod
    def of(cls, layer: nn.Linear, n_rows: int, activation: str | None = None) -> "PackedLinear":
        """Pack a layer. `n_rows` is the expected number of input vectors per call; other numbers work too."""
        packed = cls.__new__(cls)
        packed.__dict__.update(layer.__dict__)
        packed.tiles, packed.n_rows, packed.activation = {}, n_rows, activation
        on_huge_pages(layer.weight.data_ptr(), layer.weight.nbytes)
        return packed

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, 0, self.out_features, self.activation)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        return self.product(x, start, stop, None)

    def product(self, x: Tensor, start: int, stop: int, activation: str | None) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if stop - start < self.out_features:
            weight, bias = weight[start:stop], None if bias is None else bias[start:stop]
        needs_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)  # tiles have none
        if torch.compiler.is_compiling() or needs_gradient:  # a compiled program chooses its own kernels
            y = F.linear(x, weight, bias)
            return y if activation is None else ACTIVATIONS[activation](y)
        if x.numel() == self.in_features:  # for a single vector, the unpacked weights are the fastest
            y = torch.mv(weight, x.flatten()) if bias is None else torch.addmv(bias, weight, x.flatten())
            y = y.view(*x.shape[:-1], stop - start)
            return y if activation is None else ACTIVATIONS[activation](y)
        if (start, stop) not in self.tiles:
            tile = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), self.n_rows)
            on_huge_pages(torch.ops.mkldnn.data_ptr(tile), torch.ops.mkldnn._nbytes(tile))
            self.tiles[start, stop] = tile
        rows, n_rows = x, x.numel() // self.in_features
        if n_padding := few_sizes(n_rows) - n_rows:
            rows = F.pad(x.reshape(n_rows, self.in_features), (0, 0, 0, n_padding))
        y = torch.ops.mkldnn._linear_pointwise(rows, self.tiles[start, stop], bias, FUSED[activation], [], "")
        return y[:n_rows].view(*x.shape[:-1], stop - start) if n_padding else y


def few_sizes(n_rows: int) -> int:
    """Return the smallest of few numbers that is at least n_rows: a multiple of 8, from 256 on of 16, from 512 of 32 …

    oneDNN compiles a program for every number of rows of a packed product, which takes as long as the product, and half
    a megabyte that is never freed. A process that runs for long computes a few more rows instead, 2 % on average.
    """
    if n_rows <= 8:
        return n_rows
    multiple = max(8, (1 << (n_rows.bit_length() - 1)) // 16)
    return -(-n_rows // multiple) * multiple


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer computes x W' + b and nothing else."""
    return isinstance(layer, nn.Linear) and type(layer).forward in (nn.Linear.forward, Unembedding.forward)


def pack(model: nn.Module, n_rows: int = 64) -> nn.Module:
    """Replace every linear layer by a PackedLinear where possible: float32 weights on a CPU with oneDNN.

    Parameters keep their names, and tied parameters stay tied. A subclass that overrides `forward` is left unchanged.
    """
    weight = next(model.parameters())
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if is_plain_linear(child):
                    activation = fuse_activation(parent) if name == "up" else None
                    setattr(parent, name, PackedLinear.of(child, n_rows, activation))
    return model


def fuse_activation(network: nn.Module) -> str | None:
    """Fuse the activation of a feed-forward network into its first layer. Return its name, or None if not possible."""
    if not isinstance(network, FeedForward) or network.kind not in FUSED:
        return None
    network.activation = lambda x: x
    return network.kind
