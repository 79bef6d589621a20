"""A Hugging Face folder of any kind we know, by what its config.json says it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface import bert, gpt2, llama, marian, openai_gpt, resnet, roberta, t5, vit
from clearformer.interop.huggingface.folder import Reader, read_json, read_weights

CONVERTERS: dict[str, Any] = {  # model_type -> its module: read_model_config, import_folder, export_folder …
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "marian": marian,
    "openai-gpt": openai_gpt,
    "resnet": resnet,
    "roberta": roberta,
    "t5": t5,
    "vit": vit,
}


def read_model_config(folder: Path) -> Any:
    """The configuration of `import_any`, from config.json and the headers of the weights: nothing is allocated."""
    return converter_of(folder).read_model_config(folder)


def import_any(folder: Path, read: Reader = read_weights) -> tuple[Any, dict[str, Tensor]]:
    """The configuration, whose `kind` says which model it is for, and the weights, both in our words."""
    config, weights = converter_of(folder).import_folder(folder, read)
    return config, weights


def converter_of(folder: Path) -> Any:
    """The module that a folder's config.json asks for."""
    path = folder / "config.json"
    model_type = str(read_json(path, "name a folder that Hugging Face's `save_pretrained` wrote").get("model_type"))
    if model_type not in CONVERTERS:
        raise CheckpointError(
            f"{path}: models of type `{model_type}` are not known", f"choose one of: {', '.join(CONVERTERS)}"
        )
    return CONVERTERS[model_type]


def converter_for(config: Any) -> Any:
    """The module whose family has a word for everything in our configuration."""
    others = {"transformer": marian, "t5": t5, "resnet": resnet, "vit": vit}
    if config.kind == "gpt":
        is_post = config.residual == "post"
        return llama if config.positions.kind == "rotary" else openai_gpt if is_post else gpt2
    if config.kind == "bert":
        return roberta if config.positions.offset else bert
    if config.kind not in others:
        hint = f"these kinds can be exported: gpt, bert, {', '.join(others)}"
        raise CheckpointError(f"Hugging Face has no model of the kind `{config.kind}`", hint)
    return others[config.kind]


def export_any(folder: Path, config: Any, weights: Mapping[str, Tensor], tokens: Mapping[str, int]) -> str:
    """The folder that `from_pretrained` reads, and its model_type. `tokens` are the ids of pad, bos and eos."""
    converter, (pad, bos, eos) = converter_for(config), (tokens[role] for role in ("pad", "bos", "eos"))
    known: dict[Any, dict[str, int]] = {
        marian: {"pad": pad, "eos": eos, "first": bos},
        t5: {"pad": pad, "eos": eos},
        bert: {"pad": pad},
        roberta: {},
    }
    if converter is roberta and pad != config.positions.offset - 1:
        raise CheckpointError(
            f"RoBERTa pads with token {config.positions.offset - 1}, and this model with {pad}", "it cannot be said"
        )
    arguments = known.get(converter, {"pad": pad, "bos": bos, "eos": eos})
    converter.export_config(config, **arguments)  # what cannot be said is refused before any tensor is missed
    converter.export_folder(folder, config, weights, **arguments)
    return next(name for name, module in CONVERTERS.items() if module is converter)


def export_image_classifier(folder: Path, config: Any, weights: Mapping[str, Tensor], classes: Sequence[str]) -> str:
    """The same of a network for pictures, whose classes have names."""
    converter = converter_for(config)
    converter.export_config(config)
    converter.export_folder(folder, config, weights, classes=classes)
    return str(config.kind)


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
