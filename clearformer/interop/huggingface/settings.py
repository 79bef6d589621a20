"""Convert settings between Hugging Face's config.json and our configuration, as interop/names.py does for tensors.

    config.json      ours
    n_embd           d_model
    resid_pdrop      dropout
    embd_pdrop       dropout         two settings may map to one of ours, if they are equal

A setting without an equivalent raises an error, except for dropout, which does not affect a trained model.
"""

from collections.abc import Mapping
from typing import Any

from clearformer.errors import CheckpointError
from clearformer.models.stack import StackConfig

NORM_EPS = {"layer": 1e-5, "rms": 1e-6}  # defaults


def our_settings(theirs: Mapping[str, Any], table: Mapping[str, str], where: str) -> dict[str, Any]:
    """Rename the settings of config.json by `table`, which maps Hugging Face's names to ours."""
    ours: dict[str, Any] = {}
    for name, field in table.items():
        if theirs.get(name) is None:
            raise CheckpointError(f"{where} lacks `{name}`", "download the file again")
        if ours.setdefault(field, theirs[name]) != theirs[name]:
            first = next(other for other in table if table[other] == field)
            raise CheckpointError(
                f"{where}: `{name}` is {theirs[name]}, but `{first}` is {theirs[first]}",
                "only models in which both are equal can be imported",
            )
    return ours


def import_activation(name: str, names: Mapping[str, str], where: str) -> str:
    """Translate Hugging Face's name of an activation to ours."""
    if name not in names:
        raise CheckpointError(f"{where}: unsupported activation `{name}`", f"the supported ones are {', '.join(names)}")
    return names[name]


def export_activation(name: str, names: Mapping[str, str], family: str) -> str:
    """Translate our name of an activation to Hugging Face's, to the first one if there are several."""
    their_names: dict[str, str] = {}
    for their_name, our_name in names.items():
        their_names.setdefault(our_name, their_name)
    if name not in their_names:
        raise CheckpointError(
            f"{family} does not support activation = {name}", f"the supported ones are {', '.join(their_names)}"
        )
    return their_names[name]


def require_settings(theirs: Mapping[str, Any], switches: Mapping[str, Any], where: str) -> None:
    """Raise an error if config.json contradicts one of `switches`, the values that our models imply."""
    for name, value in switches.items():
        if theirs.get(name, value) != value:
            raise CheckpointError(
                f"{where}: `{name}` = {theirs[name]} is not supported",
                f"only models with {name} = {value} can be imported",
            )


def require_fields(fields: Mapping[str, Any], fixed: Mapping[str, Any], family: str) -> None:
    """Raise an error if our configuration contradicts one of `fixed`, the values that the model family implies."""
    for name, value in fixed.items():
        actual = {key: fields[name][key] for key in value} if isinstance(value, dict) else fields[name]
        if actual != value:
            raise CheckpointError(
                f"{family} does not support {name} = {actual}", f"only models with {name} = {value} can be exported"
            )


def resolved_fields(config: StackConfig) -> dict[str, Any]:
    """Return all fields of our configuration. Defaults that depend on other fields are filled in."""
    return {
        **config.model_dump(),
        "final_norm": config.has_final_norm,
        "n_kv_heads": config.n_kv_heads or config.n_heads,
        "d_head": config.head_width,
        "d_value": config.d_value or config.head_width,
        "norm_eps": config.norm_eps or NORM_EPS.get(config.norm),
        "attention_scale": config.attention_scale or config.head_width**-0.5,
    }


def plain_heads(config: StackConfig) -> dict[str, Any]:
    """Return our attention fields for a model family whose only attention setting is the number of heads."""
    width = config.d_model // config.n_heads
    return {"n_kv_heads": config.n_heads, "d_head": width, "d_value": width, "attention_scale": width**-0.5}
