"""[sound]: how recordings become the frames that a model reads.

samples, 16 bits each ──▶ waves in [−1, 1) ──▶ log-mel frames (layers/mel.py); distorted on the way in training
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import SoundBatch
from clearformer.data.distort import DistortConfig, add_noise, change_speed, strike_out
from clearformer.layers.mel import LogMel


class SoundConfig(Config):
    """[sound]"""

    rate: int = Field(16000, gt=0, description="samples a second; recordings of another rate are resampled")
    n_mels: int = Field(80, gt=0, description="bands of pitch")
    window: float = Field(0.025, gt=0, description="seconds that a frame looks at")
    hop: float = Field(0.010, gt=0, description="seconds from frame to frame")
    distort: DistortConfig = DistortConfig()

    def model_post_init(self, _: object) -> None:
        if not 1 <= self.hop_samples <= self.window_samples:
            raise ValueError(f"hop = {self.hop:g} s must be a sample at least, and at most window = {self.window:g} s")

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)


class SoundFrontend(nn.Module):
    """A batch of samples -> the same as frames; what is frames already passes. It learns nothing."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        self.config = config
        self.log_mel = LogMel(config.rate, config.n_mels, config.window_samples, config.hop_samples)

    def forward(self, batch: SoundBatch) -> SoundBatch:
        if batch.sounds.is_floating_point():
            return batch
        self.to(batch.sounds.device)
        waves, lengths, how = batch.sounds.float() / 2**15, batch.lengths, self.config.distort
        if self.training and how.speed > 1:
            waves, lengths = change_speed(waves, lengths, how.speed ** between(-1, 1, waves))
        if self.training and how.snr is not None:
            waves = add_noise(waves, lengths, between(*how.snr, waves))
        frames, lengths = self.log_mel(waves, lengths)
        if self.training:
            longest = round(how.time_width / self.config.hop)
            frames = strike_out(frames, lengths, how.time_masks, longest, how.band_masks, how.band_width)
        return replace(batch, sounds=frames, lengths=lengths)


def between(low: float, high: float, rows: Tensor) -> Tensor:
    """A number for each row (B,), drawn evenly."""
    return low + (high - low) * torch.rand(len(rows), device=rows.device)
