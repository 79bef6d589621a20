"""The command `clearformer follows`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, Model


@app.command(cls=Command)
def follows(
    model: Model,
    first: Annotated[str, typer.Argument(metavar="TEXT", help="Text that comes first.")],
    next: Annotated[list[str], typer.Argument(metavar="NEXT", help="Texts that may follow it.")],
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Ask a BERT whether one text follows another.

    Examples:
      clearformer follows --model runs/bert "The man pulled a cart." "It was heavy."
      clearformer follows --model runs/bert "The man pulled a cart." "It was heavy." "Prices rose."
      clearformer follows --model runs/bert --json "The man pulled a cart." "It was heavy."

    Prints the probability that the second text follows the first and the text, most probable first. The model needs a
    next-sentence head, as a BERT has that was trained with objective.next_sentence = true.
    """
    from clearformer.verbs.follows import follows as judge

    rows = judge(model, first, next, device=device)
    if json:
        print_json({"first": first, "next": rows})
        return
    for row in rows:
        print(f"{row['probability']:.4f}\t{row['text']}")
