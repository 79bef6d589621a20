"""The command `clearformer score`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clearformer.cli import app
from clearformer.cli.inputs import Column, Input, Results, open_inputs
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, model_option

if TYPE_CHECKING:
    from clearformer.handles.scorer import Score


@app.command(cls=Command)
def score(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to rank.", show_default="read stdin")
    ] = None,
    model: Annotated[str | None, model_option("Input", "en-small; for translations, en-fr-small")] = None,
    input: Input = None,
    column: Column = None,
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
    out: Results = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Rank texts by their probability.

    Examples:
      clearformer score "The man pooled a cart" "The man pulled a cart"   # with the bundled model
      clearformer score --model runs/ptb --json < sentences.txt
      clearformer score --model runs/ptb --input reviews.csv --column comment --out scored.csv
      clearformer score --model runs/m30k --source "A dog." "Ein Hund." "Eine Katze."   # translations
      clearformer score --model runs/m30k --input pairs.csv --column en,de --out scored.csv

    Prints four columns, most probable first: log-probability (natural logarithm), tokens, perplexity, text. A masked
    model, such as BERT, gives pseudo-log-likelihoods: the summed log-probability of each token given all others.

    --out keeps the order of the input, and adds the columns logprob, tokens and perplexity to its columns. For a
    translator, --column gives the column of the sources and the column of the translations.
    """
    from clearformer.errors import ConfigError
    from clearformer.handles.scorer import Score, most_probable_first
    from clearformer.loading.folder import DEFAULT, LANGUAGE_MODEL
    from clearformer.verbs.load import load_for
    from clearformer.verbs.rows import Job, Result, counting, write_results
    from clearformer.verbs.score import Ranker, as_row

    records = open_inputs("score", text, input, column, out, most=2)
    if source is not None and records.n_columns == 2:
        raise ConfigError(f"--source and --column {column} cannot be combined", "give only the column of the texts")
    are_translations = source is not None or records.n_columns == 2
    ranker: Ranker = load_for("score", model or (DEFAULT if are_translations else LANGUAGE_MODEL), device)

    def scores(rows: Sequence[tuple[str, ...]]) -> list[Score]:
        sources = source if records.n_columns == 1 else [row[0] for row in rows]
        return ranker.score_each([row[-1] for row in rows], sources, closed)

    def run(rows: Sequence[tuple[str, ...]], first: int) -> list[list[Result]]:
        return [[Result([one.logprob, one.tokens, one.perplexity], [as_line(one)])] for one in scores(rows)]

    if out is not None:
        n_rows = write_results(records, out, Job("score", ["logprob", "tokens", "perplexity"], run))
        print_json({"out": str(out), "rows": n_rows}) if json else print(out)
        return
    with counting("score", records.n_rows) as counted:
        parts = (scores([record.texts for record in chunk]) for _, chunk in counted(records.chunks()))
        ranked = most_probable_first(one for part in parts for one in part)
    if json:
        print_json({"scores": [as_row(one) for one in ranked]})
        return
    for one in ranked:
        print(as_line(one))


def as_line(score: "Score") -> str:
    return f"{score.logprob:.4f}\t{score.tokens}\t{score.perplexity:.4f}\t{score.text}"
