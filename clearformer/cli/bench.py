"""The command `clearformer bench`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def bench(
    only: Annotated[
        list[str],
        typer.Option(
            "--only",
            metavar="NAME[,NAME]",
            help="Rows to measure; patterns such as 'decode-*' are allowed; repeatable.",
            show_default="the rows for this machine",
            rich_help_panel="What to measure",
        ),
    ] = [],  # noqa: B006
    list_rows: Annotated[
        bool,
        typer.Option("--list", help="List the rows and measure nothing.", rich_help_panel="What to measure"),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Measure once and briefly; leave out slow peers.", rich_help_panel="What to measure"
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Turns that each library takes.",
            show_default="3, with --quick 1",
            rich_help_panel="What to measure",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder with multi30k/, tatoeba-eng-fra/ and ptb/.",
            show_default="generated corpora",
            rich_help_panel="Input",
        ),
    ] = None,
    nanogpt: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Checkout of nanoGPT to compare with.",
            show_default="not compared",
            rich_help_panel="Input",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="JSON file to write after each row.", rich_help_panel="Output"),
    ] = Path("bench.json"),
    update: Annotated[
        bool, typer.Option("--update", help="Keep the other rows of an existing FILE.", rich_help_panel="Output")
    ] = False,
    json: Json = False,
) -> None:
    """Measure speed on this machine, beside other libraries.

    Examples:
      clearformer bench --quick                           # a few minutes
      clearformer bench --list                            # the rows of the table
      clearformer bench --only 'cpu-*' --repeats 5        # one group of rows
      clearformer bench --only train-lstm --update        # measure one row again
      clearformer bench --nanogpt ../nanoGPT --only train-gpt2 --out h200.json

    Measures what the machine reaches (matrix products, memory, dispatch), then training, decoding, start-up and data
    preparation. Clearformer and its peers take turns in separate processes, on the same weights, batches and lengths.
    Prints medians, ranges and ratios; a ratio above 1 means that Clearformer is faster.

    Peers are Hugging Face transformers, CTranslate2, nanoGPT and plain PyTorch. A library that is not installed is
    skipped, and so are rows that need a GPU on a machine without one. Ctrl-C keeps the rows measured so far.
    """
    from clearformer.speed.table import print_results
    from clearformer.training.journal import console
    from clearformer.verbs.bench import as_command, listing
    from clearformer.verbs.bench import bench as measure

    if list_rows:
        rows = listing()
        if json:
            print_json({"rows": rows})
            return
        for row in rows:
            print(f"{row['name']:<22} {row['device']:<5} {row['work']}")
        return
    names = [name for names in only for name in names.split(",")]
    results = measure(
        names,
        quick=quick,
        repeats=repeats,
        out=out,
        data=data,
        nanogpt=nanogpt,
        say=console.print,
        command=as_command(),
        update=update,
    )
    if json:
        print_json(results)
    else:
        print_results(results)
        print(out)
    if results.get("interrupted"):
        raise typer.Exit(130)
