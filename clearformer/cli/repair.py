"""clearformer repair"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model


@app.command()
def repair(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence that lacks a word.")],
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many to show.")] = 5,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Find the word that a sentence lacks, and its place.

    Columns: share among the fillings considered, log-probability, word, text.

    \b
    clearformer repair --model runs/ptb "The man the cart"
    """
    from json import dumps

    from clearformer.verbs.repair import repair as find_repairs

    rows = find_repairs(model, text, n, device=device)
    if json:
        print(dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['share']:.4f}\t{row['logprob']:.4f}\t{row['word']}\t{row['text']}")
