"""The feature maps of a network by layer.

Maps are (B, C, Y, X). The tokens of a Vision Transformer are maps as well: each patch is a position.
"""

from math import isqrt
from typing import Any

from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError, suggest
from clearformer.layers.blocks import Block
from clearformer.layers.conv import Conv


def maps_of(model: Any, batch: ImageBatch) -> tuple[dict[str, Tensor], Tensor]:
    """The output of each layer, in the order of computation, and the input of the head, (B, D).

    A convolution, its norm and its relu count as one layer. Layers that return their input, or a map with a single
    position, are left out.
    """
    maps: dict[str, Tensor] = {}
    inside = {part for module in model.modules() if isinstance(module, Conv) for part in module.children()}

    def hook(name: str) -> Any:
        def called(module: nn.Module, inputs: Any, output: Any) -> None:
            is_new = all(output is not other for other in maps.values())
            if isinstance(output, Tensor) and is_new and is_map(module, output):
                maps[name] = output

        return called

    layers = [(name, module) for name, module in model.named_modules() if module not in inside]
    handles = [module.register_forward_hook(hook(name)) for name, module in layers if name]
    try:
        hidden = model.hidden(batch)
    finally:
        for handle in handles:
            handle.remove()
    if not maps:
        raise ConfigError("no layer of this network has feature maps", "choose a network with convolutions or patches")
    return maps, hidden


def is_map(module: nn.Module, output: Tensor) -> bool:
    return (output.dim() == 4 and output.size(-1) > 1) or isinstance(module, Block)


def laid_out(tokens: Tensor) -> Tensor:
    """Tokens (B, T, D) in the layout of their patches, (B, D, Y, X), without a class token. Maps are unchanged."""
    if tokens.dim() == 4:
        return tokens
    side = isqrt(tokens.size(1))
    return tokens[:, tokens.size(1) - side**2 :].mT.unflatten(2, (side, side))


def pick(maps: dict[str, Tensor], layer: str | None, default: int) -> str:
    """The layer with this name; if `layer` is None, the layer at index `default`."""
    if layer is None:
        return list(maps)[default]
    if layer not in maps:
        raise ConfigError(f"there is no layer `{layer}` with feature maps", suggest(layer, maps))
    return layer
