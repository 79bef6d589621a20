"""Speech recognition with a Transformer encoder and CTC (Graves et al. 2006; Vaswani et al. 2017).

    x = subsample(frames)               strided convolutions over time, which leave fewer frames
    h = encoder(x)                      L blocks with attention in both directions
    logits_t = W h_t + b                V tokens, then the blank, which means no new token in this frame

The network resembles models/speech_rnn.py, with attention in place of recurrence.
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
    """The [model] table of a recipe, for kind = "speech-transformer"."""

    kind: Literal["speech-transformer"] = "speech-transformer"
    preset: str | None = Field(None, description="name of a preset")
    vocab: int = Field(64, gt=0, description="vocabulary size without the blank, set from the tokenizer in training")
    channels: int = Field(80, gt=0, description="number of mel bands, set from [sound] in training")
    n_layers: int = Field(6, gt=0, description="number of blocks")
    d_model: int = Field(256, gt=0, description="width of the model")
    d_ff: int = Field(1024, gt=0, description="width of the feed-forward networks")
    n_heads: int = Field(4, gt=0, description="attention heads per layer")
    positions: PositionConfig = PositionConfig(kind="rotary")
    strides: tuple[PositiveInt, ...] = Field(
        (2, 2), min_length=1, description="stride in frames of each convolution before the encoder"
    )


class SpeechTransformer(nn.Module):
    """A Transformer speech recogniser: frames (B, T, M) -> logits (B, T', V + 1) of V tokens and the blank."""

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
        """Return the output of the encoder, (B, T', D). Values at padding have no meaning."""
        x, lengths = self.subsample(batch.sounds.to(self.scores.weight.dtype), batch.lengths)
        where = torch.arange(x.size(1), device=x.device)
        real = where < lengths[:, None]
        return self.encoder(x, where, Padding(real), real=real)

    def head(self, hidden: Tensor) -> Tensor:
        return self.scores(hidden)

    def shortened(self, lengths: Tensor) -> Tensor:
        """Return the lengths (B,) after subsampling: the number of frames that the head classifies."""
        return shortened(lengths, *self.config.strides)
