"""The command `clearformer transcribe`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, Model, print_errors
from clearformer.errors import DataError


@app.command(cls=Command)
def transcribe(
    model: Model,
    file: Annotated[list[str], typer.Argument(metavar="FILE", help="Sound files: WAV, FLAC, OGG, MP3.")],
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Transcribe recordings.

    Examples:
      clearformer transcribe --model runs/digits call.wav
      clearformer transcribe --model runs/digits recordings/*.wav > transcripts.txt
      clearformer transcribe --model runs/digits --json recordings/*.wav   # with the times of the words

    Prints one line per recording. With --json, every word has its start and end in seconds. Files that cannot be read
    are reported on stderr and skipped.
    """
    from clearformer.verbs.transcribe import transcribe as recognise

    errors: list[DataError] = []
    rows = recognise(model, file, device=device, broken=errors)
    if json:
        print_json({"recordings": rows})
    else:
        for row in rows:
            print(row["text"])
    if print_errors(errors):
        raise typer.Exit(1)
