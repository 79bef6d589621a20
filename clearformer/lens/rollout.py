"""Attention rollout: how much each patch contributes to the output of a Vision Transformer (Abnar & Zuidema 2020).

Ã_l = ½ I + ½ mean over heads of A_l         a token keeps itself, by the residual, and looks around
R   = Ã_L … Ã_2 Ã_1                          rows sum to 1: how much of each patch is in each token at the end

With a learned prefix rows sum to less: the rest comes from there.
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


def rollout(patterns: list[Tensor]) -> Tensor:
    """Patterns of each layer (B, H, T, T), the first layer's first -> (B, T, T)."""
    own = torch.eye(patterns[0].size(-1)).to(patterns[0])
    flow = own
    for pattern in patterns:
        flow = (own + pattern.mean(1)) / 2 @ flow
    return flow


@torch.no_grad()
def follow(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """The numbers that `clearformer plot rollout` draws."""
    with recording(handle.model) as recorders:
        handle.model(handle.batch(sample.pixels))
    if not recorders:
        raise ConfigError(f"{handle.name} has no attention to follow", "grad-cam works for any image classifier")
    patterns = [recorder.record[0] for recorder in recorders]
    flow = rollout([pattern[..., -pattern.size(2) :] for pattern in patterns])  # from T tokens to T, without a prefix
    weights = flow[:, 0] if handle.model.config.pooling == "class" else flow.mean(1)  # (B, T)
    return {
        "title": f"What {handle.name} looks at, rolled out through {len(recorders)} layers of attention",
        "pictures": shown(sample.pixels),
        "captions": sample.labels,
        "heat": laid_out(weights[..., None])[:, 0].tolist(),
    }
