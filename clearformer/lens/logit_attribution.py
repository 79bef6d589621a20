"""Direct logit attribution: a logit as the sum of what each part of a model writes to the residual stream.

    x = embedding + positions + Σ heads + Σ feed-forward networks + biases          the stream after the last block
    logit = w · norm(x) + b,     norm(x) = (x − mean x) / σ ⊙ γ + β                 σ is held fixed, so norm is linear
    logit = Σ_c w · (c − mean c) / σ ⊙ γ  +  (w · β + b)                            c: each part; an exact sum

A head writes W_out z_h, its part of the joined heads. In a post-norm model each part passes through the norms of all
later blocks, whose σ are held fixed as well: the sum is exact there too. What remains unsaid is how a part changes σ,
and how it changes later parts that read it. The decoder of a translator is divided; its encoder acts through
cross-attention. The sum needs a linear head: BERT's head for tokens has an activation and a norm.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.errors import ConfigError
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.blocks import Block, NoResidual, PostNorm, Stack
from clearformer.layers.token_norm import TokenBatchNorm
from clearformer.lens.logit_lens import last_stack
from clearformer.lens.outputs import Output, by_row, check_length, choose_outputs
from clearformer.lens.reading import Reading
from clearformer.models.classifier import POOLS, Classifier
from clearformer.models.gpt import GPT
from clearformer.models.transformer import Transformer

Parts = dict[str, Tensor]  # component -> what it writes, (T, D) in float64
BIASES = "biases"
LINEAR = ("first", "mean", "last")  # poolings


def logit_attribution(reading: Reading, position: int | None = None) -> dict[str, Any]:
    """Return the contributions (outputs, components) to the logit of each output; they add up to `logits`.

    The outputs are those of `attribution`; heads are named as activations, decoder.blocks.1.cross.z[0]. `gap`, the
    logit minus its sum, is rounding of float32 alone.
    """
    path, stack = last_stack(reading)
    head = linear_head(reading)
    check_length(reading)
    logits, parts = divided(reading, path, stack)
    outputs = choose_outputs(reading, by_row(logits), position)
    hidden = sum(parts.values())
    assert isinstance(hidden, Tensor)
    weights, biases = directions(head, hidden.to(logits), outputs)
    contributions = torch.stack([torch.einsum("rtd,td->r", weights, part) for part in parts.values()], dim=1)
    contributions[:, list(parts).index(BIASES)] += biases
    values = torch.stack([by_row(logits)[output.row, output.id] for output in outputs]).double()
    return {
        "title": f"Direct logit attribution of {reading.name}",
        "outputs": [output.name for output in outputs],
        "components": list(parts),
        "contributions": contributions.tolist(),
        "logits": values.tolist(),
        "gap": (values - contributions.sum(1)).tolist(),
    }


def linear_head(reading: Reading) -> Callable[[Tensor], Tensor]:
    """Return the function from the output of the last stack, (1, T, D), to the logits. It is linear, with a bias."""
    model: Any = reading.model
    if isinstance(model, GPT | Transformer) or (isinstance(model, Classifier) and model.config.pooling == "none"):
        return model.head
    if isinstance(model, Classifier) and model.config.pooling in LINEAR:
        return lambda hidden: model.head(POOLS[model.config.pooling](hidden, None))
    raise ConfigError(
        f"{reading.name} has a head that is not linear: its logits are not a sum of parts",
        "choose a language model, a translator, a tagger, or a classifier with pooling first, mean or last",
    )


def directions(head: Callable[[Tensor], Tensor], hidden: Tensor, outputs: list[Output]) -> tuple[Tensor, Tensor]:
    """Return w (R, T, D) and b (R,) of logit_r = w_r · hidden + b_r: the gradients of a linear head, and its zero."""
    with torch.enable_grad():
        x = hidden[None].detach().requires_grad_()
        rows = by_row(head(x))
        chosen = [rows[output.row, output.id] for output in outputs]
        weights = [torch.autograd.grad(logit, x, retain_graph=True)[0][0] for logit in chosen]
    with torch.no_grad():
        zero = by_row(head(torch.zeros_like(x)))
    return torch.stack(weights).double(), torch.stack([zero[o.row, o.id] for o in outputs]).double()


@torch.no_grad()
def divided(reading: Reading, path: str, stack: Stack) -> tuple[Tensor, Parts]:
    """Return the logits of the model, and the parts that add up to the output of its last stack."""
    inputs: list[Tensor] = []
    hook = stack.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    try:
        logits, look = reading.look(keep=[f"{path}.blocks.*.z", f"{path}.blocks.*.mlp_out"])
    finally:
        hook.remove()
    [x] = inputs[0].double()
    where = torch.arange(len(x), device=x.device)
    nothing = torch.zeros_like(x)
    parts = {"embedding": x, "positions": stack.positions.add(nothing[None], where)[0], BIASES: nothing}
    if stack.first_norm is not None:
        parts = through_norm(stack.first_norm, parts)
    for i, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        for name, residual in sublayers(block):
            parts = {BIASES: nothing} if isinstance(residual, NoResidual) else parts
            if name == "mlp":
                parts[f"{path}.blocks.{i}.mlp_out"] = look[f"{path}.blocks.{i}.mlp_out"][0].double()
            else:
                heads, bias = by_head(getattr(block, name), look[f"{path}.blocks.{i}.{name}.z"])
                parts |= {f"{path}.blocks.{i}.{name}.z[{h}]": written for h, written in enumerate(heads)}
                parts[BIASES] = parts[BIASES] + bias
            if isinstance(residual, PostNorm):
                parts = through_norm(residual.norm, parts)
    parts = parts if stack.norm is None else through_norm(stack.norm, parts)
    return logits, parts | {BIASES: parts.pop(BIASES)}  # last


def sublayers(block: Block) -> Iterator[tuple[str, nn.Module]]:
    yield "attn", block.add_attn
    if block.has_cross:
        yield "cross", block.add_cross
    yield "mlp", block.add_mlp


def by_head(layer: MultiHeadAttention, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return what each head writes, W_out z_h, (H, T, D), and the bias of the output layer, (D,); z (1, H, T, N)."""
    H, T, N = z.shape[1:]
    alone = z.new_zeros(H, T, H, N)
    alone[range(H), :, range(H)] = z[0]
    bias = layer.out(z.new_zeros(1, H * N))
    return (layer.out(alone.flatten(2)) - bias).double(), bias[0].double()


def through_norm(norm: nn.Module, parts: Parts) -> Parts:
    """Apply a norm to each part, with the scale that it has for their sum. The shift β joins the biases."""
    if isinstance(norm, nn.Identity):
        return parts
    if isinstance(norm, TokenBatchNorm):
        slope, intercept = (value.double() for value in norm.line())
        parts = {name: part * slope for name, part in parts.items()}
        return parts | {BIASES: parts[BIASES] + intercept}
    x = sum(parts.values())
    assert isinstance(x, Tensor)
    scale = norm.weight.double()
    eps: Any = norm.eps
    if isinstance(norm, nn.LayerNorm):
        x = x - x.mean(-1, keepdim=True)
        parts = {name: part - part.mean(-1, keepdim=True) for name, part in parts.items()}
    factor = scale / (x.square().mean(-1, keepdim=True) + eps).sqrt()  # (T, D)
    parts = {name: part * factor for name, part in parts.items()}
    shift: Any = getattr(norm, "bias", None)
    return parts if shift is None else parts | {BIASES: parts[BIASES] + shift.double()}
