"""Position encodings, without which a Transformer would see a bag of words.

    sinusoidal   PE(p, 2i) = sin(p / 10000^(2i/D)),  PE(p, 2i+1) = cos(the same)         added to the embedding
    learned      P[p], one vector per position                                           added to the embedding
    rotary       the pair (i, i + K/2) of q and k rotated by the angle p / 10000^(2i/K)  so q·k depends only on t − s
    alibi        −m_h · |t − s| on the attention scores, m_h = 2^(−8h/H)                 a bias, not learnt
    t5           b_h[bucket(t − s)] on the attention scores, buckets widen with |t − s|  a bias, learnt

Every encoding is a `Positions` that overrides one of the three hooks. All take explicit position tensors, so that
cached steps, packed documents and beam searches need no special case.

Shifting a sinusoidal encoding is linear: PE(p + k) = T_k · PE(p), where T_k, the `shift_matrix`, does not depend
on p.
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.errors import ConfigError
from clearformer.wording import count

MAX_TABLE = 2**25  # values of a table of sinusoids, which is computed in float64
Rotation = tuple[Tensor, Tensor]  # cosines and sines, (T, K/2) or (B, 1, T, K/2)


class Positions(nn.Module):
    """The three hooks through which positions enter a network. `positions` are integers (T,) or (B, T)."""

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add position vectors to the embeddings x (B, T, D)."""
        return x

    def rotation(self, positions: Tensor) -> Rotation | None:
        """Return the cosines and sines with which `rotate` turns queries and keys."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return a bias on the attention scores, broadcastable to (B, H, T, S).

        The positions of queries and keys are (T,) and (S,), or (B, T) and (B, S).
        """
        return None


