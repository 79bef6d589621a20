"""clearformer evaluate"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import (
    Beam,
    ColumnPair,
    Device,
    Json,
    LabelColumn,
    Labels,
    LengthPenalty,
    Model,
    TextColumns,
    columns,
    corpus,
    files,
    one_column,
    text_columns,
)


@app.command()
def evaluate(
    model: Model,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE[,FILE]", help="Pairs: a .tsv or .jsonl file, or two aligned files.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="FILE[,FILE…]", help="Text, for a language model.")] = None,
    labels: Labels = None,
    refs: Annotated[list[Path], typer.Option("--refs", metavar="FILE", help="More references; repeatable.")] = [],  # noqa: B006
    column: ColumnPair = "0,1",
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    tokenize: Annotated[
        str | None, typer.Option(metavar="NAME", help="sacrebleu's tokenizer: 13a, char, intl, none or zh.")
    ] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Score BLEU without regard to case.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the translations here, a line each.")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a model on pairs, text or labelled texts.

    Pairs give BLEU and chrF, text perplexity, labelled texts accuracy and macro F1.

    BLEU and chrF are sacrebleu's, with the signatures that make them comparable.

    \b
    clearformer evaluate --model runs/m30k --pairs test.tsv
    clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs more.de --json
    clearformer evaluate --model runs/shakespeare --text sonnets.txt
    clearformer evaluate --model runs/reviews --labels test.tsv
    """
    from json import dumps

    from rich.progress import Progress

    from clearformer import verbs
    from clearformer.checkpoint import write_text
    from clearformer.errors import ConfigError
    from clearformer.training.journal import console

    if sum(given is not None for given in (pairs, text, labels)) != 1:
        raise ConfigError(
            "there must be either pairs or text or labels to evaluate on",
            "give --pairs test.tsv, --text book.txt or --labels test.tsv",
        )
    if labels is not None:
        place = None if label_column is None else one_column(label_column)
        told = verbs.evaluate_labels(
            model, labels, text_columns=text_columns(text_column), label_column=place, device=device
        )
        names = [name for name in ("accuracy", "macro_f1", "matthews", "pearson", "loss") if name in told]
        lines = [f"{name} {told[name]:.4f}" for name in names]
        print(dumps(told) if json else "\n".join([*lines, f"{told['examples']:,} examples"]))
        return
    if text is not None:
        found = verbs.evaluate_text(model, files(text) or [], device=device)
        print(dumps(found) if json else f"perplexity {found['perplexity']:.4f}\n{found['tokens']:,} tokens")
        return
    search = {"beam": beam, "length_penalty": length_penalty}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("translating", total=None)
        result = verbs.evaluate(
            model,
            corpus(str(pairs)) or str(pairs),
            refs,
            columns=columns(column),
            tokenize=tokenize,
            lowercase=lowercase,
            device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            **{name: value for name, value in search.items() if value is not None},
        )
    translations = result.pop("translations")
    if out is not None:
        write_text(out, "".join(f"{line}\n" for line in translations))
    if json:
        print(dumps(result))
        return
    print(f"BLEU {result['bleu']:.2f}   {result['signatures']['bleu']}")
    print(f"chrF {result['chrf']:.2f}   {result['signatures']['chrf']}")
    print(f"{result['sentences']:,} sentences")
