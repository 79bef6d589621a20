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
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, or files of pictures; else lines of stdin.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="How many classes, likeliest first.  [default: 1; of pictures 5]"
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Say which class a text, a word or a picture belongs to.

    A line for each text: label and probability, and so on for --top; a regression gives its value. The two texts of a
    pair are divided by a tab. A classifier of words gives a line for each of them, and a blank one after each text; one
    of pictures takes files, and names each before its classes; those that cannot be read are named on stderr.

    \b
    clearformer classify --model runs/reviews "A fine film."
    clearformer classify --model runs/reviews --top 3 --json < reviews.txt
    clearformer classify --model runs/photos photo.jpg other.png
    """
    from json import dumps

    from clearformer.handles.classifier import divide
    from clearformer.handles.image_classifier import ImageClassifier
    from clearformer.verbs import reading

    judge, rows, has_failed = reading.judge_of(model, device), [], False
    is_seen = isinstance(judge, ImageClassifier)
    for chunk in incoming(text or []):
        broken: list[DataError] = []
        told = reading.verdicts(judge, *divide(chunk, judge.is_pair), top or (5 if is_seen else 1), broken)
        has_failed |= tell_broken(broken)
        if json:
            rows += told
            continue
        for row in told:
            for one in row.get("words", [row]):
                print("\t".join(cells(one)))
            print(end="\n" if "words" in row else "", flush=True)
    if json:
        print(dumps({"images" if is_seen else "texts": rows}, ensure_ascii=False))
    if has_failed:
        raise typer.Exit(1)


def cells(row: dict[str, Any]) -> list[str]:
    """A word, or a picture's file, where such are judged, and its classes with their probabilities; or a value."""
    found = [[one["label"], f"{one['probability']:.4f}"] for one in row.get("top", [])]
    told = [cell for pair in found for cell in pair] or [f"{row['value']:.6g}"]
    return [*(row[name] for name in ("word", "image") if name in row), *told]
