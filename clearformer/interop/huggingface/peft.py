"""Import and export LoRA adapters in the format of Hugging Face's peft.

    adapter_config.json          rank, alpha, target modules
    adapter_model.safetensors    base_model.model.<their module>.lora_A.weight (R, in), ….lora_B.weight (out, R)

The rows of a converter (names.py) map Hugging Face modules to our layers, or to parts of them:

    ours                        theirs
    encoder.blocks.0.attn.q     model.encoder.layers.0.self_attn.q_proj        rows of the stacked qkv
    encoder.blocks.0.mlp.up     model.encoder.layers.0.fc1

If only one of the two libraries splits a layer, the update of the weights stays the same. A pair (A, B) on all of `qkv`
becomes three pairs with the same A. Several pairs on one Hugging Face module become one pair, whose rank is the sum of
their ranks; all other pairs are then padded with zeros to that rank, since a file has only one rank.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from clearformer.checkpoint import atomically, load_tensors, write_json
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json
from clearformer.interop.names import Rows, check, quoted
from clearformer.tuning.adapters import Place, add_lora, load_lora, pairs_of, places, require
from clearformer.tuning.lora import LoraConfig

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
HARMLESS = {  # settings that are read here, or that do not affect the output of a trained adapter
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core",
    "peft_type", "peft_version", "qalora_group_size", "r", "revision", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
INITS = (None, True, False, "gaussian", "orthogonal", "eva")  # of A and B; others also change the base weights


def import_adapter(folder: Path, model: nn.Module, rows: Rows, name: str = "default") -> LoraConfig:
    """Add the adapter in `folder` to a model; `rows` come from the converter of the base model."""
    config = read_config(folder)
    if not (folder / WEIGHTS).exists() and (folder / "adapter_model.bin").exists():
        raise CheckpointError(
            f"{folder} has its weights only in adapter_model.bin, a pickle, which can run code when opened",
            "save it as safetensors with peft: model.save_pretrained(folder)",
        )
    theirs, where = load_tensors(folder / WEIGHTS)[0], str(folder)
    places_by_module = module_places(model, rows)
    adapted = {key.removeprefix(PREFIX).rpartition(".lora_")[0] or key for key in theirs}
    if unknown := sorted(adapted - set(places_by_module)):
        raise CheckpointError(
            f"{where} adapts {quoted(unknown)}, which the base model lacks",
            "choose the --base that the adapter was trained on",
        )
    expected, weights = {}, {}
    for module in adapted | targeted(config, places_by_module):
        place, r = places_by_module[module], config["r"]
        layer: Any = model.get_submodule(place.layer)
        expected[f"{PREFIX}{module}.lora_A.weight"] = f"{place.name}.A", (r, layer.in_features)
        expected[f"{PREFIX}{module}.lora_B.weight"] = f"{place.name}.B", (place.stop - place.start, r)
    check(theirs, expected, where)
    for key, (our_key, shape) in expected.items():
        if theirs[key].shape != shape:
            raise CheckpointError(
                f"{where} does not fit the model: `{key}` has the shape {tuple(theirs[key].shape)}, not {shape}",
                "choose the --base that the adapter was trained on",
            )
        weights[our_key] = theirs[key]
    if not weights:
        raise CheckpointError(f"{folder / WEIGHTS} is empty", "download the file again")
    ours = LoraConfig.parse(
        {
            "rank": config["r"],
            "alpha": config["lora_alpha"] * (config["r"] ** 0.5 if config.get("use_rslora") else 1),  # α/√R, not α/R
            "dropout": config.get("lora_dropout", 0.0),
            "targets": tuple(dict.fromkeys(key.rpartition(".")[0] for key in weights)),
        },
        str(folder / CONFIG),
    )
    add_lora(model, ours, name)
    load_lora(model, name, weights, where)
    return ours


def export_adapter(folder: Path, model: nn.Module, rows: Rows, name: str = "default", base: str | None = None) -> None:
    """Write a folder that `PeftModel.from_pretrained` can load; `base` is the name or path of the base model."""
    require(model, name)
    places_by_module, known, pairs = module_places(model, rows), places(model), pairs_of(model, name)
    exported: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for our_name, pair in pairs.items():
        layer = known[our_name].layer
        theirs = {module: place for module, place in places_by_module.items() if place.layer == layer}
        if not theirs:
            raise CheckpointError(
                f"the exported base model has no module for the adapted layer `{our_name}`",
                "train the adapter without this layer in tuning.lora.targets",
            )
        for module, place in theirs.items():
            low, high = max(place.start, pair.start), min(place.stop, pair.stop)
            if low < high:
                B = pair.B.new_zeros(place.stop - place.start, pair.B.size(1))
                B[low - place.start : high - place.start] = pair.B.detach()[low - pair.start : high - pair.start]
                exported.setdefault(module, []).append((pair.A.detach(), B))
    rank = max(sum(len(A) for A, _ in stacked) for stacked in exported.values())
    weights = {}
    for module, stacked in exported.items():
        A, B = torch.cat([A for A, _ in stacked]), torch.cat([B for _, B in stacked], dim=1)
        weights[f"{PREFIX}{module}.lora_A.weight"] = nn.functional.pad(A, (0, 0, 0, rank - len(A)))
        weights[f"{PREFIX}{module}.lora_B.weight"] = nn.functional.pad(B, (0, rank - B.size(1)))
    pair = next(iter(pairs.values()))
    alpha = pair.alpha * rank / len(pair.A)
    with atomically(folder / WEIGHTS) as draft:
        save_file({key: tensor.cpu().contiguous() for key, tensor in weights.items()}, draft, {"format": "pt"})
    write_json(
        folder / CONFIG,
        {
            "peft_type": "LORA",
            "task_type": None,
            "base_model_name_or_path": base,
            "r": rank,
            "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
            "lora_dropout": pair.dropout,
            "target_modules": target_names(set(exported), places_by_module),
            "bias": "none",
            "inference_mode": True,
        },
    )


def module_places(model: nn.Module, rows: Rows) -> dict[str, Place]:
    """Return the place of each Hugging Face module in our model: a layer, or one of the parts stacked in a layer."""
    known = places(model)
    by_module: dict[str, Place] = {}
    for our_name, theirs in rows.items():
        layer = our_name.removesuffix(".weight")
        if layer == our_name or layer not in known:
            continue
        parts = [place for place in known.values() if place.layer == layer and place.name != layer]
        ours = [known[layer]] if len(theirs) == 1 else parts
        assert len(ours) == len(theirs), f"{our_name}: {len(theirs)} of their tensors for {len(ours)} of our parts"
        by_module |= {name.removesuffix(".weight"): place for name, place in zip(theirs, ours)}
    return by_module


def targeted(config: Mapping[str, Any], modules: Collection[str]) -> set[str]:
    """Return the modules that `target_modules` selects; none if it is a pattern or if some layers are excluded."""
    targets = config.get("target_modules")
    if not isinstance(targets, list) or config.get("layers_to_transform") or config.get("exclude_modules"):
        return set()
    return {module for module in modules if any(f".{module}".endswith(f".{target}") for target in targets)}


def target_names(adapted: set[str], modules: Collection[str]) -> list[str]:
    """Return `target_modules`: short names such as q_proj if these select exactly `adapted`, otherwise full names."""
    words = sorted({module.rpartition(".")[2] for module in adapted})
    return words if targeted({"target_modules": words}, modules) == adapted else sorted(adapted)


def read_config(folder: Path) -> dict[str, Any]:
    """Read adapter_config.json. A setting that plain LoRA does not have raises an error."""
    path = folder / CONFIG
    config = read_json(path, "choose a folder that peft's `save_pretrained` wrote")
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            f"{path}: unsupported peft_type `{config.get('peft_type')}`", "only `LORA` can be imported"
        )
    for key, value in config.items():
        if value and key not in HARMLESS and (key, value) != ("bias", "none"):
            raise CheckpointError(f"{path}: `{key}` = {value!r} is not supported", "only plain LoRA can be imported")
    if (init := config.get("init_lora_weights")) not in INITS:
        raise CheckpointError(
            f"{path}: `init_lora_weights` = {init!r} also changes the base weights",
            "convert it to plain LoRA with peft",
        )
    for key in ("r", "lora_alpha"):
        if not isinstance(config.get(key), int | float):
            raise CheckpointError(f"{path} lacks `{key}`", "download the file again")
    return config
