"""LoRA adapters in the format of Hugging Face's peft.

    adapter_config.json          rank, alpha, which modules
    adapter_model.safetensors    base_model.model.<their module>.lora_A.weight (R, in), ….lora_B.weight (out, R)

A converter's rows say which of their modules is which layer of ours, or which part of one:

    ours                        theirs
    encoder.blocks.0.attn.q     model.encoder.layers.0.self_attn.q_proj        rows of the packed qkv
    encoder.blocks.0.mlp.up     model.encoder.layers.0.fc1

Where the cut differs, the change of the weights is still the same. A pair on all of `qkv` becomes three pairs with one
A on their side. Several pairs on what is one module over there become one pair of the summed rank, and then every
other is filled with zeros to that rank, since a file has one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from clearformer.checkpoint import atomically, load_tensors, write_json
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json
from clearformer.interop.names import Rows, check, listed
from clearformer.tuning.adapters import Place, add_lora, load_lora, pairs_of, places, require
from clearformer.tuning.lora import LoraConfig

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
HARMLESS = {  # settings that are read here, or that change nothing of what a finished adapter computes
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core",
    "peft_type", "peft_version", "qalora_group_size", "r", "revision", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
DRAWS = (None, True, False, "gaussian", "orthogonal", "eva")  # of A and B; others change the base weights as well


def import_adapter(folder: Path, model: nn.Module, rows: Rows, name: str = "default") -> LoraConfig:
    """Add the adapter in `folder` to a model; `rows` are those of the converter that the base came through."""
    config = read_config(folder)
    if not (folder / WEIGHTS).exists() and (folder / "adapter_model.bin").exists():
        raise CheckpointError(
            f"{folder} has its weights in adapter_model.bin only, a pickle, which is never opened",
            "save it once more with peft: model.save_pretrained(folder)",
        )
    theirs, where = load_tensors(folder / WEIGHTS)[0], str(folder)
    at = modules(model, rows)
    adapted = {key.removeprefix(PREFIX).rpartition(".lora_")[0] or key for key in theirs}
    if unknown := sorted(adapted - set(at)):
        raise CheckpointError(f"{where} adapts {listed(unknown)}, which the model cannot", "it is for another base")
    expected, weights = {}, {}
    for module in adapted | targeted(config, at):
        place, r = at[module], config["r"]
        layer: Any = model.get_submodule(place.layer)
        expected[f"{PREFIX}{module}.lora_A.weight"] = f"{place.name}.A", (r, layer.in_features)
        expected[f"{PREFIX}{module}.lora_B.weight"] = f"{place.name}.B", (place.stop - place.start, r)
    check(theirs, expected, where)
    for key, (own, shape) in expected.items():
        if theirs[key].shape != shape:
            raise CheckpointError(
                f"{where} does not fit the model: `{key}` is {tuple(theirs[key].shape)}, not {shape}",
                "it is for a base of another size",
            )
        weights[own] = theirs[key]
    if not weights:
        raise CheckpointError(f"{where} holds no adapter: {WEIGHTS} is empty", "download it again")
    ours = LoraConfig.parse(
        {
            "rank": config["r"],
            "alpha": config["lora_alpha"] * (config["r"] ** 0.5 if config.get("use_rslora") else 1),  # α/√R for α/R
            "dropout": config.get("lora_dropout", 0.0),
            "targets": tuple(dict.fromkeys(key.rpartition(".")[0] for key in weights)),
        },
        str(folder / CONFIG),
    )
    add_lora(model, ours, name)
    load_lora(model, name, weights, where)
    return ours


def export_adapter(folder: Path, model: nn.Module, rows: Rows, name: str = "default", base: str | None = None) -> None:
    """The folder that `PeftModel.from_pretrained` reads; `base` is where the base model is to be found."""
    require(model, name)
    at, known, pairs = modules(model, rows), places(model), pairs_of(model, name)
    pieces: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for own, pair in pairs.items():
        theirs = {module: place for module, place in at.items() if place.layer == known[own].layer}
        if not theirs:
            raise CheckpointError(f"the base has no module for `{own}`", "only layers of the base can be exported")
        for module, place in theirs.items():
            low, high = max(place.start, pair.start), min(place.stop, pair.stop)
            if low < high:
                B = pair.B.new_zeros(place.stop - place.start, pair.B.size(1))
                B[low - place.start : high - place.start] = pair.B.detach()[low - pair.start : high - pair.start]
                pieces.setdefault(module, []).append((pair.A.detach(), B))
    rank = max(sum(len(A) for A, _ in some) for some in pieces.values())
    weights = {}
    for module, some in pieces.items():
        A, B = torch.cat([A for A, _ in some]), torch.cat([B for _, B in some], dim=1)
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
            "target_modules": short(set(pieces), at),
            "bias": "none",
            "inference_mode": True,
        },
    )


def modules(model: nn.Module, rows: Rows) -> dict[str, Place]:
    """The place of each of their modules: a layer, or the part of it that a row stacks."""
    known = places(model)
    found: dict[str, Place] = {}
    for own, theirs in rows.items():
        layer = own.removesuffix(".weight")
        if layer == own or layer not in known:
            continue
        parts = [place for place in known.values() if place.layer == layer and place.name != layer]
        ours = [known[layer]] if len(theirs) == 1 else parts
        assert len(ours) == len(theirs), f"{own} is stacked of {len(theirs)}, and has {len(ours)} parts"
        found |= {name.removesuffix(".weight"): place for name, place in zip(theirs, ours)}
    return found


def targeted(config: Mapping[str, Any], at: Mapping[str, Place]) -> set[str]:
    """The modules that the configuration says it adapts, where it says so by plain names for all layers."""
    targets = config.get("target_modules")
    if not isinstance(targets, list) or config.get("layers_to_transform") or config.get("exclude_modules"):
        return set()
    return {module for module in at if any(f".{module}".endswith(f".{target}") for target in targets)}


def short(adapted: set[str], at: Mapping[str, Place]) -> list[str]:
    """Names as peft's users give them, the last word alone, if these mean the adapted modules and no others."""
    words = sorted({module.rpartition(".")[2] for module in adapted})
    return words if targeted({"target_modules": words}, at) == adapted else sorted(adapted)


def read_config(folder: Path) -> dict[str, Any]:
    """adapter_config.json of a plain LoRA; what would compute something else is refused by name."""
    path = folder / CONFIG
    config = read_json(path, "name a folder that peft's save_pretrained wrote")
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{path} is of type `{config.get('peft_type')}`, not `LORA`", "only LoRA can be imported")
    for key, value in config.items():
        if value and key not in HARMLESS and (key, value) != ("bias", "none"):
            raise CheckpointError(f"{path}: `{key}` = {value!r} is not supported", "only plain LoRA is")
    if (draw := config.get("init_lora_weights")) not in DRAWS:
        raise CheckpointError(
            f"{path}: `init_lora_weights` = {draw!r} changes the base weights too", "convert it to plain LoRA with peft"
        )
    for key in ("r", "lora_alpha"):
        if not isinstance(config.get(key), int | float):
            raise CheckpointError(f"{path} lacks `{key}`", "is it the configuration of a LoRA adapter?")
    return config
