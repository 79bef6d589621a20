"""How weights begin.

Glorot & Bengio 2010:      W ~ U(−a, a),  a = √(6 / (fan_in + fan_out))        keeps the variance both ways
for a relu (He et al.):    W ~ N(0, 4 / (fan_in + fan_out))                    the same, as a relu lets half through
BERT, GPT-2 (and so on):   W ~ N(0, 0.02²)                                     whatever the width
"""

from math import sqrt

from torch import nn

from clearformer.layers.linear import Linear

STD = 0.02  # of `gaussian`


def xavier(module: nn.Module) -> None:
    """For `module.apply`: Glorot for every matrix product, zero for its bias. Embeddings and heads set their own.

    The packed qkv matrix is drawn as one, which makes each of its three parts 1/√2 as loud as drawn alone: the
    scores begin smaller, which is what a deep post-norm stack needs.
    """
    if isinstance(module, nn.Linear) and type(module) in (nn.Linear, Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def gaussian(module: nn.Module, std: float = STD) -> None:
    """For `module.apply`: N(0, std²) for every matrix product and table, zero for its bias."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def rectified(module: nn.Module) -> None:
    """For `module.apply`: every convolution and matrix that a relu follows, zero for its bias.

    He et al. divide by fan_in alone, or by fan_out. Without norms the one makes AlexNet's numbers eight times as large
    on their way, by its pools, and the other GoogLeNet's twenty times, by its bottlenecks; their mean suits both.
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.xavier_normal_(module.weight, gain=sqrt(2))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
