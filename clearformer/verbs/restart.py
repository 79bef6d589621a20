"""The same command, started again by a launcher, continues the run in its folder: train.resume.

torchrun --max-restarts N   starts all processes again when one fails, and counts in TORCHELASTIC_RESTART_COUNT
SLURM --requeue             starts the batch file again, and counts in SLURM_RESTART_COUNT
Kubernetes                  starts a container again without a word, so any start may be a second one
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clearformer.checkpoint import RunFolder
from clearformer.errors import CheckpointError, ConfigError
from clearformer.recipe import Recipe
from clearformer.tables import read_toml

COUNTERS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
IGNORED = ("train.resume", "train.timeout")


def is_counted() -> bool:
    """Whether a launcher says that this process is not the first one of its run."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in COUNTERS)


def may_be_restart() -> bool:
    return is_counted() or "KUBERNETES_SERVICE_HOST" in os.environ


def require_out(recipe: Recipe, out: Any) -> None:
    """Raise if a training is restarted that chooses a new folder each time."""
    if out is None and is_counted() and recipe.train.resume != "never":
        raise ConfigError("a training that is restarted needs --out, to find its checkpoint", "add --out RUN")


def saved_run(recipe: Recipe, folder: Path) -> Recipe | None:
    """Return the recipe saved in a folder if this command continues its run, and None if it starts a new one."""
    run, resume = RunFolder(folder), recipe.train.resume
    if resume == "never" or (resume == "auto" and not may_be_restart()):
        return None
    if not run.exists or not run.requested.exists():
        return None
    try:
        before = dict(values(read_toml(run.requested, "")))
    except ConfigError as error:
        raise CheckpointError(
            error.message, f"copy it again, or continue the run: clearformer train --resume --out {folder}"
        ) from None
    now = dict(values(tomllib.loads(recipe.dump())))
    for key in sorted(before.keys() | now.keys()):
        if key not in IGNORED and before.get(key) != now.get(key):
            raise CheckpointError(
                f"{folder} was started with {written(key, before)}, and this command has {written(key, now)}",
                "give the same command to continue the run, or choose another --out",
            )
    return Recipe.read(run.recipe)


def written(key: str, flat: Mapping[str, Any]) -> str:
    return f"{key} = {flat[key]}" if key in flat else f"no {key}"


def values(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of nested tables with dots, and their values. The path of a Python object differs in every process."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from values(value, f"{prefix}{key}.")
        elif key != "path" or "given" not in table:
            yield f"{prefix}{key}", value