def frequencies(
    width: int, base: float = 10000.0, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> Tensor:
    """Return ω_i = base^(−2i/width) for i = 0 … ⌈width/2⌉ − 1. Wavelengths range from 2π to 2π·base tokens."""
    return base ** (-torch.arange(0, width, 2, dtype=dtype, device=device) / width)


def sinusoids(n_positions: int, width: int, layout: str = "interleaved") -> Tensor:
    """Return the table of sinusoidal encodings, (n_positions, width), computed in float64.

    interleaved: sin, cos, sin, cos … as in the paper; halves: all sines, then all cosines, as in Tensor2Tensor and
    Marian. The two differ by a permutation of the features, which makes no difference to a learnt layer.
    """
    if n_positions * width > MAX_TABLE:
        raise ConfigError(
            f"sinusoids of {count(n_positions, 'position')} and width {width:,} need too much memory",
            "set a smaller max_length in [model], or positions without a table, such as rotary",
        )
    angles = torch.arange(n_positions, dtype=torch.float64)[:, None] * frequencies(width)  # (T, ⌈D/2⌉)
    if layout == "halves":
        return torch.cat([angles.sin(), angles[:, : width // 2].cos()], dim=1)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]


def shift_matrix(k: int, width: int) -> Tensor:
    """Return T_k, for which PE(p + k) = T_k PE(p) at every p. It rotates each pair of features:

    [sin ω(p+k), cos ω(p+k)]' = [[cos ωk, sin ωk], [−sin ωk, cos ωk]] [sin ωp, cos ωp]'

    The layout is interleaved, and the width is even.
    """
    blocks = [
        torch.tensor([[math.cos(w * k), math.sin(w * k)], [-math.sin(w * k), math.cos(w * k)]], dtype=torch.float64)
        for w in frequencies(width).tolist()
    ]
    return torch.block_diag(*blocks)


class Sinusoidal(Positions):
    def __init__(self, d_model: int, max_length: int, layout: str = "interleaved") -> None:
        super().__init__()
        self.table: Tensor
        # The table depends on sizes alone, so it is not saved with the weights.
        self.register_buffer(
            "table", sinusoids(max_length, d_model, layout).to(torch.get_default_dtype()), persistent=False
        )

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table[positions].to(x.dtype)


class Learned(Positions):
    """A learned vector for each position. The table starts with `offset` unused rows: two in RoBERTa."""

    def __init__(self, d_model: int, max_length: int, offset: int = 0) -> None:
        super().__init__()
        self.table, self.offset = nn.Embedding(max_length + offset, d_model), offset
        nn.init.normal_(self.table.weight, std=0.02)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions + self.offset)


class Rotary(Positions):
    """Rotary positions (Su et al. 2021). Features i and i + K/2 form a pair, as in Llama's checkpoints."""

    def __init__(self, d_head: int, base: float = 10000.0) -> None:
        super().__init__()
        self.d_head, self.base = d_head, base

    def rotation(self, positions: Tensor) -> Rotation:
        # No buffer, because it would be cast with the model: in bfloat16, an angle of 2,000 turns has no fraction.
        exact = torch.float32 if positions.device.type == "mps" else torch.float64
        omega = frequencies(self.d_head, self.base, exact, positions.device)
        angles = positions[..., None] * omega  # (T, K/2) or (B, T, K/2)
        if angles.dim() == 3:
            angles = angles[:, None]  # (B, 1, T, K/2), the same for all heads
        return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate each pair of features of x (B, H, T, K) by its angle. Norms do not change."""
    cos, sin = rotation[0].to(x.dtype), rotation[1].to(x.dtype)
    left, right = x.chunk(2, dim=-1)  # (B, H, T, K/2) each
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class Alibi(Positions):
    """ALiBi (Press et al. 2022): a bias that decreases with distance, with a different slope for each head."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.slopes: Tensor
        self.register_buffer("slopes", alibi_slopes(n_heads).to(torch.get_default_dtype()), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (T, S) or (B, T, S)
        return -self.slopes[:, None, None] * distance.unsqueeze(-3)  # (H, T, S) or (B, H, T, S)


def alibi_slopes(n_heads: int) -> Tensor:
    """Return the slopes m_h = 2^(−8h/H), if H is a power of two.

    Otherwise, return the slopes of the next lower power of two, then every other slope of the next higher one.
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1, dtype=torch.float64) / power)
    extra = 2.0 ** (-4 * (2 * torch.arange(n_heads - power, dtype=torch.float64) + 1) / power)
    return torch.cat([slopes, extra])


class Relative(Positions):
    """Relative positions of T5 (Raffel et al. 2020): a learnt bias for each head and each bucket of distances.

    Half of the buckets hold one distance each. The others widen logarithmically up to `max_distance`; the last one
    holds all larger distances.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, is_causal: bool = False) -> None:
        super().__init__()
        self.n_buckets, self.max_distance, self.is_causal = n_buckets, max_distance, is_causal
        self.weight = nn.Embedding(n_buckets, n_heads)
        nn.init.normal_(self.weight.weight, std=0.02)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        ahead = keys[..., None, :] - queries[..., :, None]  # (T, S) or (B, T, S), positive towards the future
        return self.weight(self.bucket(ahead)).movedim(-1, -3)  # (H, T, S) or (B, H, T, S)

    def bucket(self, ahead: Tensor) -> Tensor:
        n, start = self.n_buckets, torch.zeros_like(ahead)
        if self.is_causal:
            distance = (-ahead).clamp(min=0)
        else:
            n //= 2
            start, distance = (ahead > 0) * n, ahead.abs()
        exact = n // 2
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (n - exact)).long()).clamp(max=n - 1)
        return start + torch.where(distance < exact, distance, far)


class PositionConfig(Config):
    """The [model.positions] table of a recipe: settings of the position encoding."""

    kind: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "none"] = Field(
        "sinusoidal", description="position encoding"
    )
    layout: Literal["interleaved", "halves"] = Field(
        "interleaved", description="sinusoidal: sines and cosines interleaved, or all sines in the first half"
    )
    base: float = Field(10000.0, description="rotary: base of the wavelengths")
    offset: int = Field(0, ge=0, description="learned: unused rows of the table before position 0")
    n_buckets: int = Field(32, ge=4, description="t5: number of distance buckets")
    max_distance: int = Field(128, gt=0, description="t5: distance in tokens from which the last bucket is used")

    def model_post_init(self, _: object) -> None:
        if self.max_distance <= self.n_buckets // 2:
            raise ValueError(
                f"max_distance = {self.max_distance} must be greater than half of n_buckets = {self.n_buckets}"
            )

    def build(self, d_model: int, n_heads: int, d_head: int, max_length: int, is_causal: bool) -> Positions:
        match self.kind:
            case "sinusoidal":
                return Sinusoidal(d_model, max_length, self.layout)
            case "learned":
                return Learned(d_model, max_length, self.offset)
            case "rotary":
                return Rotary(d_head, self.base)
            case "alibi":
                return Alibi(n_heads)
            case "t5":
                return Relative(n_heads, self.n_buckets, self.max_distance, is_causal)
        return Positions()
