"""One input or many: f(["a", "b"]) = [f("a"), f("b")].

A string is a sequence of strings, so that a method on lists would take "good" for four texts of one letter. Methods
with `one_or_many` take a single text, file or array as what it is, and return a single result for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args, get_origin, overload

import numpy as np
from torch import Tensor

from clearformer.errors import DataError

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
One = TypeVar("One")
Many = TypeVar("Many")
One_co = TypeVar("One_co", covariant=True)
Many_co = TypeVar("Many_co", covariant=True)
Array = TypeVar("Array", Tensor, np.ndarray)
P = ParamSpec("P")
File = str | Path | np.ndarray
"""A file, or its contents: pixels (C, Y, X) or samples (N,)."""


class Call(Protocol[Item_contra, P, One_co, Many_co]):
    """A bound method that takes one input or many."""

    @overload
    def __call__(self, inputs: Item_contra, /, *arguments: P.args, **options: P.kwargs) -> One_co: ...
    @overload
    def __call__(self, inputs: Sequence[Item_contra], /, *arguments: P.args, **options: P.kwargs) -> Many_co: ...


class OneOrMany(Generic[Item, P, One, Many]):
    """The type of a method with `one_or_many`. At run time the method is an ordinary function."""

    def __get__(self, handle: object, kind: type | None = None) -> Call[Item, P, One, Many]:
        raise NotImplementedError


@overload
def one_or_many(
    method: Callable[Concatenate[Any, Sequence[Item], P], list[One]],
) -> OneOrMany[Item, P, One, list[One]]: ...
@overload
def one_or_many(
    method: Callable[Concatenate[Any, Sequence[Item], P], Array],
) -> OneOrMany[Item, P, Array, Array]: ...
def one_or_many(method: Any) -> Any:
    """Let a method on lists take a single input as well, and any iterable of inputs.

    The annotation of the first parameter says what an input is: Sequence[str] takes texts, and Sequence[File] takes
    files. Parameters that run parallel to the first, `pairs` and `targets`, are single with it. A single input is
    never skipped: its error is raised, and not added to a list `errors`.
    """
    shape = signature(method)
    first = list(shape.parameters)[1]
    many: Any = shape.parameters[first].annotation
    item = get_args(many)[0]
    types = tuple(get_origin(kind) or kind for kind in get_args(item) or (item,))

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        given = shape.bind(self, *arguments, **options)
        values = given.arguments
        is_single = is_one(values[first], types)
        for name in (first, *PARALLEL):
            if name == first or values.get(name) is not None:
                values[name] = as_list(values[name], is_single, types, name)
        if is_single:
            values.pop("errors", None)
        results = method(*given.args, **given.kwargs)
        return results[0] if is_single else results

    results = shape.return_annotation
    one = get_args(results)[0] | results if get_origin(results) is list else results
    parameters = {**shape.parameters, first: shape.parameters[first].replace(annotation=item | many)}
    call.__signature__ = Signature(list(parameters.values()), return_annotation=one)  # type: ignore[attr-defined]
    return call


PARALLEL = ("pairs", "targets")


def is_one(value: object, types: tuple[type, ...] = (str,)) -> bool:
    """Whether a value is one input: a string, a path, or an array of samples (N,) or of pixels (C, Y, X)."""
    if isinstance(value, np.ndarray):
        return np.ndarray in types and value.ndim in (1, 3) and value.dtype.kind not in "OU"
    return isinstance(value, str) or (Path in types and isinstance(value, Path))


def as_list(value: Any, is_single: bool, types: tuple[type, ...], name: str) -> list[Any]:
    """Return the inputs as a list. A value of another type, alone or in the list, is an error."""
    noun = "file" if Path in types else "text"
    if is_single != is_one(value, types):
        wanted = f"one {noun}" if is_single else f"a list of {noun}s"
        raise DataError(f"`{name}` is {described(value)}, not {wanted}", "give two single inputs, or two lists")
    if is_single:
        return [value]
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise DataError(
            f"expected a {noun} or a list of {noun}s, not {described(value)}",
            f"give one {noun} as a string, or several in a list",
        )
    items = list(value)
    for i, item in enumerate(items):
        if not isinstance(item, types):
            raise DataError(f"input {i} is {described(item)}, not a {noun}", "remove or convert it")
    return items


def described(value: object) -> str:
    """Describe a value of the wrong type: `the float nan`, `the list ['a', 'b']`."""
    return f"the {type(value).__name__} {repr(value)[:40]}"
