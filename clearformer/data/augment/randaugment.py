"""RandAugment: several operations in sequence, each drawn from fourteen, with one magnitude (Cubuk et al. 2020).

With m = magnitude / 30, and a random sign for operations with two directions:

    move      x̃(p) = x(A p), A about the centre:   rotate ±30° m   shear_x, shear_y ±0.3 m   translate_x, _y ±0.45 m
    blend     x̃ = d + (1 ± 0.9 m) (x − d):         brightness  d = 0              contrast   d = mean of x in grey
                                                   colour      d = x in grey      sharpness  d = x smoothed
    tone      x̃ = g(x):    posterize   only the 8 − 4m highest bits       solarize   255 − x from 255 (1 − m) up
                           autocontrast   linear, from the darkest and lightest value to 0 and 255
                           equalize       histogram equalisation
    identity  x̃ = x

Tone and blend operations give exactly the same values as Pillow. Every operation is computed for all images; then each
image takes the result of the operation drawn for it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

MOVES = {"rotate": torch.pi / 6, "shear_x": 0.3, "shear_y": 0.3, "translate_x": 0.45, "translate_y": 0.45}
BLENDS = ("brightness", "contrast", "colour", "sharpness")
TONES = ("posterize", "solarize", "autocontrast", "equalize")
OPERATIONS = ("identity", *MOVES, *BLENDS, *TONES)


def randaugment(pixels: Tensor, n: int, magnitude: float) -> Tensor:
    """Apply n random operations to each image of pixels, uint8 (B, C, Y, X) with Y = X."""
    for _ in range(n):
        which = torch.randint(len(OPERATIONS), (len(pixels),), device=pixels.device)
        sign = 2.0 * torch.randint(2, (len(pixels),), device=pixels.device) - 1
        pixels = operate(pixels, which, magnitude / 30, sign)
    return pixels


def operate(pixels: Tensor, which: Tensor, m: float, sign: Tensor) -> Tensor:
    """Apply operation number which[b] of OPERATIONS to image b; `which` and `sign` are (B,)."""
    x = pixels.float()
    chosen = {name: which == i for i, name in enumerate(OPERATIONS)}

    def one_of(names: tuple[str, ...]) -> Tensor:
        return torch.stack([chosen[name] for name in names]).any(0)[:, None, None, None]

    def pick(options: dict[str, Tensor], default: Tensor) -> Tensor:
        for name, option in options.items():
            default = torch.where(chosen[name][:, None, None, None], option, default)
        return default

    result = torch.where(one_of(tuple(MOVES)), move(x, chosen, m * sign), x)
    base = pick({"contrast": mean_grey(x), "colour": grey(x), "sharpness": smooth(x)}, torch.zeros_like(x))
    blended = base + (1 + 0.9 * m * sign)[:, None, None, None] * (x - base)
    result = torch.where(one_of(BLENDS), blended.clamp(0, 255).floor(), result)
    tones = {
        "posterize": posterize(x, 8 - round(4 * m)),
        "solarize": torch.where(x < 255 * (1 - m), x, 255 - x),
        "autocontrast": autocontrast(x),
        "equalize": equalize(x),
    }
    return pick(tones, result).round().to(torch.uint8)


def move(x: Tensor, chosen: dict[str, Tensor], amount: Tensor) -> Tensor:
    """Apply the chosen affine transformation to each image, with black borders and bilinear interpolation."""
    by = {name: torch.where(chosen[name], limit * amount, 0) for name, limit in MOVES.items()}
    cos, sin = by["rotate"].cos(), by["rotate"].sin()
    across = torch.stack([cos, by["shear_x"] - sin, 2 * by["translate_x"]], 1)
    down = torch.stack([sin + by["shear_y"], cos, 2 * by["translate_y"]], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def grey(x: Tensor) -> Tensor:
    """Convert (B, C, Y, X) to luma (B, 1, Y, X): 0.299 R + 0.587 G + 0.114 B."""
    if x.size(1) == 1:
        return x
    red, green, blue = x.split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue) / 65536 + 0.5).floor()


def mean_grey(x: Tensor) -> Tensor:
    return (grey(x).mean((2, 3), keepdim=True) + 0.5).floor()


def smooth(x: Tensor) -> Tensor:
    """Replace each pixel by a mean of itself (weight 5) and its eight neighbours (weight 1); edges are unchanged."""
    inner = (9 * F.avg_pool2d(x, 3, stride=1) + 4 * x[:, :, 1:-1, 1:-1]) / 13
    smoothed = x.clone()
    smoothed[:, :, 1:-1, 1:-1] = (inner + 0.5).floor()
    return smoothed


def posterize(x: Tensor, bits: int) -> Tensor:
    step = 2 ** (8 - bits)
    return (x / step).floor() * step


def autocontrast(x: Tensor) -> Tensor:
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, ((x - low) * 255 / (high - low)).clamp(0, 255).floor(), x)


def equalize(x: Tensor) -> Tensor:
    """Equalise the histogram of each channel: a value becomes the fraction of darker pixels, in 255 steps."""
    tones = x.long().flatten(2)  # (B, C, Y · X)
    counts = torch.zeros(*x.shape[:2], 256, device=x.device, dtype=torch.long)
    counts = counts.scatter_add(2, tones, torch.ones_like(tones))
    lightest = counts.gather(2, tones.amax(2, keepdim=True))
    step = (tones.size(2) - lightest) // 255  # (B, C, 1)
    darker = counts.cumsum(2) - counts
    table = torch.where(step > 0, (darker + step // 2) // step.clamp(min=1), torch.arange(256, device=x.device))
    return table.clamp(max=255).gather(2, tones).view_as(x).to(x.dtype)
