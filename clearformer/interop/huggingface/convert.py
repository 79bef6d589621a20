"""A Hugging Face folder of any kind we know, by what its config.json says it is."""

from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface import bert, gpt2, llama, marian, openai_gpt, roberta, t5
from clearformer.interop.huggingface.folder import Reader, read_json, read_weights

CONVERTERS: dict[str, Any] = {  # model_type -> the module that has its import_folder and export_folder
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "marian": marian,
    "openai-gpt": openai_gpt,
    "roberta": roberta,
    "t5": t5,
}


def import_any(folder: Path, read: Reader = read_weights) -> tuple[Any, dict[str, Tensor]]:
    """The configuration, whose `kind` says which model it is for, and the weights, both in our words."""
    path = folder / "config.json"
    model_type = str(read_json(path, "name a folder that Hugging Face's `save_pretrained` wrote").get("model_type"))
    if model_type not in CONVERTERS:
        raise CheckpointError(
            f"{path}: models of type `{model_type}` are not known", f"choose one of: {', '.join(CONVERTERS)}"
        )
    config, weights = CONVERTERS[model_type].import_folder(folder, read)
    return config, weights


def first_token(folder: Path) -> int:
    """The id that a decoder's text starts with, as its settings say: the padding token in Marian and T5."""
    tables = [read_json(folder / "config.json", "download it again")]
    if (path := folder / "generation_config.json").exists():
        tables.append(read_json(path, "download it again"))
    for key in ("decoder_start_token_id", "pad_token_id"):
        for table in tables:
            if isinstance(found := table.get(key), int):
                return found
    raise CheckpointError(
        f"{folder} does not say what a translation starts with", "its config.json lacks `decoder_start_token_id`"
    )
