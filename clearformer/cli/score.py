"""clearformer score"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, incoming


@app.command()
def score(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; else lines of stdin.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the texts translate, when the model is a translator.")
    ] = None,
    closed: Annotated[
        bool | None,
        typer.Option("--closed/--open", help="Count that the text ends, or not.  [default: as it was trained]"),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Rank texts by how likely a model finds them.

    Columns: log-probability (natural), tokens, perplexity, text; the likeliest first. A masked model, such as BERT,
    gives pseudo-log-likelihoods: each word judged with all the others in sight.

    \b
    clearformer score --model runs/ptb "The man pooled a cart" "The man pulled a cart"
    clearformer score --model runs/m30k --source "A dog." "Ein Hund." "Eine Katze."
    """
    from json import dumps

    from clearformer.verbs.score import score as rank

    texts = [line for chunk in incoming(text or []) for line in chunk]
    rows = rank(model, texts, source=source, closed=closed, device=device)
    if json:
        print(dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['logprob']:.4f}\t{row['tokens']}\t{row['perplexity']:.4f}\t{row['text']}")
