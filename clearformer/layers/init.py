"""How weights begin.

Glorot & Bengio 2010:      W ~ U(−a, a),  a = √(6 / (fan_in + fan_out))        keeps the variance both ways
He et al. 2015:            W ~ N(0, 2 / fan_in)                                the same through a relu, forwards
BERT, GPT-2 (and so on):   W ~ N(0, 0.02²)                                     whatever the width
"""

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


def he(module: nn.Module) -> None:
    """For `module.apply`: He's for every convolution and matrix that a relu follows, zero for its bias."""
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
