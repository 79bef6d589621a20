"""The command `clearformer import`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command("import", cls=Command)
def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Hugging Face folder, or .gguf, .pth or .safetensors file.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="Run folder to write; it must be new or empty.", show_default="SOURCE, to name classes"
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Class names of a classifier: cat,dog,… or a file with one name per line.",
            show_default="from the files of the model, or numbers",
            rich_help_panel="Model",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import a model as a run folder.

    Examples:
      clearformer import t5-small runs/t5                            # a Hugging Face folder
      clearformer import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
      clearformer import resnet50-0676ba61.pth runs/resnet50 --classes imagenet.txt
      clearformer import runs/resnet50 --classes imagenet.txt        # name the classes later

    Hugging Face folders: Marian, Pegasus, T5, GPT, GPT-2, Llama, BERT, MegatronBERT, RoBERTa, ViT and ResNet; text
    classifiers and taggers on BERT, MegatronBERT, RoBERTa and GPT-2. GGUF files: Llama. torchvision weights, recognised
    by their tensors: AlexNet, VGG, GoogLeNet, ResNet and ViT. This is the only command that reads pickles
    (pytorch_model.bin and .pth), and it reads nothing but tensors from them.

    If --classes was forgotten, give it with the run folder as SOURCE and without OUT: only the names are written.
    """
    from clearformer.verbs.import_ import import_model

    report = import_model(source, out, None if classes is None else read_names(classes))
    print_json(report) if json else print(report["run"])


def read_names(names: str) -> list[str]:
    """Return the class names in a string such as "cat,dog", or in a file with one name per line."""
    if (path := Path(names)).is_file():
        return path.read_text(encoding="utf-8").splitlines()
    return [name.strip() for name in names.split(",")]
