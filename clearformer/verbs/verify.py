"""verify: compare every file of a run folder with its checksum."""

from pathlib import Path
from typing import Any

from clearformer.checkpoint import RunFolder
from clearformer.checksums import CHECKSUMS, faults, read, seal
from clearformer.errors import CheckpointError
from clearformer.loading.folder import find


def verify(model: str | Path, accept: bool = False) -> dict[str, Any]:
    """Compare the files of a run folder with its checksums.json, and return its path, files and faults.

    A fault is a sentence about a file that is missing or has changed. `accept` writes the checksums of the files as
    they are now, for a folder without any, or after a change on purpose.
    """
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
