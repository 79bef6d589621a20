"""clearformer embed"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, incoming


@app.command()
def embed(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts, or image files; else lines of stdin.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Write a table here, a row for each text.")
    ] = None,
    unit: Annotated[
        bool | None,
        typer.Option("--unit/--no-unit", help="Vectors of length 1, or as they are; else as the model says."),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Embed texts or images as vectors.

    The vector of a text is the mean over its tokens in a BERT, a sentence encoder, a GPT or a classifier; the vector
    of an image is the input of the classifier's head, or the autoencoder's code. Without --out vectors are printed,
    a line each.

    \b
    clearformer embed --model all-MiniLM-L6-v2 --out vectors.npy < sentences.txt
    clearformer embed --model runs/bert --json "A man rides a bike." "Someone cycles."
    clearformer embed --model runs/photos --out vectors.npy photos/*.jpg
    """
    from json import dumps

    import numpy as np

    from clearformer.checkpoint import atomically
    from clearformer.verbs.embed import embed as compute

    texts = [line for chunk in incoming(text or []) for line in chunk]
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
