"""The command `clearformer fill`."""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.inputs import refuse_files
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, LanguageModel


@app.command(cls=Command)
def fill(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Sentence with one blank, written ___.")],
    model: LanguageModel = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Words to choose from, separated by commas.",
            show_default="words proposed by the model",
            rich_help_panel="Search",
        ),
    ] = None,
    n: Annotated[
        int, typer.Option("--n", metavar="N", min=1, help="Number of words to print.", rich_help_panel="Output")
    ] = 5,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Find the best words for a blank in a sentence.

    Examples:
      clearformer fill "The man ___ a cart"                                  # with the bundled model
      clearformer fill --candidates pulled,pooled "The man ___ a cart"
      clearformer fill --model runs/ptb "The man ___ a cart"
      clearformer fill --model runs/bert --n 10 --json "The man ___ a cart"

    Prints four columns, best first: probability among the words considered, log-probability, word, text. A language
    model scores the whole sentence. A masked model, such as BERT, reads both sides of the blank, and its
    log-probability is the log-probability of the word alone.
    """
    from clearformer.loading.folder import LANGUAGE_MODEL
    from clearformer.verbs.fill import fill as find_words

    refuse_files("fill", [text], has_input=False)
    rows = find_words(model or LANGUAGE_MODEL, text, n, candidates.split(",") if candidates else None, device=device)
    if json:
        print_json({"words": rows})
        return
    for row in rows:
        print(f"{row['probability']:.4f}\t{row['logprob']:.4f}\t{row['word']}\t{row['text']}")
