"""Weights & Biases: the recipe as config, metrics by step, and the test metrics in the summary.

Without an API key (WANDB_API_KEY, or ~/.netrc as `wandb login` writes it), everything stays in the folder `wandb` of
the run, and `wandb sync` uploads it later; nothing asks for a key. WANDB_MODE, WANDB_PROJECT and WANDB_DIR apply.
A run that is active already is used, and not ended.
"""

import os
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from clearformer.training.journal import console
from clearformer.training.loggers import Logger, RunFacts, library, numbers, reason

CONNECT = 20.0  # seconds to reach the server before logging offline
UPLOAD = 60.0  # seconds to upload the rest at the end; `wandb sync` uploads what is left


class WandbLogger(Logger):
    is_append_only = True

    def __init__(self) -> None:
        self.wandb = library("wandb", "wandb")
        self.run: Any = None
        self.is_owner = True

    def begin(self, run: RunFacts) -> str:
        self.run = self.wandb.run
        self.is_owner = self.run is None
        if self.is_owner:
            self.run = self.opened(run)
        else:
            self.run.config.update(dict(run.recipe), allow_val_change=True)
        return str(self.run.id)

    def opened(self, run: RunFacts) -> Any:
        """Open a run, or continue it under its id: online if there is a key and the server answers."""
        wanted = {"silent": True, "console": "off", "init_timeout": CONNECT, "finish_timeout": UPLOAD}
        known = self.wandb.Settings.model_fields
        options = {
            "project": os.environ.get("WANDB_PROJECT") or "clearformer",
            "name": run.folder.resolve().name,
            "id": run.id or uuid4().hex[:8],
            "dir": os.environ.get("WANDB_DIR") or str(run.folder.resolve()),
            "config": dict(run.recipe),
            "settings": self.wandb.Settings(**{name: value for name, value in wanted.items() if name in known}),
        }
        mode = os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and has_key():
            try:
                return self.wandb.init(mode=mode, resume="allow", **options)
            except self.wandb.Error as error:
                console.print(f"wandb logs offline, `wandb sync` uploads it later: {reason(error)}")
                self.wandb.teardown()  # its service still holds the id
        return self.wandb.init(mode="offline" if mode == "online" else mode, **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def end(self, report: Mapping[str, Any] | None) -> None:
        if report is not None:
            self.run.summary.update(numbers(report.get("test", {}), "test/"))
        if self.is_owner:
            self.run.finish(exit_code=0 if report is not None else 1)


def has_key() -> bool:
    """Whether there is an API key for the server, so that wandb would not ask for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    try:
        return (
            host is not None
            and netrc(os.environ.get("NETRC") or Path.home() / ".netrc").authenticators(host) is not None
        )
    except (OSError, NetrcParseError):
        return False
