"""A model at work on one text, from Python: what `handle.lens(text)` returns.

look = clearformer.load("runs/mine").lens("A man rides a bike.")
look["decoder.blocks.2.cross.pattern"]          an activation by name
look.view("attention")                          a view; the last line of a cell draws it
"""

from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from clearformer.errors import ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.lens.points import points
from clearformer.verbs.lens import VIEWS, Request, View, compute
from clearformer.wording import count


class Look:
    """A model at work on one text, as `handle.lens(text)` returns it: activations by name, and views."""

    def __init__(self, handle: Handle, text: str, target: str | None = None) -> None:
        if not isinstance(text, str | Path):
            raise ConfigError("a lens reads one text, image file or recording", "give a single string")
        self.request = Request(handle, text=str(text), target=target)
        self.kept: dict[str, Any] = {}

    def names(self, pattern: str = "*") -> list[str]:
        return [name for name in points(self.request.reading.model) if fnmatchcase(name, pattern)]

    def __getitem__(self, name: str) -> Any:
        """Return an activation: a tensor, or a list of tensors if it occurs several times in a forward pass.

        The model runs once for each new name.
        """
        if name not in self.kept:
            _, look = self.request.reading.look(keep=[name])
            if len(look.kept) > 1:
                raise ConfigError(f"`{name}` matches several activations", f"name one of them: {min(look.kept)}")
            self.kept[name] = look[name.partition("[")[0]]
        return self.kept[name]

    def view(self, name: str = "attention", **options: Any) -> View:
        """Compute a view of this text."""
        if name not in VIEWS:
            raise ConfigError(f"there is no view called `{name}`", suggest(name, VIEWS))
        return compute(name, replace(self.request, **options))

    def __repr__(self) -> str:
        reading = self.request.reading
        return f"<Look at {reading.name}: {count(len(self.names()), 'activation')}, such as {self.names()[0]}>"

    def _repr_html_(self) -> str:
        """Draw attention; of a model without attention, the gates of its cells; else histograms of its layers."""
        for name in ("attention", "gates"):
            with suppress(ConfigError):
                return self.view(name)._repr_html_()
        return self.view("histograms")._repr_html_()
