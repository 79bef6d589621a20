"""Convert a Hugging Face folder of any supported model type, chosen by `model_type` in config.json."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.checkpoint import write_json
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface import text_classifier
from clearformer.interop.huggingface.folder import Reader, read_json, read_shapes, read_weights, shapes_of
from clearformer.interop.untrusted import untrusted
from clearformer.models.sizes import check_sizes

# model_type -> module with read_model_config, import_folder, export_folder …, imported on first use
CONVERTERS = {
    "bert": "clearformer.interop.huggingface.bert",
    "gpt2": "clearformer.interop.huggingface.gpt2",
    "llama": "clearformer.interop.huggingface.llama",
    "marian": "clearformer.interop.huggingface.marian",
    "megatron-bert": "clearformer.interop.huggingface.megatron_bert",
    "openai-gpt": "clearformer.interop.huggingface.openai_gpt",
    "pegasus": "clearformer.interop.huggingface.pegasus",
    "resnet": "clearformer.interop.huggingface.resnet",
    "roberta": "clearformer.interop.huggingface.roberta",
    "t5": "clearformer.interop.huggingface.t5",
    "vit": "clearformer.interop.huggingface.vit",
}

ROLES = ("pad", "bos", "eos")
HINT = "choose a folder that Hugging Face's `save_pretrained` wrote"
# what transformers lacks, by `kind` of our models
MISSING = {
    "seq2seq": "recurrent translator",
    "rnn-lm": "recurrent language model of this form",
    "birnn": "recurrent text classifier",
    "textcnn": "convolutional text classifier",
    "autoencoder": "image autoencoder of this form",
    "alexnet": "AlexNet",
    "vgg": "VGG",
    "googlenet": "GoogLeNet",
    "speech-rnn": "speech recogniser with recurrent layers",
    "speech-transformer": "speech recogniser with the same layers",
}
HINTS = dict.fromkeys(("alexnet", "vgg", "googlenet"), "export it with --format torchvision or --format onnx")


def read_model_config(folder: Path) -> Any:
    """Return our configuration of a model folder. Only config.json and the headers of the weight files are read."""
    module, theirs = converter_of(folder), read_json(folder / "config.json", HINT)
    with untrusted(folder):
        if text_classifier.has_head(shapes := read_shapes(folder)) and not is_image_model(theirs):
            return text_classifier.import_config(theirs, theirs["model_type"], module.__name__, shapes, str(folder))
        return module.read_model_config(folder)


def import_any(folder: Path, read: Reader = read_weights) -> tuple[Any, dict[str, Tensor]]:
    """Import the configuration and the weights of a folder, both in our format. `config.kind` is the architecture."""
    module, theirs = converter_of(folder), read_json(folder / "config.json", HINT)
    with untrusted(folder):
        # Raises for other settings, and for sizes that no model has, before weights are read.
        check_sizes(module.import_config(theirs, str(folder / "config.json")))
        weights = read(folder)
        if text_classifier.has_head(shapes := shapes_of(weights)) and not is_image_model(theirs):
            source = theirs["model_type"], module.__name__
            config = text_classifier.import_config(theirs, *source, shapes, str(folder))
            return config, text_classifier.import_weights(weights, config, *source, str(folder))
        config, weights = module.import_folder(folder, lambda _: weights)
        return config, weights


def is_image_model(theirs: Mapping[str, Any]) -> bool:
    """Whether config.json is of an image model, whose classification head its converter reads."""
    return theirs["model_type"] in ("resnet", "vit")


def converter_of(folder: Path) -> Any:
    """Return the converter for the `model_type` in the config.json of a folder."""
    path = folder / "config.json"
    model_type = str(read_json(path, HINT).get("model_type"))
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
    others = {"t5": "t5", "resnet": "resnet", "vit": "vit"}
    if config.kind == "classifier":
        return model_type_for(config.base)
    if config.kind == "gpt":
        is_post = config.residual == "post"
        return "llama" if config.positions.kind == "rotary" else "openai-gpt" if is_post else "gpt2"
    if config.kind == "bert":
        return "roberta" if config.positions.offset else "bert" if config.residual == "post" else "megatron-bert"
    if config.kind == "transformer":
        return "marian" if config.residual == "post" else "pegasus"
    if config.kind not in others:
        what = MISSING.get(config.kind, f"architecture like `{config.kind}`")
        raise CheckpointError(f"transformers has no {what}", HINTS.get(config.kind, "export it with --format onnx"))
    return others[config.kind]


def export_any(
    folder: Path, config: Any, weights: Mapping[str, Tensor], tokens: Mapping[str, int], classes: Sequence[str] = ()
) -> str:
    """Write a folder for `from_pretrained` and return its model_type. `tokens` has the ids of pad, bos and eos."""
    model_type, encoder = model_type_for(config), getattr(config, "base", config)
    arguments = token_ids(model_type, encoder, tokens)
    require_exportable(config)  # before anything is written
    if config.kind == "classifier":
        module = CONVERTERS[model_type]
        text_classifier.export_folder(folder, config, weights, model_type, module, classes, arguments)
    else:
        converter_for(config).export_folder(folder, config, weights, **arguments)
    if model_type in ("marian", "pegasus", "t5"):
        write_generation(folder, config, arguments, arguments.get("first", arguments["pad"]))
    return model_type


def write_generation(folder: Path, config: Any, tokens: Mapping[str, int], first: int) -> None:
    """Write generation_config.json: without it, `generate` would stop a translation after 20 tokens."""
    settings = {"pad_token_id": tokens["pad"], "eos_token_id": tokens["eos"], "decoder_start_token_id": first}
    write_json(folder / "generation_config.json", {**settings, "max_length": config.max_length})


def require_exportable(config: Any) -> None:
    """Raise an error unless Hugging Face has a class that computes what a model of this configuration computes."""
    model_type, encoder = model_type_for(config), getattr(config, "base", config)
    if config.kind == "classifier":
        text_classifier.check(config, model_type)
    arguments: dict[str, Any] = {}
    if config.kind not in ("resnet", "vit"):
        offset = getattr(getattr(encoder, "positions", None), "offset", 0)
        arguments = token_ids(model_type, encoder, dict.fromkeys(ROLES, offset - 1))
    converter_for(config).export_config(encoder, **arguments)


def token_ids(model_type: str, encoder: Any, tokens: Mapping[str, int]) -> dict[str, int]:
    """Return the ids of special tokens that the `export_config` of a model family takes."""
    pad, bos, eos = (tokens[role] for role in ROLES)
    if model_type == "roberta" and pad != encoder.positions.offset - 1:
        raise CheckpointError(
            f"the padding token of this model has id {pad}, but RoBERTa needs id {encoder.positions.offset - 1}",
            f"train with model.positions.offset = {pad + 1}, or with offset 0 to export it as BERT",
        )
    first = tokens[getattr(encoder, "begins_with", "bos")]
    needed: dict[str, dict[str, int]] = {
        "marian": {"pad": pad, "eos": eos, "first": first},
        "pegasus": {"pad": pad, "eos": eos, "first": first},
        "bert": {"pad": pad},
        "megatron-bert": {"pad": pad},
        "t5": {"pad": pad, "eos": eos},
        "roberta": {},
    }
    return needed.get(model_type, {"pad": pad, "bos": bos, "eos": eos})


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
