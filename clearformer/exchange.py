"""Models from elsewhere into run folders, and run folders into what others read.

import_model   a Hugging Face folder, a .gguf file, or   ->  a run folder that every verb takes
               torchvision's weights, .pth
export_model   any model that we can open                ->  the folder that `from_pretrained` reads, or the weights
                                                             that torchvision's `load_state_dict` takes
merge          a run that LoRA tuned, or peft's adapter  ->  a run folder of its base, the adapter in its weights
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from torch import Tensor, nn

from clearformer.checkpoint import (
    RunFolder,
    load_tensors,
    load_weights,
    save_tensors,
    weights_of,
    write_json,
    write_text,
)
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.interop import gguf
from clearformer.interop.huggingface.convert import converter_for, converter_of, export_any, export_pictures
from clearformer.interop.huggingface.folder import TEMPLATE, read_template
from clearformer.interop.huggingface.peft import CONFIG as ADAPTER
from clearformer.interop.huggingface.peft import import_adapter, read_config
from clearformer.interop.huggingface.pickled import read_any_weights, read_pickle
from clearformer.interop.huggingface.pictures import class_names
from clearformer.interop.huggingface.vocabulary import write_tokenizer
from clearformer.interop.origin import Origin
from clearformer.interop.pixels import usual_image, write_image
from clearformer.interop.torchvision import convert as torchvision
from clearformer.loading.contents import check_fit, foreign_recipe, is_pair, is_seen, read_foreign, read_pictured
from clearformer.loading.folders import HINT, find, is_foreign
from clearformer.loading.opening import open_model
from clearformer.prepare import CLASSES, save_tokenizers
from clearformer.recipe import Recipe, build_model
from clearformer.text import Tokenizer
from clearformer.tuning import adapters

FORMATS = ("huggingface", "torchvision")
PICKLES = (".pth", ".pt", ".th")


def import_model(source: str | Path, out: str | Path, classes: Sequence[str] | None = None) -> dict[str, Any]:
    """A run folder of a Hugging Face folder, a .gguf file or torchvision's weights: run, kind, parameters, format.

    `classes` are the names of what a network for pictures tells apart, in the order of its scores; if neither they nor
    the model's own files say, they are numbers. This is the one door through which weights in a pickle may come, and
    nothing but tensors is taken from it.
    """
    source, out = Path(source), Path(out)
    if not source.exists():
        raise CheckpointError(f"there is no model {source}", "give a Hugging Face folder, a .gguf or a .pth file")
    require_empty(out)
    if source.is_file():
        recipe, weights, tokenizers, template = read_file(source)
    else:
        if not is_foreign(source):
            raise CheckpointError(f"{source} is no folder of Hugging Face's: it has no config.json", HINT)
        recipe, weights, tokenizers = read_foreign(source, read_any_weights)
        template = read_template(source)
    check_fit(tokenizers, recipe, source)
    names = name_classes(recipe, source, classes)
    network = build_model(recipe.model)
    load_weights(network, weights, str(source))
    write_run(out, recipe, weights, tokenizers, template, names)
    return told(out, recipe, network) | {"format": recipe.origin.format if recipe.origin else None}


def read_file(source: Path) -> tuple[Recipe, dict[str, Tensor], list[Tokenizer], str | None]:
    """What a file holds, by its ending."""
    if source.suffix == ".gguf":
        config, weights, tokenizer, template = gguf.import_file(source)
        return foreign_recipe(config, Origin(source=source.name, format="gguf")), weights, [tokenizer], template
    if source.suffix not in (*PICKLES, ".safetensors"):
        raise CheckpointError(f"{source} is a file of no known kind", "give a .gguf or .pth file, or a folder")
    tensors = read_pickle(source) if source.suffix in PICKLES else load_tensors(source)[0]
    config, weights = torchvision.import_weights(tensors, str(source))
    origin = Origin(source=source.name, format="torchvision")
    return foreign_recipe(config, origin, usual_image(config)), weights, [], None


def name_classes(recipe: Recipe, source: Path, names: Sequence[str] | None) -> list[str] | None:
    """Of a network for pictures, as given or as its own files say; of another none."""
    n = recipe.model.n_classes if is_seen(recipe) else None
    if names is not None and len(names) != n:
        known = "no classes to name" if n is None else f"{n} classes"
        raise CheckpointError(f"{source} has {known}, and {len(names)} names are given", "give one for each class")
    if n is None:
        return None
    own = class_names(source, n) if source.is_dir() else [str(k) for k in range(n)]
    return own if names is None else [*names]


def export_model(model: str | Path, out: str | Path, format: str = "huggingface") -> dict[str, Any]:
    """The folder that `from_pretrained`, `AutoTokenizer` and `AutoImageProcessor` read: folder, model_type.

    Of format "torchvision", weights by its names, as safetensors: nothing is ever pickled.
    """
    out = Path(out)
    if format not in FORMATS:
        raise ConfigError(f"there is no format `{format}`", suggest(format, FORMATS))
    require_empty(out)
    opened = open_model(model)
    if format == "torchvision":
        save_tensors(out / "model.safetensors", torchvision.export_weights(weights_of(opened.network), opened.config))
        return {"folder": str(out), "model_type": opened.config.kind}
    if is_seen(opened.recipe):
        converter_for(opened.config)  # an autoencoder's is not there
        classes = read_pictured(find(model), opened.config.n_classes)
        model_type = export_pictures(out, opened.config, weights_of(opened.network), classes)
        if opened.recipe.image is not None:
            write_image(out, opened.recipe.image)
        return {"folder": str(out), "model_type": model_type}
    tokenizer = opened.tokenizers[-1]
    if len({tok.fingerprint() for tok in opened.tokenizers}) > 1:
        raise CheckpointError(
            f"{model} has a vocabulary for each side, and tokenizer.json holds one",
            "only a model with one vocabulary can be exported: train with text.shared = true",
        )
    ids = {"pad": tokenizer.pad_id, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    model_type = export_any(out, opened.config, weights_of(opened.network), ids)
    write_tokenizer(out, tokenizer, opened.config, is_pair(opened.recipe))
    if opened.template is not None:
        write_text(out / TEMPLATE, opened.template)
    return {"folder": str(out), "model_type": model_type}


def merge(adapter: str | Path, out: str | Path, base: str | Path | None = None) -> dict[str, Any]:
    """A run folder of the base with the adapter added to its weights: run, kind, parameters, base.

    The adapter says where its base is; `base` says it instead, if it has moved.
    """
    adapter, out = Path(adapter), Path(out)
    require_empty(out)
    if RunFolder(adapter).exists:
        return merge_run(adapter, out)
    if not (adapter / ADAPTER).exists():
        raise CheckpointError(
            f"{adapter} holds no adapter: it has no {ADAPTER}",
            "name a run that LoRA tuned, or a folder that peft wrote",
        )
    folder = base_of(adapter) if base is None else find(base)
    opened = open_model(folder)
    converter = converter_of(folder) if is_foreign(folder) else converter_for(opened.config)
    import_adapter(adapter, opened.network, converter.tensor_rows(opened.config))
    adapters.merge(opened.network)
    weights = weights_of(opened.network)
    write_run(out, opened.recipe, weights, opened.tokenizers, opened.template)
    return told(out, opened.recipe, opened.network) | {"base": str(folder)}


def merge_run(adapter: Path, out: Path) -> dict[str, Any]:
    """The same of a run that LoRA tuned. Opening it adds the adapter to its base's weights; here they are kept so."""
    opened = open_model(adapter)
    tuning = opened.recipe.tuning
    if tuning is None or tuning.method != "lora":
        how = "trained whole" if tuning is None else f"tuned by the method `{tuning.method}`"
        raise CheckpointError(
            f"{adapter} was {how}: it has no LoRA to merge", "name the --out of finetune --method lora"
        )
    recipe, weights = replace(opened.recipe, tuning=None), weights_of(opened.network)
    if (adapter / CLASSES).exists():
        write_text(out / CLASSES, (adapter / CLASSES).read_text(encoding="utf-8"))
    write_run(out, recipe, weights, opened.tokenizers, opened.template)
    return told(out, recipe, opened.network) | {"base": str(tuning.base)}


