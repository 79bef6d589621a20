"""Speech to text by a recurrent network that hears a recording whole (Graves et al. 2006; Amodei et al. 2016).

    x = subsample(frames)               convolutions over time, few moments of many frames
    h_t = [→h_t; ←h_t]                  what is said at a moment depends on what comes before and after it
    logits_t = W norm(h_t) + b          V entries, and last the blank: nothing new is said at this moment

Which moments belong to which letter nobody says: objectives/ctc.py sums over all ways. Without the norm, what is heard
hardly moves the scores at first, and every moment stays a blank for hundreds of steps.
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
    """[model] of kind "speech-rnn"."""

    kind: Literal["speech-rnn"] = "speech-rnn"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as speech-lstm")
    vocab: int = Field(64, gt=0, description="entries, the blank not counted; taken from the tokenizer when training")
    channels: int = Field(80, gt=0, description="bands of a frame; taken from [sound] when training")
    cell: CellName = Field("lstm", description="its equation: layers/cells.py")
    n_layers: int = Field(3, gt=0)
    d_model: int = Field(512, gt=0, multiple_of=2, description="of both directions together")
    strides: tuple[PositiveInt, ...] = Field(
        (2, 2), min_length=1, description="of convolutions; their product is how many frames a moment has"
    )
    dropout: float = Field(0.3, ge=0, lt=1)


class SpeechRNN(nn.Module):
    """frames (B, T, M) -> logits (B, T', V + 1)."""

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
        """(B, T', D), zero at padding."""
        x, lengths = self.subsample(batch.sounds.to(self.scores.weight.dtype), batch.lengths)
        return self.layers.outputs(x, lengths)

    def head(self, hidden: Tensor) -> Tensor:
        return self.scores(self.dropout(self.norm(hidden)))

    def shortened(self, lengths: Tensor) -> Tensor:
        """How many moments are judged of so many frames."""
        return shortened(lengths, *self.config.strides)
