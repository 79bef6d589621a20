"""clearformer plot"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json


@app.command()
def plot(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE",
            help="optimizers, gradients, positions, schedules, complexity, level-sets or batch-norm; of a network, "
            "embeddings, rollout, grad-cam, filters, features or shifts; of one that reads, attention.",
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What is read, or translated, for attention.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="The run folder of a network for pictures; for attention, or with --texts, of one that reads.",
        ),
    ] = None,
    images: Annotated[
        list[Path],
        typer.Option(metavar="PATH", help="A picture, or a folder or file of them, as for training; repeatable."),
    ] = [],  # noqa: B006
    texts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts for embeddings, a line each; or labelled ones, .tsv or .jsonl."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A translation of the text.  [default: the model's own]")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose maps are shown, by grad-cam (the last) or features; for attention its number (the last).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file.  [default: FIGURE.png]")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of whatever is drawn at random.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Draw a claim of the notes, or what a network sees or reads.

    A claim is computed here and now. A network is looked into while it sees pictures: where it puts them (embeddings,
    also of texts), what it looks at (rollout, grad-cam), its filters and features, and what shifts do to it; or while
    it reads or translates a text: where each head of a layer looks (attention). --json prints the numbers that are
    drawn.

    \b
    clearformer plot optimizers
    clearformer plot gradients --out gradients.svg --json > gradients.json
    clearformer plot attention --model runs/mine "A man rides a bike."
    clearformer plot attention --model runs/mine --layer encoder.0 "A man rides a bike."
    clearformer plot attention --model runs/book --layer 0 "To be or not to be"
    clearformer plot embeddings --model runs/photos --images photos/
    clearformer plot embeddings --model all-MiniLM-L6-v2 --texts reviews.tsv
    clearformer plot grad-cam --model runs/photos --images photo.jpg --images other.jpg
    clearformer plot features --model runs/photos --images photo.jpg --layer stages.0.1
    """
    from json import dumps

    from clearformer.figures import plot as draw
    from clearformer.training.journal import console

    with console.status(f"computing {name}, up to a minute"):
        numbers = draw(
            name,
            out,
            seed,
            model=model,
            images=images,
            texts=texts,
            text=text,
            target=target,
            layer=layer,
            device=device,
        )
    print(dumps(numbers, ensure_ascii=False) if json else f"{numbers['picture']}: {numbers['title']}")