def base_of(adapter: Path) -> Path:
    """The folder of the model that an adapter was trained on, as it names it or beside it."""
    name = read_config(adapter).get("base_model_name_or_path")
    for path in (Path(str(name)), adapter / str(name)) if name else ():
        if path.is_dir():
            return find(path)
    raise CheckpointError(f"{adapter} is for the base `{name}`, which is not here", "say where it is: --base FOLDER")


def require_empty(out: Path) -> None:
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise CheckpointError(f"{out} is there already, and not empty", "choose another folder")


def write_run(
    out: Path,
    recipe: Recipe,
    weights: Mapping[str, Tensor],
    tokenizers: list[Tokenizer],
    template: str | None,
    classes: list[str] | None = None,
) -> None:
    """A run folder. The recipe, which makes it one, comes last; that of a model from elsewhere says only what it is."""
    tables = recipe.tables()
    if recipe.data is None:
        tables = {name: table for name, table in tables.items() if name in ("origin", "image", "model")}
    if tokenizers:
        save_tokenizers(RunFolder(out), tokenizers[0], tokenizers[-1])
    if classes is not None:
        write_json(out / CLASSES, classes)
    if template is not None:
        write_text(out / TEMPLATE, template)
    facts = {"tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers]}
    save_tensors(RunFolder(out).model, weights, facts)
    write_text(RunFolder(out).recipe, tomli_w.dumps(tables))


def told(out: Path, recipe: Recipe, network: nn.Module) -> dict[str, Any]:
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    return {"run": str(out), "kind": recipe.model.kind, "parameters": n_parameters}
