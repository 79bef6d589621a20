"""clearformer classify"""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, incoming


@app.command()
def classify(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; else lines of stdin.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many classes, likeliest first.")] = 1,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Say which class a text, or each of its words, belongs to.

    A line for each text: label and probability, and so on for --top; a regression gives its value. The two texts of a
    pair are divided by a tab. A classifier of words gives a line for each of them, and a blank one after each text.

    \b
    clearformer classify --model runs/reviews "A fine film."
    clearformer classify --model runs/reviews --top 3 --json < reviews.txt
    """
    from json import dumps

    from clearformer import verbs
    from clearformer.reading.classifier import divide

    judge, rows = verbs.judge_of(model, device), []
    for chunk in incoming(text or []):
        told = verbs.verdicts(judge, *divide(chunk, judge.is_pair), top)
        if json:
            rows += told
            continue
        for row in told:
            for one in row.get("words", [row]):
                print("\t".join(cells(one)))
            print(end="\n" if "words" in row else "", flush=True)
    if json:
        print(dumps({"texts": rows}, ensure_ascii=False))


def cells(row: dict[str, Any]) -> list[str]:
    """A word, where words are judged, and its classes with their probabilities; or a value."""
    found = [[one["label"], f"{one['probability']:.4f}"] for one in row.get("top", [])]
    told = [cell for pair in found for cell in pair] or [f"{row['value']:.6g}"]
    return [row["word"], *told] if "word" in row else told
