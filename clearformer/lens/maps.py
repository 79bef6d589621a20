"""Record the feature maps of each layer of a network.

Maps have shape (B, C, Y, X). The tokens of a Vision Transformer count as maps too: each patch is a position.
"""

from math import isqrt
from typing import Any

from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError, suggest
from clearformer.layers.blocks import Block
from clearformer.layers.conv import Conv


def maps_of(model: Any, batch: ImageBatch) -> tuple[dict[str, Tensor], Tensor]:
    """Run a network. Returns the output of each layer, in order of computation, and the input of the head, (B, D).

    A convolution, its norm and its ReLU count as one layer. Layers that return their input, or a map with a single
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
    """Arrange tokens (B, T, D) as maps (B, D, Y, X) of their patches, without a class token. Maps are not changed."""
    if tokens.dim() == 4:
        return tokens
    side = isqrt(tokens.size(1))
    return tokens[:, tokens.size(1) - side**2 :].mT.unflatten(2, (side, side))


def pick(maps: dict[str, Tensor], layer: str | None, default: int) -> str:
    """Return `layer`, which must have feature maps; if it is None, the name of the layer at index `default`."""
    if layer is None:
        return list(maps)[default]
    if layer not in maps:
        raise ConfigError(f"there is no layer `{layer}` with feature maps", suggest(layer, maps))
    return layer
