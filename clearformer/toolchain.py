"""Whether this machine can compile kernels."""

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
