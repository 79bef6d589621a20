"""Limits of what a configuration may ask for: a network is not allocated because a file says so.

check_sizes(config)              every size in a configuration is below a limit that no real model reaches
with at_most(n, error):          networks that are built inside have at most n parameters
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from pydantic import BaseModel
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from clearformer.errors import ClearformerError, ConfigError

LAYERS = 4096  # of one kind; each is an object of its own
LIMITS = dict.fromkeys(("n_layers", "n_encoder_layers", "n_decoder_layers", "depths", "n_filters"), LAYERS)
LIMITS |= {"max_length": 2**24, "size": 2**14, "channels": 2**10}
MOST = 2**31 - 1  # any other size
FACTOR, ROOM = 4, 2**20  # parameters of a network that is loaded from a file, relative to those of the file


def check_sizes(config: BaseModel) -> None:
    """Raise an error if a number in a configuration, or in one inside it, is larger than any real model needs."""
    for name, value in config:
        if isinstance(value, BaseModel):
            check_sizes(value)
        limit = LIMITS.get(name, MOST)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and number > limit:
                raise ConfigError(
                    f"[model] {name} = {number} is too large: it must be at most {limit:,}",
                    "if the file is not yours, it is damaged; copy it again",
                )


@contextmanager
def at_most(n: int, error: ClearformerError) -> Iterator[None]:
    """Raise `error` as soon as a network that is built inside, by this thread, has more than n parameters.

    Memory that is reserved but never written is not in use: what is built so far costs nothing.
    """
    thread, seen, total = get_ident(), dict[int, nn.Parameter](), 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        if parameter is not None and get_ident() == thread and id(parameter) not in seen:
            seen[id(parameter)] = parameter  # kept alive, so that no other takes its id
            total += parameter.numel()
            if total > n:
                raise error

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except RuntimeError as refused:  # by the allocator, or since the product of sizes is not a number of 64 bits
        words = ("allocate memory", "overflow", "out of range", "out of memory", "invalid shape", "negative dimension")
        if any(word in str(refused) for word in words):
            raise error from None
        raise
    except (MemoryError, OverflowError):
        raise error from None
    finally:
        handle.remove()
