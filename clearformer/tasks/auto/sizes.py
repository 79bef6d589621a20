"""The numbers that zero configuration chooses, as functions of the size n of the data without jumps.

    f(n) = fᵢ (n / nᵢ)^pᵢ  for nᵢ ≤ n ≤ nᵢ₊₁,    pᵢ = log(fᵢ₊₁ / fᵢ) / log(nᵢ₊₁ / nᵢ)

A curve is a power law between two anchors (nᵢ, fᵢ), and constant outside them. Most anchors are corpora whose settings
were tuned: see docs/zero-configuration.md. What follows from other numbers is an equation: the learning rate of pairs
follows from batch and width, the number of steps from epochs and tokens.

Layers and heads do not depend on n. One layer more is a jump, and at the same number of parameters the shape of a
Transformer hardly matters (Kaplan et al. 2020, figure 5): only its width grows.
"""

import math
from bisect import bisect_right
from typing import NamedTuple


class Curve:
    """A power law between each two anchors, as a function of n."""

    def __init__(self, anchors: dict[float, float]) -> None:
        self.x = [math.log(n) for n in anchors]
        self.y = [math.log(value) for value in anchors.values()]

    def __call__(self, n: float) -> float:
        at = min(max(math.log(max(n, 1)), self.x[0]), self.x[-1])
        i = min(bisect_right(self.x, at), len(self.x) - 1)
        fraction = (at - self.x[i - 1]) / (self.x[i] - self.x[i - 1])
        return math.exp(self.y[i - 1] + fraction * (self.y[i] - self.y[i - 1]))


