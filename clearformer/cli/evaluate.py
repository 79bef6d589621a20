"""clearformer evaluate"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Beam, ColumnPair, Device, Json, LengthPenalty, Model, Pairs, columns, corpus


@app.command()
def evaluate(
    model: Model,
    pairs: Pairs,
    refs: Annotated[list[Path], typer.Option("--refs", metavar="FILE", help="More references; repeatable.")] = [],  # noqa: B006
    column: ColumnPair = "0,1",
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
    """Score a translator on pairs: BLEU and chrF.

    The numbers are sacrebleu's, with the signatures that make them comparable.

    \b
    clearformer evaluate --model runs/m30k --pairs test.tsv
    clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs more.de --json
    """
    from json import dumps

    from rich.progress import Progress

    from clearformer import verbs
    from clearformer.checkpoint import write_text
    from clearformer.training.journal import console

    search = {"beam": beam, "length_penalty": length_penalty}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("translating", total=None)
        result = verbs.evaluate(
            model,
            corpus(pairs) or pairs,
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
