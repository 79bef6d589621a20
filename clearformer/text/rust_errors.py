"""Errors of the Rust library `tokenizers`: it raises nothing precise, and its panics are not even Exceptions."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from clearformer.errors import ClearformerError, TokenizerError

HINT = "copy the file again, or train a tokenizer"
LENGTH = 300  # characters of the library's message that are shown

P = ParamSpec("P")
T = TypeVar("T")


def is_of_rust(error: BaseException) -> bool:
    """Whether the library raised an error: an Exception of no more precise type, or a panic."""
    return type(error) is Exception or type(error).__name__ == "PanicException"


def guarded(message: str, hint: str = HINT, rust_only: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn whatever a method raises into a TokenizerError that begins with `message`.

    `rust_only` leaves the errors of Python alone, such as those of a caller's arguments.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                return method(*arguments, **options)
            except (ClearformerError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                if rust_only and not is_of_rust(error):
                    raise
                reason = " ".join(str(error).split())[:LENGTH] or type(error).__name__
                raise TokenizerError(f"{message}: {reason}", hint) from None

        return call

    return decorate
