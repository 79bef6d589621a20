"""The command `clearformer classify`."""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Device, Json, Model, print_errors, read_inputs
from clearformer.errors import DataError


@app.command(cls=Command)
def classify(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts, or image files for an image classifier.", show_default="read stdin"
        ),
    ] = None,
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
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Classify texts, words or images.

    Examples:
      clearformer classify --model runs/reviews "A fine film."
      clearformer classify --model runs/reviews --top 3 --json < reviews.txt  # one text per line
      clearformer classify --model runs/names "Ada met Ben."                  # a class for each word
      clearformer classify --model runs/photos photo.jpg other.png            # images

    Prints one line per text: the class and its probability, or the N best classes with --top N. A regression model
    prints a value instead. A tab in the input separates the two texts of a pair. A tagger prints one line per word, and
    a blank line after each text. An image classifier prints the file name first; files that cannot be read are reported
    on stderr.
    """
    from json import dumps

    from clearformer.handles.classifier import divide
    from clearformer.verbs.classify import Predictor
    from clearformer.verbs.load import load_for

    predictor: Predictor = load_for("classify", model, device)
    json_rows: list[dict[str, Any]] = []
    has_failed = False
    for chunk in read_inputs(text or []):
        errors: list[DataError] = []
        rows = predictor.predict(*divide(chunk, predictor.is_pair), top or predictor.default_top, errors)
        has_failed |= print_errors(errors)
        if json:
            json_rows += rows
            continue
        for row in rows:
            for item in row.get("words", [row]):
                print("\t".join(cells(item)))
            print(end="\n" if "words" in row else "", flush=True)
    if json:
        print(dumps({predictor.json_key: json_rows}, ensure_ascii=False))
    if has_failed:
        raise typer.Exit(1)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of an output line: word or image file, if any, then classes and probabilities, or a value."""
    classes = [cell for item in row.get("top", []) for cell in (item["label"], f"{item['probability']:.4f}")]
    return [*(row[name] for name in ("word", "image") if name in row), *(classes or [f"{row['value']:.6g}"])]
