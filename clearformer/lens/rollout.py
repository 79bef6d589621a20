"""Attention rollout: which patches what a Vision Transformer says comes from (Abnar & Zuidema 2020).

Ã_l = ½ I + ½ mean over heads of A_l         a token keeps itself, by the residual, and looks around
R   = Ã_L … Ã_2 Ã_1                          rows sum to 1: how much of each patch is in each token at the end

With a learned prefix rows sum to less: the rest comes from there.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.album import Album
from clearformer.errors import ConfigError
from clearformer.layers.backends import recording
from clearformer.lens.maps import laid_out
from clearformer.lens.shown import shown
from clearformer.reading.eye import Eye


def rollout(patterns: list[Tensor]) -> Tensor:
    """Patterns of each layer (B, H, T, T), the first layer's first -> (B, T, T)."""
    own = torch.eye(patterns[0].size(-1)).to(patterns[0])
    flow = own
    for pattern in patterns:
        flow = (own + pattern.mean(1)) / 2 @ flow
    return flow


@torch.no_grad()
def follow(eye: Eye, album: Album) -> dict[str, Any]:
    """The numbers that `clearformer plot rollout` draws."""
    with recording(eye.model) as recorders:
        eye.model(eye.batch(album.pixels))
    if not recorders:
        raise ConfigError(f"{eye.name} has no attention to follow", "grad-cam suits networks that are no Transformer")
    looks = [recorder.record[0] for recorder in recorders]
    flow = rollout([pattern[..., -pattern.size(2) :] for pattern in looks])  # from T tokens to T, without a prefix
    speaks = flow[:, 0] if eye.model.config.pooling == "class" else flow.mean(1)  # (B, T): of what the head reads
    return {
        "title": f"What {eye.name} looks at, rolled out through {len(recorders)} layers of attention",
        "pictures": shown(album.pixels),
        "captions": album.labels,
        "heat": laid_out(speaks[..., None])[:, 0].tolist(),
    }
