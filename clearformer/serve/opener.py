"""How a model of a server is opened, so that another process can open the same."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clearformer.checkpoint import RunFolder
from clearformer.handles.handle import Handle
from clearformer.loading.adapters import open_with_adapters
from clearformer.loading.open import handle_of
from clearformer.tasks.task import Pretrained

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Opener:
    """The folder of a model, how it is read, and the folders of its adapters by name.

    `stamps` identify the files of all weights as they were when it was created.
    """

    path: Path
    device: str
    read: Callable[[Path, str], Pretrained]
    adapters: Mapping[str, Path] = field(default_factory=dict)
    stamps: tuple[Stamp | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stamps", self.read_stamps())

    def open(self) -> tuple[Handle, dict[str, Handle]]:
        """Return the handle of the model, and the handles of its adapters."""
        if self.adapters:
            return open_with_adapters(self.path, self.adapters, self.device)
        return handle_of(self.read(self.path, self.device)), {}

    def read_stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp_of(RunFolder(path).model) for path in (self.path, *self.adapters.values()))


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes whenever a file is written again; None if there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
