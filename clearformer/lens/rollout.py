"""Attention rollout: how much each patch contributes to the output of a Vision Transformer (Abnar & Zuidema 2020).

Ã_l = ½ I + ½ mean over heads of A_l         the residual connection and the attention of layer l
R   = Ã_L … Ã_2 Ã_1                          contribution of each patch to each output token; rows sum to 1

With prefix tuning, rows sum to less than 1: the rest is the contribution of the prefix.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.image_sample import ImageSample
from clearformer.errors import ConfigError
from clearformer.handles.image_model import ImageModel
from clearformer.layers.backends import recording
from clearformer.lens.maps import laid_out
from clearformer.lens.shown import shown
from clearformer.wording import count


def rollout(patterns: list[Tensor], stays: float = 0.5) -> Tensor:
    """Combine the attention patterns (B, H, T, T) of all layers, from first to last, into R (B, T, T)."""
    flow = torch.eye(patterns[0].size(-1)).to(patterns[0])
    for pattern in patterns:
        flow = mixed(pattern, stays) @ flow
    return flow


def mixed(pattern: Tensor, stays: float = 0.5) -> Tensor:
    """Return Ã (B, T, T): half of each position stays where it is, the other half is mixed by the mean of the heads.

    Without residual connections, nothing of a position stays: `stays` is 0.
    """
    return stays * torch.eye(pattern.size(-1)).to(pattern) + (1 - stays) * pattern.mean(1)


@torch.no_grad()
def follow(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """Compute the data for `clearformer plot rollout`."""
    with recording(handle.model) as recorders:
        handle.model(handle.batch(sample.pixels))
    if not recorders:
        raise ConfigError(
            f"{handle.name} has no attention layers",
            "use `clearformer plot grad-cam`, which works for any image classifier",
        )
    patterns = [recorder.record[0] for recorder in recorders]
    flow = rollout([pattern[..., -pattern.size(2) :] for pattern in patterns])  # from T tokens to T, without a prefix
    weights = flow[:, 0] if handle.model.config.pooling == "class" else flow.mean(1)  # (B, T)
    return {
        "title": f"Attention rollout of {handle.name} through {count(len(recorders), 'layer')}",
        "images": shown(sample.pixels),
        "captions": sample.labels,
        "heat": laid_out(weights[..., None])[:, 0].tolist(),
    }
