"""A built folder at an address such as s3://bucket/folder, read by fsspec through a cache on this machine.

    $CLEARFORMER_CACHE/data/<key>/     a built folder without its shards, which are fetched when they are needed

Shards that will be needed next are fetched in the background. Everything in the cache can be deleted at any time.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from clearformer.checkpoint import write_json
from clearformer.data.built.folder import INDEX, REMOTE, SPLIT_FILES, read_index, read_url
from clearformer.errors import DataError, MachineError

SMALL = (INDEX, "tokenizer.json", "source.tokenizer.json", "target.tokenizer.json", "lengths.safetensors")
AHEAD = 2  # shards fetched at a time


def is_address(path: Any) -> bool:
    return isinstance(path, str) and "://" in path


def cache_folder() -> Path:
    if chosen := os.environ.get("CLEARFORMER_CACHE"):
        return Path(chosen).expanduser() / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearformer" / "data"


def local_copy(url: str) -> Path:
    """Return the local folder of an address, with everything but the shards."""
    files, root = connect(url)
    try:
        index = files.cat_file(f"{root}/{INDEX}")
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{url} has no {INDEX}", "give the address of a folder of `clearformer data build`") from None
    except Exception as error:  # fsspec passes on the errors of many libraries
        raise MachineError(f"{url} cannot be read ({str(error)[:200]})", "check the address and your access") from None
    folder = cache_folder() / sha256(url.encode() + index).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    remote = Remote(folder, url)
    for name in (*SMALL[1:], *SPLIT_FILES):
        if files.exists(f"{root}/{name}"):
            remote.fetch(name)
    write_json(folder / REMOTE, {"url": url})
    remote.fetch(INDEX)  # last: a folder with an index is complete
    read_index(folder)
    return folder


def connect(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise MachineError(
            f"{url} needs the library fsspec, which is not installed", "pip install 'clearformer[remote]'"
        ) from None
    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:  # the library of this protocol is missing, or there is none
        raise MachineError(
            f"{url} cannot be opened ({str(error)[:200]})", "install the library that it names"
        ) from None
    return files, str(root).rstrip("/")


class Remote:
    """Fetches files of an address into a folder, each complete or not at all."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.threads = ThreadPoolExecutor(AHEAD)
        self.coming: dict[str, Future[None]] = {}

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(folder, read_url(folder))

    def prefetch(self, name: str) -> None:
        if name not in self.coming and not (self.folder / name).exists():
            self.coming[name] = self.threads.submit(self.download, name)

    def fetch(self, name: str) -> None:
        """Wait until a file is here."""
        self.prefetch(name)
        if name in self.coming:
            self.coming.pop(name).result()

    def download(self, name: str) -> None:
        files, root = connect(self.url)
        draft = self.folder / f".{name}.{uuid4().hex}"
        try:
            files.get_file(f"{root}/{name}", str(draft))
            os.replace(draft, self.folder / name)
        except Exception as error:
            draft.unlink(missing_ok=True)
            message = f"{self.url}/{name} cannot be fetched ({str(error)[:200]})"
            raise MachineError(message, "check the connection, then resume the run") from None
