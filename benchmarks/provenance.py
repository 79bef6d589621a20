"""What every result says of itself: the command, the commit it ran at, versions and machine, the day."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from clearformer.checkpoint import versions

RESULTS = Path(__file__).parent / "results"


def stamp(command: str, **more: str) -> dict[str, Any]:
    """`more` are further versions, of peers. $COMMIT tells the commit of a copy without its history, and that of
    trainings which are only read.
    """
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=RESULTS.parent)
    return {
        "command": command,
        "commit": os.environ.get("COMMIT") or git.stdout.strip() or "unknown",
        "versions": {**versions(), **more},
        "date": time.strftime("%Y-%m-%d"),
    }


def record(result: dict[str, Any], path: Path) -> None:
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    print(text, end="")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
