"""Two columns of settings, theirs and ours, as interop/names.py has of tensors.

    theirs           ours
    n_embd           d_model
    resid_pdrop      dropout
    embd_pdrop       dropout         two of theirs may be one of ours, where they agree

What one side has no word for is refused; only a dropout, which a trained model does not use, may stay behind.
"""

from collections.abc import Mapping
from typing import Any

from clearformer.errors import CheckpointError
from clearformer.models.stack import StackConfig

NORM_EPS = {"layer": 1e-5, "rms": 1e-6}  # where the configuration gives none


def our_settings(theirs: Mapping[str, Any], table: Mapping[str, str], where: str) -> dict[str, Any]:
    """What config.json says, by our names."""
    ours: dict[str, Any] = {}
    for name, own in table.items():
        if theirs.get(name) is None:
            raise CheckpointError(f"{where} lacks `{name}`", "is it the whole configuration of a model?")
        if ours.setdefault(own, theirs[name]) != theirs[name]:
            first = next(other for other in table if table[other] == own)
            raise CheckpointError(
                f"{where}: `{name}` is {theirs[name]}, but `{first}` is {theirs[first]}",
                "both must agree to be imported",
            )
    return ours


def our_word(word: str, words: Mapping[str, str], where: str) -> str:
    """Their word for an activation in ours."""
    if word not in words:
        raise CheckpointError(f"{where}: unknown activation `{word}`", f"known are: {', '.join(words)}")
    return words[word]


def their_word(word: str, words: Mapping[str, str], model: str) -> str:
    """The way back; of two names the first."""
    back: dict[str, str] = {}
    for name, own in words.items():
        back.setdefault(own, name)
    if word not in back:
        raise CheckpointError(f"{model} knows no model with activation = {word}", f"known are: {', '.join(back)}")
    return back[word]


def insist(theirs: Mapping[str, Any], switches: Mapping[str, Any], where: str) -> None:
    """Switches of theirs that must stand as our model does; one that is absent does."""
    for name, value in switches.items():
        if theirs.get(name, value) != value:
            raise CheckpointError(
                f"{where}: `{name}` is {theirs[name]}", f"only models with {name} = {value} can be imported"
            )


def fit(fields: Mapping[str, Any], fixed: Mapping[str, Any], model: str) -> None:
    """Fields of ours of which the other side has no choice."""
    for name, value in fixed.items():
        own = {key: fields[name][key] for key in value} if isinstance(value, dict) else fields[name]
        if own != value:
            raise CheckpointError(f"{model} knows no model with {name} = {own}", f"it must be {value}")


def written_out(config: StackConfig) -> dict[str, Any]:
    """Every field of ours, with those that were left open filled in."""
    return {
        **config.model_dump(),
        "final_norm": config.has_final_norm,
        "n_kv_heads": config.n_kv_heads or config.n_heads,
        "d_head": config.head_width,
        "norm_eps": config.norm_eps or NORM_EPS[config.norm],
        "attention_scale": config.attention_scale or config.head_width**-0.5,
    }


def plain_heads(config: StackConfig) -> dict[str, Any]:
    """The heads of a model that has no word for them but their number."""
    width = config.d_model // config.n_heads
    return {"n_kv_heads": config.n_heads, "d_head": width, "attention_scale": width**-0.5}
