"""Augmentation of recordings: random distortions of each batch, computed on its device.

    speed      y(n) = x(s n)                        faster and higher in pitch, or slower and lower  Ko et al. 2015
    noise      y(n) = x(n) + ε(n) · rms(x) · 10^(−SNR / 20)
    masks      some time steps and some frequency bands of the frames are set to 0     SpecAugment, Park et al. 2019

All random draws come from torch's default generator, which the training loop seeds at every step.
"""

import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.layers.masks import within


class DistortConfig(Config):
    """The [sound.distort] table of a recipe; the defaults leave recordings unchanged."""

    speed: float = Field(
        1.0, ge=1, description="maximum factor by which speech is sped up or slowed down; 1: unchanged"
    )
    snr: tuple[float, float] | None = Field(
        None, description="minimum and maximum signal-to-noise ratio of added noise, in decibels; default: no noise"
    )
    time_masks: int = Field(0, ge=0, description="number of time masks per recording")
    time_width: float = Field(0.1, ge=0, description="maximum width of a time mask, in seconds")
    band_masks: int = Field(0, ge=0, description="number of frequency masks per recording")
    band_width: int = Field(8, ge=0, description="maximum width of a frequency mask, in mel bands")

    def model_post_init(self, _: object) -> None:
        if self.snr is not None and self.snr[0] > self.snr[1]:
            raise ValueError(f"snr = {list(self.snr)}: the minimum is larger than the maximum")


def change_speed(waves: Tensor, lengths: Tensor, speeds: Tensor) -> tuple[Tensor, Tensor]:
    """Play waves (B, N) of lengths (B,) at speeds (B,), by linear interpolation. Returns new waves and lengths."""
    after = (lengths / speeds).long().clamp(min=1)
    at = torch.arange(int(after.max()), device=waves.device) * speeds[:, None]  # (B, N')
    at = at.minimum(lengths[:, None] - 1.0)
    left = at.long()
    right = (left + 1).minimum(lengths[:, None] - 1)
    y = torch.lerp(waves.gather(1, left), waves.gather(1, right), at - left)
    return y * within(y.size(1), after), after


def add_noise(waves: Tensor, lengths: Tensor, snr: Tensor) -> Tensor:
    """Add white noise to waves (B, N), at a signal-to-noise ratio of snr (B,) decibels."""
    rms = (waves.square().sum(1) / lengths).sqrt() * 10 ** (-snr / 20)  # (B,)
    return (waves + torch.randn_like(waves) * rms[:, None]) * within(waves.size(1), lengths)


def mask_frames(frames: Tensor, lengths: Tensor, n_times: int, longest: int, n_bands: int, widest: int) -> Tensor:
    """Set random intervals of time and of frequency in frames (B, T, M) to 0, a value between silent and loud."""
    times = intervals(frames.size(1), lengths, n_times, longest)  # (B, T)
    bands = intervals(frames.size(2), torch.full_like(lengths, frames.size(2)), n_bands, widest)  # (B, M)
    return frames.masked_fill(times[:, :, None] | bands[:, None, :], 0.0)


def intervals(size: int, lengths: Tensor, n: int, widest: int) -> Tensor:
    """Return a mask (B, size), True in n random intervals per row that start within the row's length.

    An interval is at most `widest` wide.
    """
    place = torch.arange(size, device=lengths.device)
    starts = (torch.rand(len(lengths), n, device=lengths.device) * lengths[:, None]).long()[:, :, None]  # (B, n, 1)
    widths = torch.randint(widest + 1, starts.shape, device=lengths.device)
    return ((starts <= place) & (place < starts + widths)).any(1)
