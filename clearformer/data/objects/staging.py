"""Temporary files that Python objects are written to, until a run folder keeps a copy, and their names in messages.

with staged():                   errors name the object, not its temporary file; at the end, the files are removed
    folder = new_folder()
    TITLES[folder / "pairs.jsonl"] = "a list of 2,000 pairs"
    titled("/tmp/…/pairs.jsonl: using columns en and de")       a list of 2,000 pairs: using columns en and de
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from clearformer.errors import ClearformerError

TITLES: dict[Path, str] = {}
FOLDERS: list[Path] = []
ROOT: list[TemporaryDirectory] = []  # created on first use, removed when the process ends


def new_folder() -> Path:
    """Return a new, empty folder for the files of one object."""
    if not ROOT:
        ROOT.append(TemporaryDirectory(prefix="clearformer-"))
    FOLDERS.append(Path(ROOT[0].name) / str(len(FOLDERS)))
    FOLDERS[-1].mkdir()
    return FOLDERS[-1]


@contextmanager
def staged(keep: bool = False) -> Iterator[None]:
    """Name objects, not their temporary files, in errors, and remove the files at the end unless `keep` is set."""
    first = len(FOLDERS)
    try:
        yield
    except ClearformerError as error:
        message, hint = titled(error.message), titled(error.hint or "") or None
        if message == error.message and hint == error.hint:
            raise
        raise type(error)(message, hint) from None
    finally:
        for folder in [] if keep else FOLDERS[first:]:
            shutil.rmtree(folder, ignore_errors=True)
            for path in [path for path in TITLES if path.is_relative_to(folder)]:
                del TITLES[path]


def titled(text: str) -> str:
    """Replace temporary files in a text by the objects that they contain: lines become rows."""
    for path, title in TITLES.items():
        text = re.sub(rf"({re.escape(str(path))}):(\d+)", r"\1, row \2", text).replace(str(path), title)
    return text
