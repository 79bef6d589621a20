"""The provenance in every result file: command, commit, versions, machine and date."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from clearformer.checkpoint import versions

RESULTS = Path(__file__).parent / "results"


def stamp(command: str, **more: str) -> dict[str, Any]:
    """Provenance of a result; `more` are versions of other packages. $COMMIT overrides the commit, for a copy of the
    repository without history and for finished runs that are only read.
    """
    return {
        "command": command,
        "commit": os.environ.get("COMMIT") or described() or "unknown",
        "versions": {**versions(), **more},
        "date": time.strftime("%Y-%m-%d"),
    }


def described() -> str:
    """The commit of this checkout, and -dirty if files differ from it; other results may."""
    commit, changed = (
        subprocess.run(["git", *words], capture_output=True, text=True, cwd=RESULTS.parent.parent).stdout.strip()
        for words in (["describe", "--always"], ["status", "--porcelain", "--", ".", ":!benchmarks/results"])
    )
    return f"{commit}-dirty" if changed else commit


def record(result: dict[str, Any], path: Path) -> None:
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    print(text, end="")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
