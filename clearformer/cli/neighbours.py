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

    from clearformer.handles.translator import Translator
    from clearformer.loading.handles import load_as

    found = load_as(Translator, model).neighbours(word, n)
    if json:
        near = [{"word": piece, "cosine": round(value, 6)} for piece, value in found]
        print(dumps({"word": word, "neighbours": near}, ensure_ascii=False))
        return
    for piece, value in found:
        print(f"{value:6.3f}  {piece}")
