"""clearformer neighbours"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json, Model


@app.command()
def neighbours(
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word of the source language.")],
    model: Model,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many.")] = 10,
    json: Json = False,
) -> None:
    """Show the words nearest to a word, by their embeddings.

    The number before each is the cosine between the two.

    \b
    clearformer neighbours --model runs/m30k bike
    """
    from json import dumps

    from clearformer.verbs.neighbours import neighbours as nearest

    rows = nearest(model, word, n)
    if json:
        rounded = [{**row, "cosine": round(row["cosine"], 6)} for row in rows]
        print(dumps({"word": word, "neighbours": rounded}, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['cosine']:6.3f}  {row['word']}")
