"""Write files that are complete or absent, whatever happens meanwhile: a kill, a full disk, a power failure."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE

from safetensors import SafetensorError

from clearformer.checksums import note
from clearformer.errors import MachineError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomically(path: Path, is_noted: bool = True) -> Iterator[Path]:
    """Yield a temporary path to write to; on exit, flush the file to disk and rename it to `path`.

    Its checksum is noted, unless the caller does this: only one process may write the checksums of a folder.

    The file mode follows the umask, even if the writer replaces the temporary file: safetensors creates it as 0600.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = create(draft)
        yield draft
        if S_IMODE(draft.stat().st_mode) != mode:
            draft.chmod(mode)
        flush(draft)
        if is_noted:
            note(path, draft)
        os.replace(draft, path)
        flush(path.parent)
    except (OSError, SafetensorError) as error:
        # Errors of the safetensors library have no errno, only the text of the system's message.
        full = getattr(error, "errno", None) in FULL or any(os.strerror(code) in str(error) for code in FULL)
        reason = "the disk is full" if full else str(error)
        hint = "free some space; files saved earlier are intact" if full else "check the path and its permissions"
        raise MachineError(f"{path} cannot be written: {reason}", hint) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def flush(path: Path) -> None:
    """Flush a file to disk, or the names in a folder: without it, a rename may be undone by a power failure."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def create(path: Path) -> int:
    """Create an empty file, and return its mode.

    The mode reveals the umask. Reading the umask directly would change it for all threads.
    """
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return S_IMODE(os.fstat(file).st_mode)
    finally:
        os.close(file)


def write_text(path: Path, text: str) -> None:
    with atomically(path) as draft:
        draft.write_text(text, encoding="utf-8")
