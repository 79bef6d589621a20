"""clearformer fill"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model


@app.command()
def fill(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence with a gap, ___.")],
    candidates: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Choose among these words alone, divided by commas.")
    ] = None,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many to show.")] = 5,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Find the best words for a gap.

    The gap is written ___. Columns: share among the words considered, log-probability, word, text. A masked model,
    such as BERT, sees both sides of the gap, and its log-probability is that of the word alone.

    \b
    clearformer fill --model runs/ptb "The man ___ a cart"
    clearformer fill --model runs/ptb --candidates pulled,pooled "The man ___ a cart"
    """
    from json import dumps

    from clearformer.verbs.fill import fill as find_words

    rows = find_words(model, text, n, candidates.split(",") if candidates else None, device=device)
    if json:
        print(dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['share']:.4f}\t{row['logprob']:.4f}\t{row['word']}\t{row['text']}")
