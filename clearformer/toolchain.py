"""Whether this machine can compile kernels, and the folder that keeps what is compiled."""

import os
import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def can_compile() -> bool:
    """Whether Triton is installed and can build its launcher: it needs a C compiler and the headers of Python."""
    compilers = (os.environ.get("CC", "gcc"), "gcc", "clang")
    has_headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    return find_spec("triton") is not None and has_headers and any(map(shutil.which, compilers))


def cache_home() -> Path:
    """Return the user's folder for what can be made again. It may not exist."""
    if chosen := os.environ.get("CLEARFORMER_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer"


def keep_compiled_code() -> None:
    """Make torch.compile keep its code in the user's cache.

    Otherwise torch makes a folder among the temporary files as soon as `torch._dynamo` is imported, and never removes
    it. Where the cache cannot be written, or the user has no home, torch's choice stays.
    """
    try:
        folder = cache_home() / "inductor"
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except (OSError, RuntimeError):  # a folder that may not be searched; no home
        return
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
