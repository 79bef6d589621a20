"""Files of other libraries: settings of any type, and tensors of any shape, are possible in them."""

from collections.abc import Iterator
from contextlib import contextmanager

from clearformer.errors import CheckpointError

FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError)


@contextmanager
def untrusted(where: object, hint: str = "download the file again, or choose another model") -> Iterator[None]:
    """Turn errors of a conversion into one that names the file: its settings or tensors are not what they should be.

    A converter checks what files of real models differ in. A file in which a number is a list, or a matrix has three
    axes, was damaged.
    """
    try:
        yield
    except FAULTS as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"{where} has settings or tensors that no such model has ({reason})", hint) from None
