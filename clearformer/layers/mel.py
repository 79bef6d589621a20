"""The log-mel spectrogram of a recording: how loud each frequency band is in each frame.

X(t, f)   = Σ_n w(n) x(t·hop + n) e^(−2πi f n / N)         the spectrum of frame t, w a Hann window
mel(f)    = 2595 log10(1 + f / 700)                        equal steps sound equally far apart (O'Shaughnessy 1987)
S(t, m)   = Σ_f |X(t, f)|² Λ_m(f)                          triangular filters Λ_m, evenly spaced in mel
y(t, m)   = log10(S(t, m) / max S)                         bels, 0 at the loudest value of the recording
out(t, m) = 1 + 2 max(y(t, m), −FLOOR) / FLOOR             from −1 (silence) to 1; the overall volume is discarded
"""

import math

import torch
from torch import Tensor, nn

from clearformer.layers.masks import within
from clearformer.layers.recurrent import autocast_off

FLOOR = 6.0  # bels; anything 60 decibels below the loudest value counts as silence


def to_mel(hertz: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + hertz / 700)


def to_hertz(mel: Tensor) -> Tensor:
    return 700 * (10 ** (mel / 2595) - 1)


def triangles(n_mels: int, n_fft: int, rate: int) -> Tensor:
    """Return the filters Λ (F, M), F = n_fft / 2 + 1: triangles from the previous filter's peak to the next one's."""
    hertz = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)[:, None]  # (F, 1)
    top = to_mel(torch.tensor(rate / 2, dtype=torch.float64))
    corners = to_hertz(torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * top)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    return torch.minimum((hertz - left) / (peak - left), (right - hertz) / (right - peak)).clamp(min=0)


class LogMel(nn.Module):
    """Compute frames (B, T, M), T = 1 + N // hop, and their lengths (B,) from waves (B, N) and lengths (B,).

    Frames after the end of a recording are zero. `window` and `hop` are numbers of samples. The size of the spectrum is
    `window` rounded up to a power of two, because its bins must be narrower than the lowest bands.
    """

    def __init__(self, rate: int, n_mels: int, window: int, hop: int) -> None:
        super().__init__()
        self.hop, self.n_fft = hop, 2 ** math.ceil(math.log2(window))
        self.window: Tensor
        self.triangles: Tensor
        # Both depend only on sizes, so they are not saved with the weights.
        self.register_buffer("window", torch.hann_window(window), persistent=False)
        self.register_buffer("triangles", triangles(n_mels, self.n_fft, rate).float(), persistent=False)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths = 1 + lengths // self.hop
        with autocast_off(waves.device.type):
            power = self.power(waves)  # (B, T, M)
            real = within(power.size(1), lengths)
            power = power * real[:, :, None]
            loudest = power.amax((1, 2), keepdim=True).clamp(min=1e-10)
            frames = 1 + 2 * (power / loudest).clamp(min=10**-FLOOR).log10() / FLOOR
            return frames * real[:, :, None], lengths

    def power(self, waves: Tensor) -> Tensor:
        """Return S (B, T, M). Silence is added at both ends of a recording, so that padding makes no difference."""
        spectrum = torch.stft(
            waves, self.n_fft, self.hop, len(self.window), self.window, pad_mode="constant", return_complex=True
        )
        return spectrum.abs().square().mT @ self.triangles
