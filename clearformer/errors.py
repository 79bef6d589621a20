"""What can go wrong for a user, as one small tree.

    ClearformerError
    ├── ConfigError        a recipe, a preset, a command-line value
    ├── DataError          a corpus: missing, empty, mis-encoded, wrong columns
    ├── TokenizerError     a vocabulary that cannot be trained, or does not fit the model
    ├── CheckpointError    a run folder: missing, truncated, foreign, of another model
    ├── TrainingError      a training that came to nothing: its loss is not a number any more
    └── MachineError       no such device, a full disk, a package that is not installed

Each carries one sentence that says what is wrong and where, and a hint that says what would work.
Anything else that escapes is a bug of ours and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ClearformerError(Exception):
    """A mistake a user can mend. `str(error)` is the whole message, hint included."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")


class ConfigError(ClearformerError):
    pass


class DataError(ClearformerError):
    pass


class TokenizerError(ClearformerError):
    pass


class CheckpointError(ClearformerError):
    pass


class TrainingError(ClearformerError):
    pass


class MachineError(ClearformerError):
    pass


class Interrupted(Exception):
    """Ctrl-C or a polite kill, after everything was saved and said. No mistake, so it stands outside the tree."""


def suggest(word: str, known: Iterable[str]) -> str:
    """The hint for a misspelt name: the closest known one, or the whole list when nothing is close."""
    names = sorted(set(known))
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else f"choose one of: {', '.join(names)}"
