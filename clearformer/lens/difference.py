"""How far two models are apart on the same text: token by token, and layer by layer.

    d = |A − B| / |A|         norms over all positions and features of the activation that has the same name in both

Both read the same tokens, so that each position of one corresponds to a position of the other: two checkpoints of a
run, or a base and its adapter. A layer that both have, with another width, cannot be subtracted and is left out.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.errors import ConfigError
from clearformer.generation.decode import widen
from clearformer.handles.handle import Handle
from clearformer.lens.outputs import by_row
from clearformer.lens.points import points
from clearformer.lens.reading import Reading
from clearformer.lens.session import Lens

PARTS = ("attn_out", "cross_out", "mlp_out", "resid_post", "h")  # of a Transformer block, and of a recurrent layer


def check_comparable(first: Handle, second: Handle, names: tuple[str, str]) -> None:
    """Raise ConfigError unless both are of one kind and read every text as the same tokens."""
    if first.kind != second.kind:
        message = f"`{names[0]}` is {first.kind}, and `{names[1]}` is {second.kind}: they cannot be compared"
        raise ConfigError(message, "choose two models of the same kind")
    if vocabularies(first) != vocabularies(second):
        message = f"`{names[0]}` and `{names[1]}` have different tokenizers: their tokens cannot be compared one by one"
        raise ConfigError(message, "choose two checkpoints of one run, or a base and its adapter")
    if getattr(first, "classes", None) != getattr(second, "classes", None):
        message = f"`{names[0]}` and `{names[1]}` have different classes: they cannot be compared"
        raise ConfigError(message, "choose two classifiers of the same data")


def vocabularies(handle: Handle) -> list[str]:
    tokenizers = [getattr(handle, f"{side}tokenizer", None) for side in ("", "source_", "target_")]
    return [tokenizer.fingerprint() for tokenizer in tokenizers if tokenizer is not None]


def compared_layers(reading: Reading) -> list[str]:
    """Return the names of the activations to compare: the parts of all blocks, else the outputs of the large modules.

    A network without blocks, such as a convolution over words, has its children and their children.
    """
    names = [name for name in points(reading.model) if name.rpartition(".")[2] in PARTS]
    return names or [name for name in points(reading.model) if name.endswith(".out") and name.count(".") <= 2]


def joined(recorded: Any) -> Tensor:
    """Return an activation as one tensor. A recurrent decoder records one for each token it writes."""
    tensor: Tensor = torch.stack(recorded) if isinstance(recorded, list) else recorded
    return tensor.double()


def layer_differences(first: Lens, second: Lens, names: list[str]) -> list[dict[str, Any]]:
    """Return |A − B| / |A| and both norms for each activation that has one shape in both."""
    rows = []
    for name in names:
        if name not in first.kept or name not in second.kept:
            continue
        a, b = joined(first[name]), joined(second[name])
        if a.shape == b.shape and float(a.norm()) > 0:
            norms = [float(a.norm()), float(b.norm())]
            rows.append({"name": name, "difference": float((a - b).norm() / a.norm()), "norms": norms})
    return rows


def token_probabilities(reading: Reading, logits: Tensor) -> list[dict[str, Any]] | None:
    """Return probability and rank of each token of the text, where the model predicts tokens.

    The rank is 1 for the most probable token.
    """
    if reading.ids is None:
        return None
    rows = widen(by_row(logits))
    logprobs = rows.log_softmax(-1)
    return [
        {
            "token": name,
            "logprob": float(logprobs[r, token]),
            "probability": float(logprobs[r, token].exp()),
            "rank": 1 + int((rows[r] > rows[r, token]).sum()),
        }
        for r, (name, token) in enumerate(zip(reading.outputs, reading.ids))
        if token is not None
    ]
