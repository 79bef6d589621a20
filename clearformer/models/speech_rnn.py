"""Speech recognition with a bidirectional recurrent network and CTC (Graves et al. 2006; Amodei et al. 2016).

    x = subsample(frames)               strided convolutions over time, which leave fewer frames
    h_t = [→h_t; ←h_t]                  a sound depends on the sounds before and after it
    logits_t = W norm(h_t) + b          V tokens, then the blank, which means no new token in this frame

The data does not say which frames belong to which letter: objectives/ctc.py sums over all alignments. Without the norm,
the input hardly affects the logits at first, and every frame remains blank for hundreds of steps.
"""

from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import SoundBatch
from clearformer.layers.cells import CellName
from clearformer.layers.recurrent import recurrent
from clearformer.layers.subsample import Subsample, shortened


class SpeechRNNConfig(Config):
    """The [model] table of a recipe, for kind = "speech-rnn"."""

    kind: Literal["speech-rnn"] = "speech-rnn"
    preset: str | None = Field(None, description="name of a preset, such as speech-lstm")
    vocab: int = Field(64, gt=0, description="vocabulary size without the blank, set from the tokenizer in training")
    channels: int = Field(80, gt=0, description="number of mel bands, set from [sound] in training")
    cell: CellName = Field("lstm", description="recurrent cell; layers/cells.py has the equations")
    n_layers: int = Field(3, gt=0, description="number of recurrent layers")
    d_model: int = Field(512, gt=0, multiple_of=2, description="width of both directions together, an even number")
    strides: tuple[PositiveInt, ...] = Field(
        (2, 2), min_length=1, description="stride in frames of each convolution before the recurrent layers"
    )
    dropout: float = Field(0.3, ge=0, lt=1, description="dropout probability between layers and on the head's input")


class SpeechRNN(nn.Module):
    """A recurrent speech recogniser: frames (B, T, M) -> logits (B, T', V + 1) of V tokens and the blank."""

    Config = SpeechRNNConfig
    task = "ctc"
    batch_class = SoundBatch

    def __init__(self, config: SpeechRNNConfig) -> None:
        super().__init__()
        self.config, D = config, config.d_model
        self.subsample = Subsample(config.channels, D, config.strides, config.dropout)
        self.layers = recurrent(config.cell, D, D // 2, config.n_layers, bidirectional=True, dropout=config.dropout)
        self.norm = nn.LayerNorm(D)
        self.dropout = nn.Dropout(config.dropout)
        self.scores = nn.Linear(D, config.vocab + 1)

    def forward(self, batch: SoundBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: SoundBatch) -> Tensor:
        """Return the output of the last layer, (B, T', D), zero at padding."""
        x, lengths = self.subsample(batch.sounds.to(self.scores.weight.dtype), batch.lengths)
        return self.layers.outputs(x, lengths)

    def head(self, hidden: Tensor) -> Tensor:
        return self.scores(self.dropout(self.norm(hidden)))

    def shortened(self, lengths: Tensor) -> Tensor:
        """Return the lengths (B,) after subsampling: the number of frames that the head classifies."""
        return shortened(lengths, *self.config.strides)
