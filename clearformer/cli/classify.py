"""The command `clearformer classify`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.inputs import Column, Input, Results, deliver, open_inputs
from clearformer.cli.options import Command, Device, Json, Model, print_errors
from clearformer.errors import DataError

if TYPE_CHECKING:
    from clearformer.verbs.classify import Predictor
    from clearformer.verbs.rows import Result


@app.command(cls=Command)
def classify(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts, or image files for an image classifier.", show_default="read stdin"
        ),
    ] = None,
    input: Input = None,
    column: Column = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            help="Number of classes to print, most probable first.",
            show_default="1 for texts, 5 for images",
            rich_help_panel="Output",
        ),
    ] = None,
    out: Results = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Classify texts, words or images.

    Examples:
      clearformer classify --model runs/reviews "A fine film."
      clearformer classify --model runs/reviews --top 3 --json < reviews.txt  # one text per line
      clearformer classify --model runs/reviews --input reviews.csv --column comment --out out.csv
      clearformer classify --model runs/names "Ada met Ben."                  # a class for each word
      clearformer classify --model runs/photos photo.jpg other.png            # images

    Prints one line per text: the class and its probability, or the N best classes with --top N. A regression model
    prints a value instead. A tab in the input separates the two texts of a pair; in a data table they are two columns,
    --column A,B. A tagger prints one line per word, and a blank line after each text. An image classifier prints the
    file name first; files that cannot be read are reported on stderr.

    --out adds the columns label and probability to the columns of the input; with --top N also label_2, probability_2
    and so on. A regression model adds value, a tagger labels, the labels of all words separated by spaces.
    """
    from clearformer.handles.classifier import divide
    from clearformer.handles.image_model import ImageModel
    from clearformer.verbs.load import load_for
    from clearformer.verbs.rows import Job, Result

    predictor: Predictor = load_for("classify", model, device)
    is_image = isinstance(predictor, ImageModel)
    name = "image" if is_image else "text"
    records = open_inputs("classify", text, input, column, out, name, bool(predictor.is_pair), is_image, most=2)
    n_top = top or (predictor.default_top if out is None else 1)
    columns = new_columns(predictor, n_top)
    has_failed = False

    def run(texts: Sequence[tuple[str, ...]], first: int) -> list[list[Result]]:
        nonlocal has_failed
        errors: list[DataError] = []
        halves = [list(half) for half in zip(*texts)]
        inputs, pairs = (halves[0], halves[1]) if len(halves) == 2 else divide(halves[0], predictor.is_pair)
        rows = predictor.predict(inputs, pairs, n_top, errors)
        has_failed |= print_errors(errors)
        if not is_image:
            return [[as_result(row)] for row in rows]
        readable = iter(rows)  # the rows of files that cannot be read are missing
        row = next(readable, None)
        results = []
        for file in inputs:
            if row is not None and row["image"] == file:
                results.append([as_result(row)])
                row = next(readable, None)
            else:
                results.append([Result([None] * len(columns), [])])
        return results

    deliver(records, out, json, predictor.json_key, Job("classify", columns, run))
    if has_failed:
        raise typer.Exit(1)


def new_columns(predictor: "Predictor", top: int) -> list[str]:
    """Return the names of the columns that --out adds to the input."""
    from clearformer.handles.tagger import Tagger

    if isinstance(predictor, Tagger):
        return ["labels" if predictor.classes else "values"]
    if not predictor.classes:
        return ["value"]
    numbers = ["", *(f"_{i}" for i in range(2, min(top, len(predictor.classes)) + 1))]
    return [name for number in numbers for name in (f"label{number}", f"probability{number}")]


def as_result(row: dict[str, Any]) -> "Result":
    from clearformer.verbs.rows import Result

    if "words" in row:
        labels = [str(word["label"]) if "label" in word else f"{word['value']:.6g}" for word in row["words"]]
        return Result([" ".join(labels)], [*("\t".join(cells(word)) for word in row["words"]), ""], row)
    top = [value for item in row.get("top", []) for value in (item["label"], item["probability"])]
    return Result(top or [row["value"]], ["\t".join(cells(row))], row)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of an output line: word or image file, if any, then classes and probabilities, or a value."""
    classes = [cell for item in row.get("top", []) for cell in (item["label"], f"{item['probability']:.4f}")]
    return [*(row[name] for name in ("word", "image") if name in row), *(classes or [f"{row['value']:.6g}"])]
