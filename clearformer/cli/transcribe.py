"""clearformer transcribe"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model


@app.command()
def transcribe(
    model: Model,
    file: Annotated[list[str], typer.Argument(metavar="FILE", help="WAV files.")],
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Write down what is said in recordings, a line for each.

    With --json, every word comes with the seconds where it starts and ends.

    \b
    clearformer transcribe --model runs/digits call.wav
    clearformer transcribe --model runs/digits --json recordings/*.wav
    """
    from json import dumps

    from clearformer.verbs import reading

    told = reading.transcribe(model, file, device=device)
    if json:
        print(dumps({"recordings": told}, ensure_ascii=False))
    else:
        print(*(row["text"] for row in told), sep="\n")
