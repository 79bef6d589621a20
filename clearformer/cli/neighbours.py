"""The command `clearformer neighbours`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json, Model


@app.command(cls=Command)
def neighbours(
    word: Annotated[str, typer.Argument(metavar="WORD", help="Word, or a sum such as 'king - man + woman'.")],
    model: Model,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=1, help="Number of words to print.", rich_help_panel="Output")
    ] = 10,
    json: Json = False,
) -> None:
    """Show the words with the most similar embeddings, also for sums of words.

    Examples:
      clearformer neighbours --model runs/m30k bike
      clearformer neighbours --model en-fr-small -n 5 dog     # in the bundled translator
      clearformer neighbours --model runs/gpt "king - man + woman"
      clearformer neighbours --model runs/m30k --json bike

    Works with every model that has token embeddings; a translator has two vocabularies, and its source vocabulary is
    used. Prints the cosine similarity and the word, most similar first.
    """
    from clearformer.verbs.neighbours import neighbours as nearest

    rows = nearest(model, word, n)
    if json:
        rounded = [{**row, "cosine": round(row["cosine"], 6)} for row in rows]
        print_json({"word": word, "neighbours": rounded})
        return
    for row in rows:
        print(f"{row['cosine']:6.3f}  {row['word']}")
