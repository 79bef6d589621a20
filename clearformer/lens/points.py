"""The names of all activations of a model.

    PATH.out                              the output of the module at PATH: encoder.norm.out, features.3.out
    BLOCK.resid_pre, resid_post           the residual stream before and after a Transformer block
    BLOCK.resid_mid, resid_cross          after attention; in a decoder, after cross-attention
    BLOCK.attn_out, cross_out, mlp_out    what the sublayers add to the stream, before dropout
    BLOCK.attn.q, k, v                    queries, keys and values (B, H, T, K)
    BLOCK.attn.scores, pattern, z         scores (B, H, T, S), their softmax, and the mixed values (B, H, T, N)
    BLOCK.mlp.hidden                      the hidden features of a feed-forward network (B, T, F)
    LAYERS.l0.h, m, update, forget, …     states and gates of a recurrent layer by time (B, T, D); l0_reverse backwards
    PATH.pattern                          the alignment of additive attention (B, T, S)

PATH is the path of a module, as in the names of the weights. A pattern such as decoder.blocks.*.cross.pattern matches
several names; an asterisk matches any text. Heads of an attention layer are chosen by index: pattern[0,3].
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from clearformer.errors import ConfigError, suggest
from clearformer.layers.additive import AdditiveAttention
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.blocks import Block
from clearformer.layers.feedforward import FeedForward, GatedFeedForward
from clearformer.layers.recurrent import Step, Unrolled

Place = Literal["input", "output", "second", "core", "cell"]
CORE = ("q", "k", "v", "scores", "pattern", "z")
STATES = ("h", "m")


@dataclass(frozen=True)
class Point:
    """An activation: the module where it occurs and the place there.

    "input" and "output" are the first tensors of each, "second" is the second output. "core" is inside an attention
    layer, "cell" inside a recurrent layer, at its part `leaf`.
    """

    name: str
    module: nn.Module
    place: Place
    leaf: str = ""


def points(model: nn.Module) -> dict[str, Point]:
    """Return all activations by name, in the order of the modules."""
    rows: list[Point] = []
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        if isinstance(module, Block):
            rows += block_points(prefix, module)
        elif isinstance(module, MultiHeadAttention):
            rows += [Point(f"{prefix}{leaf}", module, "core", leaf) for leaf in CORE]
        elif isinstance(module, FeedForward | GatedFeedForward):
            rows.append(Point(f"{prefix}hidden", module.down, "input"))
        elif isinstance(module, AdditiveAttention):
            rows.append(Point(f"{prefix}pattern", module, "second"))
        elif isinstance(module, Unrolled):
            rows += [Point(f"{prefix}{leaf}", module, "cell", leaf) for leaf in recurrent_leaves(module)]
        elif isinstance(module, Step):
            rows += [Point(f"{prefix}{leaf}", module, "cell", leaf) for leaf in module.cell.gate_names]
        if not isinstance(module, Block | nn.ModuleList | nn.ModuleDict):
            rows.append(Point(f"{prefix}out", module, "output"))
    return {point.name: point for point in rows}


def block_points(prefix: str, block: Block) -> list[Point]:
    parts = [("resid_pre", block, "input"), ("attn_out", block.attn, "output"), ("resid_mid", block.add_attn, "output")]
    if block.has_cross:
        parts += [("cross_out", block.cross, "output"), ("resid_cross", block.add_cross, "output")]
    parts += [("mlp_out", block.mlp, "output"), ("resid_post", block, "output")]
    return [Point(f"{prefix}{name}", module, place) for name, module, place in parts]  # type: ignore[arg-type]


def recurrent_leaves(layers: Unrolled) -> list[str]:
    names = [*STATES[: layers.cell.n_states], *layers.cell.gate_names]
    passes = [f"l{layer}{direction}" for layer in range(layers.n_layers) for direction in layers.directions]
    return [f"{one}.{name}" for one in passes for name in names]


def select(wanted: Iterable[str], known: dict[str, Point]) -> dict[str, list[int] | None]:
    """Return the names that match, each with the heads chosen in brackets, or None for all of them.

    Raises ConfigError for a pattern that matches nothing, with the nearest names.
    """
    chosen: dict[str, list[int] | None] = {}
    for asked in wanted:
        pattern, _, heads = asked.partition("[")
        matching = [name for name in known if fnmatchcase(name, pattern)]
        if not matching:
            hint = suggest(pattern, known)
            hint = hint if len(hint) < 400 else "`clearformer lens list` prints all names"
            raise ConfigError(f"no activation is called `{pattern}`", hint)
        indices = read_heads(heads.removesuffix("]"), asked) if heads else None
        for name in matching:
            before = chosen.get(name, [])
            if indices is None or before is None:
                chosen[name] = None
            else:
                check_heads(known[name], indices)
                chosen[name] = sorted({*before, *indices})
    return chosen


def check_heads(point: Point, heads: list[int]) -> None:
    if not isinstance(layer := point.module, MultiHeadAttention) or point.place != "core":
        raise ConfigError(f"{point.name} has no heads", f"choose heads of an attention layer: {', '.join(CORE)}")
    n = layer.n_kv_heads if point.leaf in ("k", "v") else layer.n_heads
    if max(heads) >= n:
        raise ConfigError(f"{point.name} has no head {max(heads)}", f"choose from 0 to {n - 1}")


def read_heads(text: str, asked: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"`{asked}` does not choose heads", "write their indices: pattern[0,3]")
    return [int(part) for part in parts]
