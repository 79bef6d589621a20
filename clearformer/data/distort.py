"""Sounds made a little different each time they are heard, a batch at a time, on whatever device they are.

    speed      y(n) = x(s n)                        faster and higher, slower and lower: other throats (Ko et al. 2015)
    noise      y(n) = x(n) + ε(n) · rms(x) · 10^(−SNR / 20)
    masks      some rows of the frames, and some columns, are struck out                 SpecAugment (Park et al. 2019)

Everything is drawn from torch's own generator, which the training loop seeds at every step.
"""

import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.layers.masks import within


class DistortConfig(Config):
    """[sound.distort]. The defaults leave sounds as they are."""

    speed: float = Field(1.0, ge=1, description="at most so many times as fast, or as slow")
    snr: tuple[float, float] | None = Field(None, description="decibels by which noise is weaker, at least and at most")
    time_masks: int = Field(0, ge=0, description="of a recording")
    time_width: float = Field(0.1, ge=0, description="seconds, at most")
    band_masks: int = Field(0, ge=0, description="likewise, of pitches")
    band_width: int = Field(8, ge=0, description="bands, at most")

    def model_post_init(self, _: object) -> None:
        if self.snr is not None and self.snr[0] > self.snr[1]:
            raise ValueError(f"snr = {list(self.snr)} must rise")


def change_speed(waves: Tensor, lengths: Tensor, speeds: Tensor) -> tuple[Tensor, Tensor]:
    """waves (B, N), lengths (B,), speeds (B,) -> waves (B, N'), lengths / speeds; between samples, on a line."""
    after = (lengths / speeds).long().clamp(min=1)
    at = torch.arange(int(after.max()), device=waves.device) * speeds[:, None]  # (B, N')
    at = at.minimum(lengths[:, None] - 1.0)
    left = at.long()
    right = (left + 1).minimum(lengths[:, None] - 1)
    y = torch.lerp(waves.gather(1, left), waves.gather(1, right), at - left)
    return y * within(y.size(1), after), after


def add_noise(waves: Tensor, lengths: Tensor, snr: Tensor) -> Tensor:
    """snr (B,): decibels."""
    rms = (waves.square().sum(1) / lengths).sqrt() * 10 ** (-snr / 20)  # (B,)
    return (waves + torch.randn_like(waves) * rms[:, None]) * within(waves.size(1), lengths)


def strike_out(frames: Tensor, lengths: Tensor, n_times: int, longest: int, n_bands: int, widest: int) -> Tensor:
    """frames (B, T, M): zeros, between silent and loud, in stretches of time and in stripes of pitch."""
    times = stretches(frames.size(1), lengths, n_times, longest)  # (B, T)
    bands = stretches(frames.size(2), torch.full_like(lengths, frames.size(2)), n_bands, widest)  # (B, M)
    return frames.masked_fill(times[:, :, None] | bands[:, None, :], 0.0)


def stretches(size: int, lengths: Tensor, n: int, widest: int) -> Tensor:
    """(B, size) bool: True in n stretches of each row, of up to `widest` places each, that begin within its length."""
    place = torch.arange(size, device=lengths.device)
    starts = (torch.rand(len(lengths), n, device=lengths.device) * lengths[:, None]).long()[:, :, None]  # (B, n, 1)
    widths = torch.randint(widest + 1, starts.shape, device=lengths.device)
    return ((starts <= place) & (place < starts + widths)).any(1)
