"""The command `clearformer evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Beam, DataCommand, Device, Engine, Json, LengthPenalty, model_option
from clearformer.wording import count


@app.command(cls=DataCommand)
def evaluate(
    ctx: typer.Context,
    model: Annotated[str, model_option("Model")],
    refs: Annotated[
        list[Path],
        typer.Option(
            "--refs",
            metavar="FILE",
            help="File of additional references for --pairs, one per line; repeatable.",
            show_default="none",
            rich_help_panel="Data options",
        ),
    ] = [],  # noqa: B006
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sacrebleu tokenizer: 13a, char, intl, none or zh.",
            show_default="from the model, usually 13a",
            rich_help_panel="BLEU",
        ),
    ] = None,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase", help="Ignore case in BLEU.", rich_help_panel="BLEU")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write the translations to, one per line.",
            show_default="none",
            rich_help_panel="Output",
        ),
    ] = None,
    device: Device = "auto",
    engine: Engine = "auto",
    json: Json = False,
) -> None:
    """Evaluate a model on pairs, text, labels, images or recordings.

    Examples:
      clearformer evaluate --model runs/m30k --pairs test.tsv              # BLEU and chrF
      clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs more.de --json
      clearformer evaluate --model runs/shakespeare --text sonnets.txt     # perplexity
      clearformer evaluate --model runs/reviews --labels test.tsv          # accuracy and macro F1
      clearformer evaluate --model runs/photos --images others/            # accuracy and macro F1
      clearformer evaluate --model runs/digits --recordings test.tsv       # word error rate

    The data must be of the same kind as the training data of the model. An autoencoder is evaluated by its
    reconstruction error. BLEU and chrF are computed by sacrebleu and printed with its signatures, so that they are
    comparable.
    """
    from rich.progress import Progress

    from clearformer.training.journal import rich_console
    from clearformer.verbs import evaluate as verb

    search = {"beam": beam, "length_penalty": length_penalty, "tokenize": tokenize, "lowercase": lowercase}
    options: dict[str, Any] = {name: value for name, value in search.items() if value is not None}
    if engine != "auto":
        options["engine"] = engine
    console = rich_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("evaluating", total=None)
        if "pairs" in ctx.obj:
            options["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
        metrics = verb.evaluate(model, refs=refs, device=device, **ctx.obj, **options)
    translations = metrics.pop("translations", None)
    if out is not None and translations is not None:
        from clearformer.checkpoint import write_text

        write_text(out, "".join(f"{line}\n" for line in translations))
    show(metrics, json)


def show(metrics: dict[str, Any], json: bool) -> None:
    """Print the metrics as one JSON object, or as lines: one per metric, the loss last, then one per count."""
    from json import dumps

    if json:
        print(dumps(metrics))
        return
    from clearformer.tasks.task import UNITS

    signatures = metrics.get("signatures", {})
    for name in sorted(metrics, key=lambda name: name == "loss"):
        if name in signatures:
            title = {"bleu": "BLEU", "chrf": "chrF"}.get(name, name)
            print(f"{title} {metrics[name]:.2f}   {signatures[name]}")
        elif isinstance(metrics[name], float):
            print(f"{name} {metrics[name]:.4f}")
    counts = [name for name, value in metrics.items() if isinstance(value, int) and name != "left_out"]
    for name in sorted(counts, key=lambda name: UNITS.index(name) if name in UNITS else len(UNITS)):
        print(count(metrics[name], name.removesuffix("s"), name))
