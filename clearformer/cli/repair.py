"""The command `clearformer repair`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.inputs import refuse_files
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, LanguageModel


@app.command(cls=Command)
def repair(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Sentence with a missing word.")],
    model: LanguageModel = None,
    n: Annotated[
        int, typer.Option("--n", metavar="N", min=1, help="Number of repairs to print.", rich_help_panel="Output")
    ] = 5,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Find the missing word of a sentence and its position.

    Examples:
      clearformer repair "The man the cart"                     # with the bundled model
      clearformer repair --model runs/bert --n 10 "The man the cart"
      clearformer repair --model runs/ptb --json "The man the cart"   # with the position of the word

    Prints four columns, best first: probability among the repairs considered, log-probability, word, repaired text.
    `clearformer fill` is for a blank whose position is known.
    """
    from clearformer.loading.folder import LANGUAGE_MODEL
    from clearformer.verbs.repair import repair as find_repairs

    refuse_files("repair", [text], has_input=False)
    rows = find_repairs(model or LANGUAGE_MODEL, text, n, device=device)
    if json:
        print_json({"repairs": rows})
        return
    for row in rows:
        print(f"{row['probability']:.4f}\t{row['logprob']:.4f}\t{row['word']}\t{row['text']}")
