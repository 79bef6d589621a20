"""clearformer import"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A Hugging Face folder, a .gguf or a .pth file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder to write.")],
    classes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Names of image classes: cat,dog,… or a file, one a line."),
    ] = None,
    json: Json = False,
) -> None:
    """Import a model as a run folder.

    From Hugging Face: Marian, T5, GPT, GPT-2, Llama, BERT, RoBERTa, ViT and ResNet. From GGUF: Llama. From torchvision,
    recognised by their tensors: AlexNet, VGG, GoogLeNet, ResNet and ViT. No other command reads pickles
    (pytorch_model.bin and .pth).

    \b
    clearformer import t5-small runs/t5
    clearformer import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
    clearformer import resnet50-0676ba61.pth runs/resnet50 --classes imagenet.txt
    """
    from json import dumps

    from clearformer.verbs.import_ import import_model

    report = import_model(source, out, None if classes is None else read_names(classes))
    print(dumps(report) if json else report["run"])


def read_names(names: str) -> list[str]:
    """The names in "cat,dog", or the lines of a file."""
    if (path := Path(names)).is_file():
        return path.read_text(encoding="utf-8").splitlines()
    return [name.strip() for name in names.split(",")]
