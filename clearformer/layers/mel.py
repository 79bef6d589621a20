"""What the ear hears of a sound: how loud each band of pitch is, moment by moment.

X(t, f)   = Σ_n w(n) x(t·hop + n) e^(−2πi f n / N)         the spectrum around each moment, w a Hann window
mel(f)    = 2595 log10(1 + f / 700)                        steps of pitch that sound alike (O'Shaughnessy 1987)
S(t, m)   = Σ_f |X(t, f)|² Λ_m(f)                          Λ_m a triangle; all of them evenly spaced in mel
y(t, m)   = log10(S(t, m) / max S)                         bels: 0 where it is loudest, wherever that is
out(t, m) = 1 + 2 max(y(t, m), −FLOOR) / FLOOR             from −1, silence, to 1; loudness itself is forgotten
"""

import math

import torch
from torch import Tensor, nn

from clearformer.layers.masks import within
from clearformer.layers.recurrent import own_precision

FLOOR = 6.0  # bels: what is 60 decibels below the loudest is silence


def to_mel(hertz: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + hertz / 700)


def to_hertz(mel: Tensor) -> Tensor:
    return 700 * (10 ** (mel / 2595) - 1)


def triangles(n_mels: int, n_fft: int, rate: int) -> Tensor:
    """Λ (F, M), F = n_fft / 2 + 1: each rises from the peak of the one before to its own, and falls to the next."""
    hertz = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=torch.float64)[:, None]  # (F, 1)
    top = to_mel(torch.tensor(rate / 2, dtype=torch.float64))
    corners = to_hertz(torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * top)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    return torch.minimum((hertz - left) / (peak - left), (right - hertz) / (right - peak)).clamp(min=0)


class LogMel(nn.Module):
    """waves (B, N), zero beyond their lengths (B,) -> frames (B, T, M), zero beyond theirs, T = 1 + N // hop.

    window, hop: samples. The spectrum has the next power of two of them: its bins must be finer than the lowest bands.
    """

    def __init__(self, rate: int, n_mels: int, window: int, hop: int) -> None:
        super().__init__()
        self.hop, self.n_fft = hop, 2 ** math.ceil(math.log2(window))
        self.window: Tensor
        self.triangles: Tensor
        # Functions of sizes alone, so they are not saved with any weights.
        self.register_buffer("window", torch.hann_window(window), persistent=False)
        self.register_buffer("triangles", triangles(n_mels, self.n_fft, rate).float(), persistent=False)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths = 1 + lengths // self.hop
        with own_precision(waves.device.type):
            power = self.power(waves)  # (B, T, M)
            real = within(power.size(1), lengths)
            power = power * real[:, :, None]
            loudest = power.amax((1, 2), keepdim=True).clamp(min=1e-10)
            frames = 1 + 2 * (power / loudest).clamp(min=10**-FLOOR).log10() / FLOOR
            return frames * real[:, :, None], lengths

    def power(self, waves: Tensor) -> Tensor:
        """S (B, T, M). Beyond both ends of a sound there is silence, so that padding changes nothing."""
        spectrum = torch.stft(
            waves, self.n_fft, self.hop, len(self.window), self.window, pad_mode="constant", return_complex=True
        )
        return spectrum.abs().square().mT @ self.triangles
