"""The errors that a user can cause and fix.

    ClearformerError
    ├── ConfigError        an invalid recipe, preset or command-line value
    ├── DataError          a dataset that is missing, empty or wrongly encoded, or has the wrong columns
    │   └── LengthError    a text that is longer than a model can read
    ├── TokenizerError     a vocabulary that cannot be trained, or does not fit the model
    ├── CheckpointError    a run folder that is missing, truncated or unknown, or belongs to another model
    ├── TrainingError      a run that diverged: its loss is no longer finite
    └── MachineError       an unavailable device, a full disk, a package that is not installed

Each error has a message of one sentence, which says what is wrong and where, and a hint, which says what to do.
Any other exception is a bug in Clearformer and keeps its traceback.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

MOST = 2000  # characters of a message or a hint


class ClearformerError(Exception):
    """An error that the user can fix. `str(error)` is the message followed by the hint."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        message, hint = shortened(message), None if hint is None else shortened(hint)
        self.message, self.hint = message, hint
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")


def shortened(text: str) -> str:
    """Shorten words and sentences that no one wrote to be read, such as a name of a megabyte in a damaged file."""
    return re.sub(r"\S{400,}", lambda word: f"{word[0][:200]}…", text)[:MOST]


class ConfigError(ClearformerError):
    pass


class DataError(ClearformerError):
    pass


class LengthError(DataError):
    pass


class TokenizerError(ClearformerError):
    pass


class CheckpointError(ClearformerError):
    pass


class TrainingError(ClearformerError):
    pass


class MachineError(ClearformerError):
    pass


class Stopped(KeyboardInterrupt):
    """Raised by a signal other than Ctrl-C where nothing has to be saved. The exit code is 128 + `number`."""

    def __init__(self, number: int = 2) -> None:
        self.number = number
        super().__init__(number)


class Interrupted(Exception):
    """Raised after a signal, once the checkpoint is saved. It is no error, so it is no ClearformerError."""

    def __init__(self, number: int = 2) -> None:
        self.number = number  # of the signal; 2 is Ctrl-C
        super().__init__(number)


class Paused(Interrupted):
    """Raised at the step train.pause, once the checkpoint is saved."""


def suggest(word: str, known: Iterable[str], meant: Iterable[str] = ()) -> str:
    """Return the hint for an unknown name: the closest known name, or all known names if none is close.

    `meant` are names with the same meaning (synonyms.py). The ones that are known take precedence over similar letters.
    """
    names = sorted(set(known))
    close = [name for name in meant if name in names] or get_close_matches(word, names, n=1, cutoff=0.6)
    return did_you_mean(close) if close else f"choose one of {', '.join(names)}"


def did_you_mean(names: Iterable[str]) -> str:
    """Return the hint that lists alternatives: "did you mean `a`, `b` or `c`?"."""
    *most, last = [f"`{name}`" for name in names]
    return f"did you mean {', '.join(most)}{' or ' if most else ''}{last}?"
