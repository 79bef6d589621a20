"""The usual changes of activations, for `Lens(model, put={name: change})`.

zero_heads(2, 5)          heads switched off: their part of z is 0
mean_heads(z, 2)          heads that say the same at every position: the mean of z over texts and positions
zero_units(7)             hidden features switched off
mean_units(x, 7)          hidden features that are the same at every position
replace(x, at=[3])        the activation of another run, everywhere or at positions
add(v, at=[3])            steering: a vector added to the residual stream
scale(0.5)                everything multiplied

A change is a function (activation, its name) -> activation; any function of this form will do. Positions are on the
second axis from the end: (…, T, D).
"""

from collections.abc import Sequence

from torch import Tensor

from clearformer.errors import ConfigError
from clearformer.lens.session import Patch


def zero_heads(*heads: int) -> Patch:
    """Switch heads off, at a point z, q, k, v, scores or pattern (B, H, T, …)."""
    return lambda value, name: with_heads(value, heads, 0.0, name)


def mean_heads(reference: Tensor, *heads: int) -> Patch:
    """Replace heads of z (B, H, T, N) by their means over the rows and positions of a reference (B', H, T', N)."""
    means = reference.mean((0, 2))  # (H, N)
    return lambda value, name: with_heads(value, heads, means[list(heads), None], name)


def zero_units(*units: int) -> Patch:
    """Switch features off, on the last axis."""
    return lambda value, name: with_units(value, units, 0.0, name)


def mean_units(reference: Tensor, *units: int) -> Patch:
    """Replace features by their means over the rows and positions of a reference (…, D), on the last axis."""
    means = reference.flatten(0, -2).mean(0)  # (D,)
    return lambda value, name: with_units(value, units, means[list(units)], name)


def replace(other: Tensor, at: Sequence[int] | None = None) -> Patch:
    """Put the activation of another run in place, at the given positions or everywhere."""

    def change(value: Tensor, name: str) -> Tensor:
        if at is None:
            return other
        check(at, min(value.size(-2), other.size(-2)), "position", name)
        value = value.clone()
        value[..., list(at), :] = other[..., list(at), :].to(value)
        return value

    return change


def add(vector: Tensor, at: Sequence[int] | None = None) -> Patch:
    """Add a vector (D,) or a tensor to the activation, at the given positions or everywhere."""

    def change(value: Tensor, name: str) -> Tensor:
        moved = value + vector.to(value)
        return moved if at is None else replace(moved, at)(value, name)  # type: ignore[return-value]

    return change


def scale(factor: float) -> Patch:
    return lambda value, name: value * factor


def with_heads(value: Tensor, heads: Sequence[int], new: Tensor | float, name: str) -> Tensor:
    check(heads, value.size(1), "head", name)
    value = value.clone()
    value[:, list(heads)] = new if isinstance(new, float) else new.to(value)
    return value


def with_units(value: Tensor, units: Sequence[int], new: Tensor | float, name: str) -> Tensor:
    check(units, value.size(-1), "unit", name)
    value = value.clone()
    value[..., list(units)] = new if isinstance(new, float) else new.to(value)
    return value


def check(indices: Sequence[int], n: int, kind: str, name: str) -> None:
    for index in indices:
        if not -n <= index < n:
            raise ConfigError(f"{name} has no {kind} {index}", f"choose from 0 to {n - 1}")
