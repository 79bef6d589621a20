"""What an engine serves: a model with its adapters, and what each of its texts needs to be decoded."""

from collections.abc import Mapping

import torch

from clearformer.errors import ConfigError, suggest
from clearformer.generation.continuous import Footprint
from clearformer.generation.open_tables import Tables
from clearformer.handles.handle import Handle, count_parameters
from clearformer.serve.crew import Crew
from clearformer.serve.scheduler import Room
from clearformer.serve.texts import Text
from clearformer.serve.work import TooLarge


class Served:
    """A model with its adapters by name, as `open_with_adapters` returns them (loading/adapters.py).

    `footprint` is None if the model does not generate, or if its texts cannot join and leave a batch. `tables` is None
    if its steps cannot be recorded. `crew` are the worker processes that decode it, if there are any.
    """

    crew: Crew | None = None

    def __init__(self, handle: Handle, adapters: Mapping[str, Handle]) -> None:
        self.handle, self.adapters = handle, dict(adapters)
        self.n_weights = count_parameters(handle.model)
        with torch.inference_mode():
            self.footprint = Footprint.of(handle.model) if {"translate", "generate"} & {*handle.verbs} else None
            self.tables = None if self.footprint is None or adapters else Tables.of(handle.model)

    def handle_for(self, adapter: str | None) -> tuple[Handle, int]:
        """Return the handle of an adapter, and its number in the model, 0 for none."""
        if adapter is None:
            return self.handle, 0
        if adapter not in self.adapters:
            hint = suggest(adapter, self.adapters) if self.adapters else "omit the adapter"
            raise ConfigError(f"{self.handle.name} has no adapter `{adapter}`", hint)
        return self.adapters[adapter], 1 + list(self.adapters).index(adapter)

    def measure(self, text: Text, room: Room) -> None:
        """Set what a text needs to be decoded, and who can decode it. Raises TooLarge if it needs more than `room`."""
        if self.footprint is None:
            text.is_alone = True
            return
        if self.tables is not None and not text.work.top and self.tables.can_hold(text.sequences):
            text.tables = self.tables  # `top` needs all logits
        text.n_bytes = self.footprint.n_bytes(text.sequences)
        if text.n_bytes > room.bytes:
            need, have = text.n_bytes / 1e6, room.bytes / 1e6
            raise TooLarge(
                f"a text may need {need:,.0f} MB of caches, but the engine has {have:,.0f} MB",
                "send a shorter text, or ask for fewer tokens or hypotheses",
            )
        if self.crew is not None and self.crew.suits(text):
            text.crew = self.crew
