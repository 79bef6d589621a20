"""Write a model as a run folder: an imported model, or a base model with an adapter merged into it."""

import fcntl
import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor, nn

from clearformer.checkpoint import CLASSES, RunFolder, save_tensors, write_json
from clearformer.checksums import seal
from clearformer.disk import flush, write_text
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import TEMPLATE
from clearformer.tables import Tables
from clearformer.tasks.task import save_tokenizers
from clearformer.text import Tokenizer

IMPORTED = ("origin", "image", "sound", "model")  # the tables of a recipe without [data]


def require_empty(out: Path) -> None:
    """Raise an error if the folder exists and is not empty, so that nothing is overwritten."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise CheckpointError(f"{out} already exists and is not empty", "choose another folder")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a draft folder next to `out`; on exit, flush it to disk and rename it to `out`, which may exist if empty.

    So `out` is complete or absent, and a command that was killed can be repeated. Drafts of killed commands, whose lock
    nobody holds any more, are removed.
    """
    whole = Path(os.path.abspath(out))
    draft = whole.with_name(f".{whole.name}.{os.getpid()}")
    whole.parent.mkdir(parents=True, exist_ok=True)
    for old in whole.parent.glob(f".{glob.escape(whole.name)}.*"):
        if old.suffix[1:].isdigit() and not is_locked(old):
            shutil.rmtree(old)
    draft.mkdir()
    lock = os.open(draft, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield draft
        for path in (*draft.rglob("*"), draft):
            flush(path)
        if whole == Path.cwd() or os.path.ismount(whole):  # cannot be replaced
            for path in sorted(draft.iterdir()):
                os.replace(path, whole / path.name)
        else:
            os.replace(draft, whole)
        flush(whole.parent)
    finally:
        os.close(lock)
        shutil.rmtree(draft, ignore_errors=True)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def write_run(
    out: Path,
    recipe: Tables,
    weights: Mapping[str, Tensor],
    tokenizers: list[Tokenizer],
    template: str | None = None,
    classes: list[str] | None = None,
) -> None:
    """Write a run folder. The recipe is written last, so that a folder with a recipe is complete."""
    run, tables = RunFolder(out), recipe.tables()
    if recipe.data is None:
        tables = {name: table for name, table in tables.items() if name in IMPORTED}
    if tokenizers:
        save_tokenizers(run, tokenizers[0], tokenizers[-1])
    if classes is not None:
        write_json(out / CLASSES, classes)
    if template is not None:
        write_text(out / TEMPLATE, template)
    save_tensors(run.model, weights, {"tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers]})
    write_text(run.recipe, tomli_w.dumps(tables))
    seal(out)


def describe_run(out: Path, recipe: Tables, network: nn.Module) -> dict[str, Any]:
    """Return the output of commands that write a run folder: its path, architecture and number of parameters."""
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    return {"run": str(out), "kind": recipe.model.kind, "parameters": n_parameters}
