"""The command `clearformer plot`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json


@app.command(cls=Command)
def plot(
    name: Annotated[str, typer.Argument(metavar="FIGURE", help="Name of the figure, from the list above.")],
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Text for the figure `attention`.", show_default="none"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Run folder or Hugging Face folder of an image model or a text model.",
            show_default="none",
            rich_help_panel="Model and data",
        ),
    ] = None,
    images: Annotated[
        list[Path],
        typer.Option(
            metavar="PATH",
            help="Image file, or folder or file of images in a training format; repeatable.",
            show_default="none",
            rich_help_panel="Model and data",
        ),
    ] = [],  # noqa: B006
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Texts: one per line for embeddings, or labelled texts as .tsv, .csv or .jsonl.",
            show_default="none",
            rich_help_panel="Model and data",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Translation of TEXT, for the attention of a translator.",
            show_default="the model's translation",
            rich_help_panel="Model and data",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Layer that grad-cam, features or attention shows.",
            show_default="last; first for features",
            rich_help_panel="Figure",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Seed of the figures that need no model.", rich_help_panel="Figure"),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=".png or .svg file to write.", show_default="FIGURE.png", rich_help_panel="Output"
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Plot a figure of the course notes or of a trained model.

    Examples:
      clearformer plot optimizers                                            # needs no model
      clearformer plot gradients --out gradients.svg --json > gradients.json # with its values
      clearformer plot attention --model runs/mine "A man rides a bike."
      clearformer plot embeddings --model runs/photos --images photos/
      clearformer plot confusion --model runs/reviews --texts test.tsv
      clearformer plot grad-cam --model runs/photos --images photo.jpg --images other.jpg

    Without a model: optimizers, rates, gradients, truncation, agreement, depth, batch-norm, covariate-shift,
    convolutions, consistency, self-supervision, positions, schedules, complexity and level-sets.

    For image models: embeddings of images, rollout and grad-cam (the image regions that a model uses), filters,
    features (the feature maps of a layer) and shifts (the effect of moving the image).

    For classifiers, with labelled --texts or --images: confusion (labels and predictions), calibration (accuracy by
    probability) and errors (the most confident ones).

    For text models: embeddings of texts, and attention (every head of a layer). Attention layers are numbered
    0, 1 and so on; in the encoder of a translator, encoder.0, encoder.1 and so on. They also have the names that
    `clearformer lens attention` prints, such as decoder.blocks.0.attn. --json prints the plotted values.
    """
    from clearformer.training.journal import console
    from clearformer.verbs.plot import plot as draw

    with console.status(f"computing {name}, up to a minute"):
        values = draw(
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
    print_json(values) if json else print(f"{values['figure']}: {values['title']}")
