"""The logit lens: what a model would predict if it ended after each block (nostalgebraist 2020).

    p_l = softmax(head(norm(x_l)))        x_l: the residual stream after block l; x_0: the embeddings with positions

The model computes the row of block l itself, with x_l in place of the output of its last block. Norm, pooling and head
are therefore its own, and the last row is its output, bit by bit. Post-norm blocks end with a norm; no other is added.
"""

from typing import Any

import torch

from clearformer.errors import ConfigError
from clearformer.layers.blocks import Stack
from clearformer.lens.outputs import by_row, check_length, row_names, speller, top_tokens
from clearformer.lens.patches import replace
from clearformer.lens.reading import Reading


def logit_lens(reading: Reading, top: int = 5) -> dict[str, Any]:
    """Return the `top` tokens and their probabilities by layer and position, as lists (layers, positions, top).

    `settled` is the first layer from which on the most probable token is the one that the model predicts.
    """
    spell, names = speller(reading), stream(reading)
    check_length(reading)
    layers = streamed_logits(reading, names)
    tokens, probabilities = zip(*(top_tokens(rows, spell, top) for rows in layers))
    best = torch.stack([rows.argmax(-1) for rows in layers])  # (layers, R)
    agrees = (best == best[-1]).flip(0).cumprod(0).sum(0)  # layers at the end that agree with the last
    outputs = row_names(reading, best.size(1))
    return {
        "title": f"Logit lens of {reading.name}",
        "layers": ["embedding", *(name.removesuffix(".resid_post") for name in names[1:])],
        "positions": reading.target if len(outputs) == len(reading.target) else outputs,
        "outputs": outputs,
        "tokens": list(tokens),
        "probabilities": list(probabilities),
        "settled": (len(names) - agrees).tolist(),
    }


def streamed_logits(reading: Reading, names: list[str]) -> list[torch.Tensor]:
    """Return the logits (R, V) that the model computes from each of these activations of its last stack."""
    _, look = reading.look(keep=names)
    return [by_row(reading.look(put={names[-1]: replace(look[name])})[0]) for name in names]


def stream(reading: Reading) -> list[str]:
    """Return the names of the residual stream that becomes the output: before the first block, and after each block."""
    path, stack = last_stack(reading)
    return [f"{path}.blocks.0.resid_pre", *(f"{path}.blocks.{i}.resid_post" for i in range(len(stack.blocks)))]


def last_stack(reading: Reading) -> tuple[str, Stack]:
    """Return the stack of blocks that the output is computed from: the decoder of an encoder–decoder."""
    stacks = [(path, module) for path, module in reading.model.named_modules() if isinstance(module, Stack)]
    if not stacks:
        raise ConfigError(f"{reading.name} has no residual stream", "choose a Transformer")
    return stacks[-1]
