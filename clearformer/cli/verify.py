"""The command `clearformer verify`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def verify(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Run folder, folder of data build, or name of a bundled model.")
    ],
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Write the checksums of the files as they are now.", rich_help_panel="Checksums"),
    ] = False,
    json: Json = False,
) -> None:
    """Compare every file of a run folder with its checksum.

    Examples:
      clearformer verify runs/mine
      clearformer verify built/en-fr           # a folder of clearformer data build
      clearformer verify runs/mine --json      # the faults as a list
      clearformer verify runs/mine --accept    # after you edited a file on purpose

    Prints the number of files, or one line for each file that is missing or has changed, and exits with 1.
    `clearformer --verify VERB` does the same whenever the verb opens a model.
    """
    from clearformer.verbs.verify import verify as compare
    from clearformer.wording import count

    report = compare(run, accept)
    if json:
        print_json(report)
    else:
        print("\n".join(report["faults"]) or f"{report['run']}: {count(report['files'], 'file')} as written")
    if report["faults"]:
        raise typer.Exit(1)
