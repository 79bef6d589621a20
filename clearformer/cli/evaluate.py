"""The command `clearformer evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import MODEL_HELP, Beam, DataCommand, Device, Engine, Json, LengthPenalty
from clearformer.wording import count

MOST = 20  # classes, or pairs of classes, that are printed; --json has all
TITLES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}


@app.command(cls=DataCommand)
def evaluate(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help=MODEL_HELP,
            show_default="none; --hypotheses needs no model",
            rich_help_panel="Model",
        ),
    ] = None,
    hypotheses: Annotated[
        list[Path],
        typer.Option(
            "--hypotheses",
            metavar="FILE",
            help="Output file to evaluate without a model, one text per line; repeat it to compare systems.",
            show_default="none",
            rich_help_panel="Data options",
        ),
    ] = [],  # noqa: B006
    refs: Annotated[
        list[Path],
        typer.Option(
            "--refs",
            metavar="FILE",
            help="File of references for --hypotheses, or of additional references for --pairs, one per line; "
            "repeatable.",
            show_default="none",
            rich_help_panel="Data options",
        ),
    ] = [],  # noqa: B006
    confusion: Annotated[
        bool,
        typer.Option("--confusion", help="Print the confusion matrix of a classifier.", rich_help_panel="Classifiers"),
    ] = False,
    errors: Annotated[
        int,
        typer.Option(
            "--errors",
            metavar="N",
            min=0,
            help="Number of errors of a classifier to print, the most confident first.",
            rich_help_panel="Classifiers",
        ),
    ] = 0,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Fit the probabilities of a classifier to the validation data of its run, and save the temperature "
            "there for later predictions.",
            rich_help_panel="Classifiers",
        ),
    ] = False,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="NAMES",
            help="Metrics for --hypotheses, separated by commas: bleu, chrf, ter, wer, rouge.",
            show_default="bleu,chrf,ter,wer",
            rich_help_panel="Text metrics",
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sacrebleu tokenizer for BLEU: 13a, char, intl, none or zh.",
            show_default="from the model, usually 13a",
            rich_help_panel="Text metrics",
        ),
    ] = None,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase", help="Ignore case in BLEU.", rich_help_panel="Text metrics")
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
    """Evaluate a model on data, or output files against references.

    Examples:
      clearformer evaluate --model runs/m30k --pairs test.tsv                # BLEU and chrF
      clearformer evaluate --model runs/shakespeare --text sonnets.txt       # perplexity
      clearformer evaluate --model runs/reviews --labels test.tsv --confusion --errors 20
      clearformer evaluate --model runs/photos --images others/ --calibrate
      clearformer evaluate --hypotheses out.txt --refs ref.txt --json        # no model
      clearformer evaluate --hypotheses a.txt --hypotheses b.txt --refs ref.txt --refs ref2.txt

    The data is pairs, text, labels, images or recordings: data of the same kind as the training data of the model. An
    autoencoder is evaluated by its reconstruction error. BLEU, chrF and TER are computed by sacrebleu and printed with
    its signatures, so that they are comparable.

    Classifiers are evaluated by accuracy and macro F1, with precision, recall and F1 of each class, and by the expected
    calibration error (ece): how far probabilities are from the fractions of correct predictions.

    Several --hypotheses files are compared with the first by paired bootstrap: p is the probability that chance alone
    makes such a difference.
    """
    from rich.progress import Progress

    from clearformer.training.journal import rich_console
    from clearformer.verbs import evaluate as verb

    search = {"beam": beam, "length_penalty": length_penalty, "tokenize": tokenize, "lowercase": lowercase}
    options: dict[str, Any] = {name: value for name, value in search.items() if value is not None}
    options |= {"confusion": confusion, "errors": errors, "calibrate": calibrate}
    if metrics is not None:
        options["metrics"] = [name.strip() for name in metrics.split(",")]
    if engine != "auto":
        options["engine"] = engine
    console = rich_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("evaluating", total=None)
        if "pairs" in ctx.obj:
            options["progress"] = lambda done, total: bar.update(task, completed=done, total=total)
        result = verb.evaluate(model, refs=refs, hypotheses=hypotheses, device=device, **ctx.obj, **options)
    translations = result.pop("translations", None)
    if out is not None and translations is not None:
        from clearformer.checkpoint import write_text

        write_text(out, "".join(f"{line}\n" for line in translations))
    show(result, json, confusion)


def show(metrics: dict[str, Any], json: bool, confusion: bool = False) -> None:
    """Print the metrics as one JSON object, or as lines: one per metric, the loss last, then one per count."""
    if json:
        print_json(metrics)
        return
    from clearformer.tasks.task import UNITS

    for system in metrics.get("systems", [metrics]):
        show_values(system, metrics.get("signatures", {}))
    if "per_class" in metrics:
        show_classes(metrics["per_class"])
    if confusion:
        show_confusion(metrics["confusion"], metrics["classes"])
    counts = [name for name, value in metrics.items() if isinstance(value, int) and name not in ("left_out", "samples")]
    for name in sorted(counts, key=lambda name: UNITS.index(name) if name in UNITS else len(UNITS)):
        print(count(metrics[name], name.removesuffix("s"), name))
    if metrics.get("errors"):
        show_errors(metrics["errors"])


def show_values(values: dict[str, Any], signatures: dict[str, str]) -> None:
    """Print one line per metric, with its signature, or with its p value in a comparison of systems."""
    if "hypotheses" in values:
        print(values["hypotheses"])
    p_values = values.get("p_values", {})
    for name in sorted(values, key=lambda name: name.endswith("loss")):
        if not isinstance(values[name], float):
            continue
        title, digits = TITLES.get(name, name), 2 if name in signatures else 4
        p = f"   p {p_values[name]:.4f}" if name in p_values else ""
        signature = f"   {signatures[name]}" if name in signatures else ""
        print(f"{title} {values[name]:.{digits}f}{p}{signature}")


def show_classes(rows: list[dict[str, Any]]) -> None:
    """Print precision, recall, F1 and support of each class; of many classes, those with the lowest F1."""
    shown = rows if len(rows) <= MOST else sorted(rows, key=lambda row: row["f1"])[:MOST]
    if len(shown) < len(rows):
        print(f"the {MOST} of {count(len(rows), 'class', 'classes')} with the lowest F1:")
    width = max(len("class"), *(len(row["class"]) for row in shown))
    print(f"{'class':<{width}}  precision  recall      f1  support")
    for row in shown:
        values = f"{row['precision']:>9.4f}  {row['recall']:.4f}  {row['f1']:.4f}  {row['support']:>7,}"
        print(f"{row['class']:<{width}}  {values}")


def show_confusion(table: list[list[int]], classes: list[str]) -> None:
    """Print the confusion matrix; of many classes, the most frequent confusions."""
    if len(classes) > MOST:
        pairs = [(n, i, j) for i, row in enumerate(table) for j, n in enumerate(row) if n and i != j]
        print("most frequent confusions: label, prediction, examples")
        for n, i, j in sorted(pairs, key=lambda pair: -pair[0])[:MOST]:
            print(f"{classes[i]}\t{classes[j]}\t{n}")
        return
    print("confusion: rows are labels, columns are predictions")
    width = max(len(f"{n:,}") for row in table for n in row)
    widths = [max(width, len(name)) for name in classes]
    first = max(map(len, classes))
    print("  ".join([" " * first, *(f"{name:>{w}}" for name, w in zip(classes, widths))]))
    for name, row in zip(classes, table):
        print("  ".join([f"{name:<{first}}", *(f"{n:>{w},}" for n, w in zip(row, widths))]))


def show_errors(rows: list[dict[str, Any]]) -> None:
    """Print the errors as columns separated by tabs: probability, label, prediction, then the text or the file."""
    known = ("probability", "label", "predicted")
    others = [name for name in rows[0] if name not in known]
    print("\t".join([*known, *others]))
    for row in rows:
        print("\t".join([f"{row['probability']:.4f}", row["label"], row["predicted"], *(row[name] for name in others)]))
