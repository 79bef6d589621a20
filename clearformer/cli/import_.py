"""clearformer import"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A Hugging Face folder, a .gguf or a .pth file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder to make.")],
    classes: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What pictures show: cat,dog,… or a file, one a line.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a run folder of a model from elsewhere.

    Marian, T5, GPT, GPT-2, Llama, BERT, RoBERTa, ViT and ResNet; of GGUF, Llamas; of torchvision, AlexNet, VGG,
    GoogLeNet, ResNet and ViT, told by their tensors. Pickles, pytorch_model.bin and .pth, are read here alone.

    \b
    clearformer import t5-small runs/t5
    clearformer import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
    clearformer import resnet50-0676ba61.pth runs/resnet50 --classes imagenet.txt
    """
    from json import dumps

    from clearformer.exchange import import_model

    report = import_model(source, out, None if classes is None else listed(classes))
    print(dumps(report) if json else report["run"])


def listed(names: str) -> list[str]:
    """cat,dog or the lines of a file."""
    if (path := Path(names)).is_file():
        return path.read_text(encoding="utf-8").splitlines()
    return [name.strip() for name in names.split(",")]
