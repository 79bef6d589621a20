"""clearformer import"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A Hugging Face folder, or a .gguf file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The run folder to make.")],
    json: Json = False,
) -> None:
    """Make a run folder of a model from elsewhere.

    Marian, T5, GPT, GPT-2, Llama, BERT and RoBERTa; of GGUF, Llamas. Weights in pytorch_model.bin are read here alone.

    \b
    clearformer import t5-small runs/t5
    clearformer import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
    """
    from json import dumps

    from clearformer.exchange import import_model

    report = import_model(source, out)
    print(dumps(report) if json else report["run"])
