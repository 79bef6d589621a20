"""Speech to text by a Transformer's encoder that hears a recording whole (Graves et al. 2006; Vaswani et al. 2017).

    x = subsample(frames)               convolutions over time, few moments of many frames
    h = encoder(x)                      L blocks that look both ways
    logits_t = W h_t + b                V entries, and last the blank: nothing new is said at this moment

The same as models/speech_rnn.py, with attention in place of recurrence.
"""

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.data.batch import SoundBatch
from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.masks import Padding
from clearformer.layers.positions import PositionConfig
from clearformer.layers.subsample import Subsample, shortened
from clearformer.models.stack import StackConfig, build_stack


class SpeechTransformerConfig(StackConfig):
    """[model] of kind "speech-transformer"."""

    kind: Literal["speech-transformer"] = "speech-transformer"
    preset: str | None = None
    vocab: int = Field(64, gt=0, description="entries, the blank not counted; taken from the tokenizer when training")
    channels: int = Field(80, gt=0, description="bands of a frame; taken from [sound] when training")
    n_layers: int = Field(6, gt=0)
    d_model: int = Field(256, gt=0)
    d_ff: int = Field(1024, gt=0)
    n_heads: int = Field(4, gt=0)
    positions: PositionConfig = PositionConfig(kind="rotary")
    strides: tuple[PositiveInt, ...] = Field(
        (2, 2), min_length=1, description="of convolutions; their product is how many frames a moment has"
    )


class SpeechTransformer(nn.Module):
    """frames (B, T, M) -> logits (B, T', V + 1)."""

    Config = SpeechTransformerConfig
    task = "ctc"
    batch_class = SoundBatch

    def __init__(self, config: SpeechTransformerConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config, D = config, config.d_model
        self.subsample = Subsample(config.channels, D, config.strides, config.dropout)
        self.encoder = build_stack(config, config.n_layers, core or FusedCore(), is_causal=False)
        self.scores = nn.Linear(D, config.vocab + 1)

    def forward(self, batch: SoundBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: SoundBatch) -> Tensor:
        """(B, T', D). What stands at padded moments means nothing."""
        x, lengths = self.subsample(batch.sounds.to(self.scores.weight.dtype), batch.lengths)
        where = torch.arange(x.size(1), device=x.device)
        return self.encoder(x, where, Padding(where < lengths[:, None]))

    def head(self, hidden: Tensor) -> Tensor:
        return self.scores(hidden)

    def shortened(self, lengths: Tensor) -> Tensor:
        """How many moments are judged of so many frames."""
        return shortened(lengths, *self.config.strides)
