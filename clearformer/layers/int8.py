"""Linear layers that multiply in eight bits, for inference on the CPU.

    y = a/63 · X (s ⊙ W)' + b,   X = round(63 x / a),  a = max |x|,   W = round(w / s),  s = max |w| / 127

Every input vector x and every row w of the weights has its own scale, so a sentence is translated alike in every batch.
X has only seven bits: on processors without VNNI instructions, two products of eight bits are added in sixteen, which
must not overflow. Embeddings, norms and attention stay in float32.
"""

import torch
from torch import Tensor, nn

from clearformer.errors import MachineError
from clearformer.layers.linear import Linear, is_plain_linear

LEVELS, ZERO = 63, 64  # X + ZERO is unsigned, as the kernel prefers


class Int8Linear(Linear):
    """A Linear with quantised copies of its weights, which must not change afterwards."""

    quantized: dict[tuple[int, int], tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, layer: nn.Linear) -> "Int8Linear":
        result = cls.__new__(cls)
        result.__dict__.update(layer.__dict__)
        result.quantized = {}
        return result

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, 0, self.out_features)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        if (start, stop) not in self.quantized:
            self.quantized[start, stop] = quantized(self.weight[start:stop].detach())
        weight, scales = self.quantized[start, stop]
        rows = x.flatten(0, -2)
        peaks = rows.abs().amax(-1, keepdim=True).clamp_(min=torch.finfo(x.dtype).tiny)
        levels = (rows / peaks).mul_(LEVELS).round_().add_(ZERO).to(torch.uint8)
        # scale and zero of the input, weights, their scales and zeros, no bias, float32 output, no activation
        y = torch.ops.onednn.qlinear_pointwise(
            levels, 1 / LEVELS, ZERO, weight, scales, torch.zeros_like(scales, dtype=torch.int32),
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        y = y.mul_(peaks) if self.bias is None else torch.addcmul(self.bias[start:stop].detach(), y, peaks, out=y)
        return y.view(*x.shape[:-1], stop - start)


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round the rows of weight (out, in) to int8, laid out for the kernel; and return their scales, (out,)."""
    scales = (weight.abs().amax(1) / 127).clamp_(min=torch.finfo(weight.dtype).tiny)
    rounded = (weight / scales[:, None]).round_().to(torch.int8)
    return torch.ops.onednn.qlinear_prepack(rounded, None), scales


def quantize(model: nn.Module) -> nn.Module:
    """Replace every plain linear layer of a float32 model on the CPU by an Int8Linear."""
    if next(model.parameters()).device.type != "cpu":
        raise MachineError("int8 is for the CPU", "use --device cpu, or --precision bfloat16 on a GPU")
    if not torch.backends.mkldnn.is_available():
        raise MachineError("int8 needs oneDNN, which this build of torch lacks", "omit --precision int8")
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if is_plain_linear(child):
                setattr(parent, name, Int8Linear.of(child))
    return model
