"""clearformer transcribe"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, tell_broken
from clearformer.errors import DataError


@app.command()
def transcribe(
    model: Model,
    file: Annotated[list[str], typer.Argument(metavar="FILE", help="WAV files.")],
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Write down what is said in recordings, a line for each.

    With --json, every word comes with the seconds where it starts and ends. Files that cannot be read are named on
    stderr and have no line.

    \b
    clearformer transcribe --model runs/digits call.wav
    clearformer transcribe --model runs/digits --json recordings/*.wav
    """
    from json import dumps

    from clearformer.verbs.transcribe import transcribe as recognise

    errors: list[DataError] = []
    rows = recognise(model, file, device=device, broken=errors)
    if json:
        print(dumps({"recordings": rows}, ensure_ascii=False))
    else:
        for row in rows:
            print(row["text"])
    if tell_broken(errors):
        raise typer.Exit(1)
