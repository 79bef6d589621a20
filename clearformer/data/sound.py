"""The [sound] table of a recipe: how recordings become the frames that a model reads.

samples, 16 bits each ──▶ waves in [−1, 1) ──▶ log-mel frames (layers/mel.py); with augmentation in training
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import SoundBatch
from clearformer.data.distort import DistortConfig, add_noise, change_speed, mask_frames
from clearformer.layers.mel import LogMel


class SoundConfig(Config):
    """The [sound] table of a recipe: sampling rate, frames and augmentation of recordings."""

    rate: int = Field(16000, gt=0, description="samples per second; recordings at other rates are resampled")
    n_mels: int = Field(80, gt=0, description="number of mel bands")
    window: float = Field(0.025, gt=0, description="length of a frame's window, in seconds")
    hop: float = Field(0.010, gt=0, description="time between consecutive frames, in seconds")
    distort: DistortConfig = DistortConfig()

    def model_post_init(self, _: object) -> None:
        if not 1 <= self.hop_samples <= self.window_samples:
            raise ValueError(f"hop = {self.hop:g} s must be at least one sample and at most window = {self.window:g} s")

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)


class SoundFrontend(nn.Module):
    """Converts a batch of samples into frames; a batch of frames is returned unchanged. It has no parameters."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        self.config = config
        self.log_mel = LogMel(config.rate, config.n_mels, config.window_samples, config.hop_samples)

    def forward(self, batch: SoundBatch) -> SoundBatch:
        if batch.sounds.is_floating_point():
            return batch
        self.to(batch.sounds.device)
        waves, lengths, distort = batch.sounds.float() / 2**15, batch.lengths, self.config.distort
        if self.training and distort.speed > 1:
            waves, lengths = change_speed(waves, lengths, distort.speed ** between(-1, 1, waves))
        if self.training and distort.snr is not None:
            waves = add_noise(waves, lengths, between(*distort.snr, waves))
        frames, lengths = self.log_mel(waves, lengths)
        if self.training:
            longest = round(distort.time_width / self.config.hop)
            masks = distort.time_masks, longest, distort.band_masks, distort.band_width
            frames = mask_frames(frames, lengths, *masks)
        return replace(batch, sounds=frames, lengths=lengths)


def between(low: float, high: float, rows: Tensor) -> Tensor:
    """Draw a number from U(low, high) for each row, (B,)."""
    return low + (high - low) * torch.rand(len(rows), device=rows.device)
