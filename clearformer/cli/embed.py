"""The command `clearformer embed`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.inputs import Column, Input, open_inputs
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, Model


@app.command(cls=Command)
def embed(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts, or image files for an image model.", show_default="read stdin"),
    ] = None,
    input: Input = None,
    column: Column = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="File to write: .npy with one vector per row; or .jsonl, .json, .csv, .tsv with all columns; or .txt.",
            show_default="print the vectors",
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
      clearformer embed --model runs/bert --input reviews.csv --column comment --out vectors.jsonl
      clearformer embed --model runs/photos --out vectors.npy photos/*.jpg    # images

    For a BERT, a sentence encoder, a GPT or a text classifier, the vector of a text is the mean over its tokens. For an
    image classifier it is the input of the classification head, for an autoencoder the code. Without --out, prints one
    vector per line, its features separated by tabs. In .jsonl and .json files the vector is a list, `embedding`; in
    .csv and .tsv files its features are the columns embedding_0, embedding_1 and so on.
    """
    import numpy as np

    from clearformer.data.files.write import VECTORS
    from clearformer.handles.image_model import ImageModel
    from clearformer.verbs.load import load_encoder
    from clearformer.verbs.rows import Job, Result, results, write_results

    encoder = load_encoder(model, device, unit)
    is_image = isinstance(encoder, ImageModel)
    name = "image" if is_image else "text"
    records = open_inputs("embed", text, input, column, out, name, is_image=is_image, types=VECTORS)
    ending = "" if out is None else out.suffix.lower()
    width = encoder.embed([]).shape[1]

    def values(vector: np.ndarray) -> Sequence[object]:
        if ending in (".csv", ".tsv"):
            return list(map(float, vector))
        return [vector] if ending in (".npy", "") else [vector.tolist()]

    def run(texts: Sequence[tuple[str, ...]], first: int) -> list[list[Result]]:
        nonlocal width
        vectors = encoder.embed([one for (one,) in texts]).numpy()
        width = vectors.shape[1]
        lines = ("\t".join(f"{value:.6g}" for value in vector) for vector in vectors)
        is_printed = ending in (".txt", "")
        return [[Result(values(vector), [next(lines)] if is_printed else [])] for vector in vectors]

    features = [f"embedding_{i}" for i in range(width)]
    job = Job("embed", features if ending in (".csv", ".tsv") else ["embedding"], run)
    if out is not None:
        n_rows = write_results(records, out, job)
        print_json({"texts": n_rows, "width": width, "out": str(out)}) if json else print(out)
    elif json:
        vectors = [result.values[0].tolist() for result in results(records, job)]
        print_json({"texts": len(vectors), "width": width, "vectors": vectors})
    else:
        for result in results(records, job):
            print(*result.lines, sep="\n")
