"""The command `clearformer studio`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Device


@app.command(cls=Command)
def studio(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Run folder, Hugging Face folder or bundled model; repeatable.",
            show_default="the bundled translator",
            rich_help_panel="Input",
        ),
    ] = [],  # noqa: B006
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with run folders: their models, and their training while it goes on.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            help="Port on this machine.",
            show_default="a free one",
            rich_help_panel="Server",
        ),
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Only print the URL; open no browser.", rich_help_panel="Server")
    ] = False,
    device: Device = "cpu",
) -> None:
    """See models at work in the browser.

    Examples:
      clearformer studio                                 # the bundled translator
      clearformer studio --model runs/mine --model runs/base
      clearformer studio --runs runs/                    # all models of a folder, live curves
      clearformer studio --port 8000 --no-open           # then open the URL that is printed

    Starts a server that only this machine can reach, and opens its page. The URL has a random token, without which the
    server answers nothing. Ctrl-C ends it.
    """
    from clearformer.studio.start import start

    start(model, runs, port, device, is_opened=not no_open, say=lambda url: print(url, flush=True))
