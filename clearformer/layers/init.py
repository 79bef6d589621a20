"""Initialisation of weights.

Glorot & Bengio 2010:      W ~ U(−a, a),  a = √(6 / (fan_in + fan_out))        keeps the variance, forward and backward
for a relu (He et al.):    W ~ N(0, 4 / (fan_in + fan_out))                    doubled: a relu zeroes half of its input
BERT, GPT-2 and others:    W ~ N(0, 0.02²)                                     for any width
weights that are loaded:   W is not drawn                                      see `Undrawn`
"""

from collections.abc import Callable, Iterable, Mapping
from math import sqrt
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearformer.layers.linear import Linear

STD = 0.02  # the default standard deviation of `gaussian`


# The functions through which torch draws parameters. Those of nn.init that a mode can replace are called by name.
DRAWS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)


class Undrawn(TorchFunctionMode):
    """A context in which parameters are created, but keep the arbitrary values of their memory instead of random draws.

    For a network whose weights are all loaded afterwards: drawing them takes longer than loading them. Zeros, ones
    and buffers, such as tables of positions, are computed as usual.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in DRAWS and isinstance(tensor := args[0] if args else kwargs["tensor"], nn.Parameter):
            return tensor
        return func(*args, **kwargs)


def xavier(module: nn.Module) -> None:
    """Initialise linear layers with Glorot's rule and their biases with zero, for use in `module.apply`.

    Embeddings and heads initialise themselves. The packed qkv matrix is drawn as one matrix, so each of its three parts
    has 1/√2 of the standard deviation that it would have alone. Attention scores therefore start smaller, which a
    deep post-norm stack needs.
    """
    if isinstance(module, nn.Linear) and type(module) in (nn.Linear, Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def gaussian(module: nn.Module, std: float = STD) -> None:
    """Initialise linear layers and embeddings from N(0, std²) and biases with zero, for use in `module.apply`."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def rectified(module: nn.Module) -> None:
    """Initialise convolutions and linear layers before a relu, and their biases with zero, for use in `module.apply`.

    He et al. divide the variance by fan_in or by fan_out alone. Without norms, fan_in makes AlexNet's activations grow
    eightfold from input to output because of its pooling layers, and fan_out makes GoogLeNet's grow twentyfold because
    of its bottlenecks; the mean of the two suits both.
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.xavier_normal_(module.weight, gain=sqrt(2))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
