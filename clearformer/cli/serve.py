"""The command `clearformer serve`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Device


def server_option(help: str, metavar: str, **settings: Any) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel="Server", **settings)


def limit_option(help: str, metavar: str = "N", **settings: Any) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel="Limits", **settings)


@app.command(cls=Command)
def serve(
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
    adapter: Annotated[
        list[str],
        typer.Option(
            "--adapter",
            metavar="NAME=RUN",
            help="LoRA adapter of one of the models, to be served as the model NAME; repeatable.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = [],  # noqa: B006
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with run folders: all their models, and their curves in the studio.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = None,
    host: Annotated[
        str, server_option("Address to listen at; other than this machine's own only with --api-key-file.", "ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, server_option("Port; 0 chooses a free one.", "N", min=0, max=65535)] = 8000,
    api_key_file: Annotated[
        Path | None,
        server_option(
            "File with a key that every request needs, or several, one per line.", "FILE", show_default="no key"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        server_option(
            "Processes that decode each model; 0 for none but the server's own.",
            "N",
            min=0,
            max=256,
            show_default="on a CPU, one per core for small models, at most 8",
        ),
    ] = None,
    drain_seconds: Annotated[
        float, server_option("Time to answer accepted requests after SIGTERM or Ctrl-C.", "S", min=0)
    ] = 30.0,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Log the texts of requests, too.", rich_help_panel="Server")
    ] = False,
    timeout: Annotated[float, limit_option("Time for one request; then it is refused with 504.", "S", min=0.1)] = 120.0,
    queue: Annotated[int, limit_option("Texts that may wait per model; further ones get 429.", min=1)] = 1024,
    max_tokens: Annotated[int, limit_option("Tokens that a request may ask for, per text.", min=1)] = 4096,
    max_body: Annotated[float, limit_option("Size of a request.", "MB", min=0.001)] = 1.0,
    max_upload: Annotated[
        float, limit_option("Size of a request with an image or a recording.", "MB", min=0.001)
    ] = 25.0,
    min_free_memory: Annotated[
        float, limit_option("Memory that must be free for a request to be accepted.", "MB", min=0)
    ] = 256.0,
    device: Device = "cpu",
) -> None:
    """Serve models by HTTP.

    Examples:
      clearformer serve                                     # the bundled translator at 127.0.0.1:8000
      clearformer serve --model runs/mine --model runs/gpt  # several, by the names of their folders
      clearformer serve --model runs/base --adapter legal=runs/lora-legal --adapter chat=runs/lora-chat
      clearformer serve --host 0.0.0.0 --api-key-file key.txt
      clearformer serve --runs runs/ --port 9000            # every model of a folder

    Prints a request to paste, then answers until SIGTERM or Ctrl-C. Clients of OpenAI's API work unchanged with the
    URL http://127.0.0.1:8000/v1. All paths are described at /api/openapi.json. The log goes to stderr, one JSON object
    per line, without the texts of requests. With clearformer[studio] installed, the studio is at /.
    """
    from clearformer.serve.limits import Limits
    from clearformer.serve.start import parse_adapters, start

    limits = Limits(
        body=round(max_body * 1e6),
        upload=round(max_upload * 1e6),
        tokens=max_tokens,
        queue=queue,
        seconds=timeout,
        free_memory=round(min_free_memory * 1e6),
    )
    start(
        model,
        parse_adapters(adapter),
        runs,
        host,
        port,
        api_key_file,
        device,
        limits,
        workers,
        drain_seconds,
        log_texts,
        mount=studio_pages(),
        say=lambda line: print(line, flush=True),
    )


def studio_pages() -> Any:
    """Return the function that adds the studio's pages to a server, if they are installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:  # part of clearformer[studio]
        return lambda app: app
    from clearformer.studio.pages import mount_pages

    return mount_pages
