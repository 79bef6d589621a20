"""clearformer classify"""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, incoming, tell_broken
from clearformer.errors import DataError


@app.command()
def classify(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, or image files; else lines of stdin.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="How many classes, likeliest first.  [default: 1; for images 5]"
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Classify texts, words or images.

    A line for each text: label and probability, repeated for --top; a regression gives its value. A tab divides the two
    texts of a pair. A tagger gives a line for each word, and a blank line after each text. An image classifier takes
    files and puts the file name before the classes; files that cannot be read are named on stderr.

    \b
    clearformer classify --model runs/reviews "A fine film."
    clearformer classify --model runs/reviews --top 3 --json < reviews.txt
    clearformer classify --model runs/photos photo.jpg other.png
    """
    from json import dumps

    from clearformer.handles.classifier import divide
    from clearformer.verbs.classify import Predictor
    from clearformer.verbs.load import load_for

    predictor: Predictor = load_for("classify", model, device)
    every: list[dict[str, Any]] = []
    has_failed = False
    for chunk in incoming(text or []):
        errors: list[DataError] = []
        rows = predictor.predict(*divide(chunk, predictor.is_pair), top or predictor.default_top, errors)
        has_failed |= tell_broken(errors)
        if json:
            every += rows
            continue
        for row in rows:
            for item in row.get("words", [row]):
                print("\t".join(cells(item)))
            print(end="\n" if "words" in row else "", flush=True)
    if json:
        print(dumps({predictor.json_key: every}, ensure_ascii=False))
    if has_failed:
        raise typer.Exit(1)


def cells(row: dict[str, Any]) -> list[str]:
    """The word or image file, if there is one, and its classes with their probabilities; or a value."""
    classes = [cell for verdict in row.get("top", []) for cell in (verdict["label"], f"{verdict['probability']:.4f}")]
    return [*(row[name] for name in ("word", "image") if name in row), *(classes or [f"{row['value']:.6g}"])]
