"""clearformer evaluate"""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Beam, DataCommand, Device, Json, LengthPenalty, Model


@app.command(cls=DataCommand)
def evaluate(
    ctx: typer.Context,
    model: Model,
    refs: Annotated[list[Path], typer.Option("--refs", metavar="FILE", help="More references; repeatable.")] = [],  # noqa: B006
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
    """Score a model on pairs, text, labels, images or recordings.

    Pairs give BLEU and chrF, text perplexity, labelled texts, words or images accuracy and macro F1 (an autoencoder
    its reconstruction error), recordings the error rates of words and of letters.

    BLEU and chrF are sacrebleu's, with the signatures that make them comparable.

    \b
    clearformer evaluate --model runs/m30k --pairs test.tsv
    clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs more.de --json
    clearformer evaluate --model runs/shakespeare --text sonnets.txt
    clearformer evaluate --model runs/reviews --labels test.tsv
    clearformer evaluate --model runs/photos --images others/
    clearformer evaluate --model runs/digits --recordings test.tsv
    """
    from rich.progress import Progress

    from clearformer.training.journal import console
    from clearformer.verbs import evaluate as verb

    search = {"beam": beam, "length_penalty": length_penalty, "tokenize": tokenize, "lowercase": lowercase}
    options: dict[str, Any] = {name: value for name, value in search.items() if value is not None}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=None)
        if "pairs" in ctx.obj:
            options["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
        scores = verb.evaluate(model, refs=refs, device=device, **ctx.obj, **options)
    translations = scores.pop("translations", None)
    if out is not None and translations is not None:
        from clearformer.checkpoint import write_text

        write_text(out, "".join(f"{line}\n" for line in translations))
    show(scores, json)


def show(scores: dict[str, Any], json: bool) -> None:
    """One JSON object, or a line for each score that people look at, and one for how much was scored."""
    from json import dumps

    if json:
        print(dumps(scores))
        return
    from clearformer.tasks.task import UNITS

    signatures = scores.get("signatures", {})
    for name in sorted(scores, key=lambda name: name == "loss"):  # the loss, which people look at least, comes last
        if name in signatures:
            title = {"bleu": "BLEU", "chrf": "chrF"}.get(name, name)
            print(f"{title} {scores[name]:.2f}   {signatures[name]}")
        elif isinstance(scores[name], float):
            print(f"{name} {scores[name]:.4f}")
    counts = [name for name, value in scores.items() if isinstance(value, int) and name != "left_out"]
    for name in sorted(counts, key=lambda name: UNITS.index(name) if name in UNITS else len(UNITS)):
        print(f"{scores[name]:,} {name}")
