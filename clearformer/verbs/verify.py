"""verify: compare every file of a run folder, or of a folder of `data build`, with its checksum."""

from pathlib import Path
from typing import Any

from clearformer.checkpoint import RunFolder
from clearformer.checksums import CHECKSUMS, faults, read, seal
from clearformer.data.built import folder as built
from clearformer.errors import CheckpointError, ConfigError
from clearformer.loading.folder import find


def verify(model: str | Path, accept: bool = False) -> dict[str, Any]:
    """Compare the files of a run folder with its checksums.json, and return its path, files and faults.

    A fault is a sentence about a file that is missing or has changed. `accept` writes the checksums of the files as
    they are now, for a folder without any, or after a change on purpose. A folder of `data build` is compared with its
    built.json.
    """
    if built.is_built(folder := Path(model)):
        return verify_built(folder, accept)
    run = RunFolder(find(model))
    run.require()
    if accept:
        seal(run.path, changed=None)
    elif not (run.path / CHECKSUMS).exists():
        raise CheckpointError(
            f"{run.path} has no {CHECKSUMS}: it was written by an earlier version",
            f"if it is as it should be, add them: clearformer verify {run.path} --accept",
        )
    problems = faults(run.path)
    return {"run": str(run.path), "files": 0 if problems else len(read(run.path) or {}), "faults": problems}


def verify_built(folder: Path, accept: bool) -> dict[str, Any]:
    if accept:
        raise ConfigError(f"{folder} is a folder of `data build`, whose files nobody edits", "build it again")
    index = built.read_index(folder)
    if not index.files:
        raise CheckpointError(
            f"{folder / built.INDEX} has no checksums: it was written by an earlier version",
            "build it again, if you want to compare its files",
        )
    problems = built.faults(folder)
    return {"run": str(folder), "files": 0 if problems else len(index.files), "faults": problems}
