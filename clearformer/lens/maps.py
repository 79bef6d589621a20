"""Every map that a network makes of pictures, by the name of its layer.

A (B, C, Y, X): what layer A says at each place. The tokens of a Vision Transformer are maps, too, a patch a place.
"""

from math import isqrt
from typing import Any

from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError, suggest
from clearformer.layers.blocks import Block
from clearformer.layers.conv import Conv


def maps_of(model: Any, batch: ImageBatch) -> tuple[dict[str, Tensor], Tensor]:
    """What each layer returns on the way to what the head reads, in the order in which they are done; and that, (B, D).

    A convolution counts with its norm and relu. What only hands on another's map does not count, nor does what has a
    single place left.
    """
    found: dict[str, Tensor] = {}
    inside = {part for module in model.modules() if isinstance(module, Conv) for part in module.children()}

    def hook(name: str) -> Any:
        def called(module: nn.Module, inputs: Any, output: Any) -> None:
            is_new = all(output is not other for other in found.values())
            if isinstance(output, Tensor) and is_new and is_map(module, output):
                found[name] = output

        return called

    layers = [(name, module) for name, module in model.named_modules() if module not in inside]
    handles = [module.register_forward_hook(hook(name)) for name, module in layers if name]
    try:
        hidden = model.hidden(batch)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise ConfigError("no layer of this network makes maps", "choose a network with convolutions or patches")
    return found, hidden


def is_map(module: nn.Module, output: Tensor) -> bool:
    return (output.dim() == 4 and output.size(-1) > 1) or isinstance(module, Block)


def laid_out(tokens: Tensor) -> Tensor:
    """Tokens (B, T, D) where their patches are, (B, D, Y, X), without a class token; maps as they are."""
    if tokens.dim() == 4:
        return tokens
    side = isqrt(tokens.size(1))
    return tokens[:, tokens.size(1) - side**2 :].mT.unflatten(2, (side, side))


def pick(found: dict[str, Tensor], layer: str | None, usual: int) -> str:
    """The layer that is asked for, or else the one of this number."""
    if layer is None:
        return list(found)[usual]
    if layer not in found:
        raise ConfigError(f"no layer `{layer}` makes maps", suggest(layer, found))
    return layer
