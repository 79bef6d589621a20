"""The command `clearformer score`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Device, Json, Model, read_inputs


@app.command(cls=Command)
def score(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to rank.", show_default="read stdin")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Source sentence that the texts translate; required for translators.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = None,
    closed: Annotated[
        bool | None,
        typer.Option(
            "--closed/--open",
            help="Include the end-of-text token in the score, or leave it out.",
            show_default="as in training",
            rich_help_panel="Input",
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Rank texts by their probability.

    Examples:
      clearformer score --model runs/ptb "The man pooled a cart" "The man pulled a cart"
      clearformer score --model runs/ptb --json < sentences.txt
      clearformer score --model runs/m30k --source "A dog." "Ein Hund." "Eine Katze."   # translations

    Prints four columns, most probable first: log-probability (natural logarithm), tokens, perplexity, text. A masked
    model, such as BERT, gives pseudo-log-likelihoods: the summed log-probability of each token given all others.
    """
    from json import dumps

    from clearformer.verbs.score import score as rank

    texts = [line for chunk in read_inputs(text or []) for line in chunk]
    rows = rank(model, texts, source=source, closed=closed, device=device)
    if json:
        print(dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['logprob']:.4f}\t{row['tokens']}\t{row['perplexity']:.4f}\t{row['text']}")
