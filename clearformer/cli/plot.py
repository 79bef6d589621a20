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
            help="optimizers, gradients, positions, schedules, complexity, level-sets or batch-norm; for image models, "
            "embeddings, rollout, grad-cam, filters, features or shifts; for text models, embeddings or attention.",
        ),
    ],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text that attention is shown for.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A run folder: of an image model, or, for attention and with --texts, of a text model.",
        ),
    ] = None,
    images: Annotated[
        list[Path],
        typer.Option(metavar="PATH", help="An image, or a folder or file of images, as for training; repeatable."),
    ] = [],  # noqa: B006
    texts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Texts for embeddings, one a line; or labelled texts, .tsv or .jsonl."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A translation of the text.  [default: the model's own]")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Layer of grad-cam (default: the last) or features (the first); for attention its number (the last).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .png or .svg file.  [default: FIGURE.png]")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The seed of random numbers.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Draw a figure of the notes, or of a model at work.

    The first seven figures are computed from a seed. Of an image model: its embeddings of images, the image regions
    that it uses (rollout, grad-cam), its filters, its features, and the effect of shifts. Of a text model: its
    embeddings of texts, and the attention of each head of a layer to a text. --json prints the numbers that are drawn.

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

    from clearformer.training.journal import console
    from clearformer.verbs.plot import plot as draw

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