def even(value: float, parts: int = 16) -> int:
    """Round to a multiple of 2^⌊log₂ value⌋ / parts: the next value is at most 1 / parts larger.

    Such numbers are multiples of large powers of two, which suit the matrix products of a GPU.
    """
    unit = max(1, 2 ** math.floor(math.log2(value)) // parts)
    return unit * round(value / unit)


def brief(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")


def tens(value: float) -> int:
    return round(value / 10) * 10


# --- pairs, by the number of pairs

LAYERS, HEADS = 4, 4  # per stack, and per layer: as in Wu et al. 2021

VOCABULARY = Curve({1e3: 1000, 3e3: 4000, 29e3: 8000, 167e3: 10_000, 1.2e6: 20_000, 10e6: 32_000})
WIDTH = Curve({29e3: 128, 167e3: 304, 1.2e6: 608})
FEED_FORWARD = Curve({29e3: 256, 167e3: 1216, 1.2e6: 2432})
DROPOUT = Curve({29e3: 0.3, 167e3: 0.2, 1.2e6: 0.1})
TOKENS = Curve({1e3: 1024, 3e3: 2048, 29e3: 4096, 167e3: 8192, 1.2e6: 16_384, 10e6: 32_768})
EPOCHS = Curve({1e3: 200, 3e3: 150, 29e3: 60, 167e3: 30, 1.2e6: 15, 10e6: 8})
LEAST_STEPS = 3000  # short sentences need as many steps as long ones; early stopping ends a run that needs fewer
RECURRENT_WIDTH = Curve({29e3: 256, 167e3: 512, 1.2e6: 1024})  # about as many parameters as the Transformer
RECURRENT_EMBEDDING = Curve({167e3: 256, 1.2e6: 640})


class PairSizes(NamedTuple):
    vocabulary: int
    width: int
    feed_forward: int
    dropout: float
    tokens: int
    """Tokens per side and step, padding included."""
    epochs: float
    recurrent: tuple[int, int]
    """The widths of a recurrent network and its embeddings."""


def pair_sizes(n: int) -> PairSizes:
    """Return the choices for n sentence pairs."""
    recurrent = even(RECURRENT_WIDTH(n)), even(RECURRENT_EMBEDDING(n))
    width, feed_forward, dropout = even(WIDTH(n)), even(FEED_FORWARD(n)), brief(DROPOUT(n))
    return PairSizes(even(VOCABULARY(n), 64), width, feed_forward, dropout, even(TOKENS(n), 32), EPOCHS(n), recurrent)


def pair_rate(tokens: int, width: int) -> float:
    """Return the peak learning rate of a translator: it grows with √tokens per step, and falls with the width.

    lr = 0.002 · √(tokens / 1024) · (128 / width)^1.5,  with a width of at least 128
    """
    return brief(2e-3 * math.sqrt(tokens / 1024) * (128 / max(128, width)) ** 1.5)


# --- text, by the number of characters

CHARACTERS = 5e6  # up to this length, a text is too short to learn subwords from
CHARS_PER_TOKEN = 4  # of subwords


class TextSizes(NamedTuple):
    """The size of a language model and its training settings. `context` is in tokens; `tokens` counts them per step."""

    layers: int
    heads: int
    width: int
    context: int
    dropout: float
    tokens: int
    epochs: float
    lr: float


MODEST = TextSizes(4, 4, 128, 128, 0.1, 2048, 2, 2e-3)  # for a CPU: a model that trains in minutes

TEXT_WIDTH = Curve({0.1e6: 128, 1.1e6: 384, 30e6: 576, 1e9: 1088})
TEXT_CONTEXT = Curve({0.1e6: 128, 1.1e6: 256, 30e6: 512, 1e9: 1024})
TEXT_DROPOUT = Curve({1.1e6: 0.2, 30e6: 0.1, 1e9: 0.01})
TEXT_TOKENS = Curve({0.1e6: 4096, 1.1e6: 16_384, 30e6: 32_768, 1e9: 65_536})
TEXT_EPOCHS = Curve({1.1e6: 60, 30e6: 10, 1e9: 2})
TEXT_RATE = Curve({0.1e6: 2e-3, 1.1e6: 1e-3, 30e6: 1e-3, 1e9: 6e-4})


def text_sizes(n: int) -> TextSizes:
    """Return the choices for a text of n characters on a GPU."""
    context, tokens = even(TEXT_CONTEXT(n)), even(TEXT_TOKENS(n), 32)
    dropout, lr = brief(TEXT_DROPOUT(n)), brief(TEXT_RATE(n))
    return TextSizes(6, 8, even(TEXT_WIDTH(n)), context, dropout, tokens, TEXT_EPOCHS(n), lr)


def tokens_of_text(n: int, has_characters: bool = True) -> float:
    """Estimate the tokens that an epoch of n characters is worth.

    A character is a token up to CHARACTERS. Subwords are fewer; the steps of a run would fall by a factor of four
    where they begin. Instead, their number stays the same until there are as many subwords.
    """
    subwords = n / CHARS_PER_TOKEN
    return max(min(n, CHARACTERS), subwords) if has_characters else subwords


# --- labelled texts, by their number

LABEL_VOCABULARY = Curve({1e3: 2000, 10e3: 8000, 200e3: 16_000, 5e6: 32_000})
LABEL_WIDTH = Curve({1e3: 64, 10e3: 128, 200e3: 352, 5e6: 896})
LABEL_DROPOUT = Curve({10e3: 0.3, 200e3: 0.2, 5e6: 0.1})
LABEL_TOKENS = Curve({1e3: 1024, 10e3: 2048, 200e3: 8192, 5e6: 16_384})
LABEL_EPOCHS = Curve({1e3: 40, 10e3: 20, 200e3: 8, 5e6: 3})
LABEL_RATE = Curve({1e3: 2e-3, 10e3: 1e-3, 200e3: 5e-4, 5e6: 3e-4})


class LabelSizes(NamedTuple):
    layers: int
    heads: int
    width: int
    dropout: float
    vocabulary: int
    tokens: int
    epochs: float
    lr: float


def label_sizes(n: int) -> LabelSizes:
    """Return the choices for n labelled texts."""
    vocabulary, tokens = even(LABEL_VOCABULARY(n), 64), even(LABEL_TOKENS(n), 32)
    dropout, lr = brief(LABEL_DROPOUT(n)), brief(LABEL_RATE(n))
    return LabelSizes(2, 4, even(LABEL_WIDTH(n)), dropout, vocabulary, tokens, LABEL_EPOCHS(n), lr)


# --- images, by their number

IMAGE_STEM = Curve({2e3: 16, 60e3: 64})
IMAGE_ROWS = Curve({1e3: 32, 10e3: 128, 60e3: 256})
IMAGE_EPOCHS = Curve({1e3: 40, 10e3: 30, 60e3: 20})
CPU_IMAGE_ROWS = Curve({1e3: 32, 10e3: 128})
CPU_IMAGE_EPOCHS = Curve({1e3: 40, 10e3: 30, 60e3: 8})  # more would take days


class ImageSizes(NamedTuple):
    depths: list[int]
    """Blocks of each stage."""
    widths: list[int]
    """Channels of each stage."""
    n_rows: int
    """Images per step."""
    epochs: float


def image_sizes(n: int, on_gpu: bool) -> ImageSizes:
    """Return the choices for n images: on a GPU ResNet-18, narrower for few images; elsewhere ResNet-20."""
    if on_gpu:
        return ImageSizes([2] * 4, stages(round(IMAGE_STEM(n)), 4), even(IMAGE_ROWS(n)), IMAGE_EPOCHS(n))
    return ImageSizes([3] * 3, stages(16, 3), even(CPU_IMAGE_ROWS(n)), CPU_IMAGE_EPOCHS(n))


def stages(first: int, n: int) -> list[int]:
    return [first << i for i in range(n)]


# --- recordings, by their number

SPEECH_EPOCHS = Curve({1e3: 40, 3e3: 20, 60e3: 8})

# --- epochs of fine-tuning, by method, and by the number of examples (of tokens for text)

TUNE_LABELS = {
    "full": Curve({1e3: 8, 10e3: 4, 60e3: 3}),
    "lora": Curve({1e3: 15, 10e3: 6, 60e3: 3}),
    "prefix": Curve({1e3: 20, 10e3: 8, 60e3: 4}),
    "head": Curve({1e3: 20, 10e3: 8, 60e3: 3}),
}
TUNE_IMAGES = {
    "full": Curve({1e3: 20, 10e3: 10, 60e3: 4}),
    "lora": Curve({1e3: 20, 10e3: 10, 60e3: 4}),
    "head": Curve({1e3: 20, 10e3: 10, 60e3: 3}),
}
TUNE_TEXT = Curve({100e3: 10, 1e6: 3, 10e6: 1})
TUNE_SPEECH = Curve({1e3: 15, 3e3: 6, 60e3: 3})
