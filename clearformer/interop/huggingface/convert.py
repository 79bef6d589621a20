"""Convert a Hugging Face folder of any supported model type, chosen by `model_type` in config.json."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import Reader, read_json, read_weights

# model_type -> module with read_model_config, import_folder, export_folder …, imported on first use
CONVERTERS = {
    "bert": "clearformer.interop.huggingface.bert",
    "gpt2": "clearformer.interop.huggingface.gpt2",
    "llama": "clearformer.interop.huggingface.llama",
    "marian": "clearformer.interop.huggingface.marian",
    "openai-gpt": "clearformer.interop.huggingface.openai_gpt",
    "resnet": "clearformer.interop.huggingface.resnet",
    "roberta": "clearformer.interop.huggingface.roberta",
    "t5": "clearformer.interop.huggingface.t5",
    "vit": "clearformer.interop.huggingface.vit",
}


def read_model_config(folder: Path) -> Any:
    """Return our configuration of a model folder. Only config.json and the headers of the weight files are read."""
    return converter_of(folder).read_model_config(folder)


def import_any(folder: Path, read: Reader = read_weights) -> tuple[Any, dict[str, Tensor]]:
    """Import the configuration and the weights of a folder, both in our format. `config.kind` is the architecture."""
    config, weights = converter_of(folder).import_folder(folder, read)
    return config, weights


def converter_of(folder: Path) -> Any:
    """Return the converter for the `model_type` in the config.json of a folder."""
    path = folder / "config.json"
    model_type = str(read_json(path, "choose a folder that Hugging Face's `save_pretrained` wrote").get("model_type"))
    if model_type not in CONVERTERS:
        raise CheckpointError(
            f"{path}: unsupported model_type `{model_type}`", f"the supported ones are {', '.join(CONVERTERS)}"
        )
    return import_module(CONVERTERS[model_type])


def converter_for(config: Any) -> Any:
    """Return the converter for the Hugging Face model family that matches our configuration."""
    return import_module(CONVERTERS[model_type_for(config)])


def model_type_for(config: Any) -> str:
    """Return the Hugging Face model family that matches our configuration."""
    others = {"transformer": "marian", "t5": "t5", "resnet": "resnet", "vit": "vit"}
    if config.kind == "gpt":
        is_post = config.residual == "post"
        return "llama" if config.positions.kind == "rotary" else "openai-gpt" if is_post else "gpt2"
    if config.kind == "bert":
        return "roberta" if config.positions.offset else "bert"
    if config.kind not in others:
        hint = f"the architectures that can be exported are gpt, bert, {', '.join(others)}"
        raise CheckpointError(f"a model of architecture `{config.kind}` cannot be exported to Hugging Face", hint)
    return others[config.kind]


def export_any(folder: Path, config: Any, weights: Mapping[str, Tensor], tokens: Mapping[str, int]) -> str:
    """Write a folder for `from_pretrained` and return its model_type. `tokens` has the ids of pad, bos and eos."""
    model_type, (pad, bos, eos) = model_type_for(config), (tokens[role] for role in ("pad", "bos", "eos"))
    token_ids: dict[str, dict[str, int]] = {
        "marian": {"pad": pad, "eos": eos, "first": bos},
        "t5": {"pad": pad, "eos": eos},
        "bert": {"pad": pad},
        "roberta": {},
    }
    if model_type == "roberta" and pad != config.positions.offset - 1:
        raise CheckpointError(
            f"the padding token of this model has id {pad}, but RoBERTa needs id {config.positions.offset - 1}",
            f"train with model.positions.offset = {pad + 1}, or with offset 0 to export it as BERT",
        )
    arguments = token_ids.get(model_type, {"pad": pad, "bos": bos, "eos": eos})
    converter = converter_for(config)
    converter.export_config(config, **arguments)  # reports an unsupported setting before a missing tensor
    converter.export_folder(folder, config, weights, **arguments)
    return model_type


def export_image_classifier(folder: Path, config: Any, weights: Mapping[str, Tensor], classes: Sequence[str]) -> str:
    """Write an image model and its class names as a folder for `from_pretrained`, and return its model_type."""
    converter = converter_for(config)
    converter.export_config(config)
    converter.export_folder(folder, config, weights, classes=classes)
    return str(config.kind)


def first_token(folder: Path) -> int:
    """Return the id of the token that decoding starts with, which is the padding token in Marian and T5."""
    tables = [read_json(folder / "config.json", "download the file again")]
    if (path := folder / "generation_config.json").exists():
        tables.append(read_json(path, "download the file again"))
    for key in ("decoder_start_token_id", "pad_token_id"):
        for table in tables:
            if isinstance(token_id := table.get(key), int):
                return token_id
    raise CheckpointError(
        f"{folder / 'config.json'} lacks `decoder_start_token_id`",
        "set it to the id of the token that decoding starts with",
    )
