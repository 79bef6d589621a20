"""The command `clearformer embed`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Command, Device, Json, Model, read_inputs


@app.command(cls=Command)
def embed(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts, or image files for an image model.", show_default="read stdin"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="NumPy file to write, with one vector per row.",
            show_default="print them",
            rich_help_panel="Output",
        ),
    ] = None,
    unit: Annotated[
        bool | None,
        typer.Option(
            "--unit/--no-unit",
            help="Scale vectors to length 1, or leave them unscaled.",
            show_default="unit for sentence encoders",
            rich_help_panel="Output",
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Embed texts or images as vectors.

    Examples:
      clearformer embed --model all-MiniLM-L6-v2 --out vectors.npy < sentences.txt
      clearformer embed --model runs/bert --json "A man rides a bike." "Someone cycles."
      clearformer embed --model runs/photos --out vectors.npy photos/*.jpg    # images

    For a BERT, a sentence encoder, a GPT or a text classifier, the vector of a text is the mean over its tokens. For an
    image classifier it is the input of the classification head, for an autoencoder the code. Without --out, prints one
    vector per line, its features separated by tabs.
    """
    from json import dumps

    import numpy as np

    from clearformer.checkpoint import atomically
    from clearformer.verbs.embed import embed as compute

    texts = [line for chunk in read_inputs(text or []) for line in chunk]
    vectors = compute(model, texts, unit=unit, device=device)
    if out is not None:
        with atomically(out) as draft, open(draft, "wb") as file:
            np.save(file, vectors)
    if json:
        shape = {"texts": len(vectors), "width": vectors.shape[1]}
        print(dumps({**shape, "out": str(out)} if out is not None else {**shape, "vectors": vectors.tolist()}))
    elif out is not None:
        print(out)
    else:
        for vector in vectors:
            print("\t".join(f"{value:.6g}" for value in vector))
