"""The [tuning] table of a recipe: which weights of a trained model are fine-tuned.

    full       all weights                                          the whole model is saved
    lora       low-rank updates of some matrices (lora.py)          ─┐
    prefix     learned keys and values in attention (prefix.py)      │ only the trained weights are saved; the others
    head       the output layer                                     ─┘ are read from the base model

A classification head is new to the model, so every method trains it, and with it a pooler that the base model lacks.
"""

from typing import Literal

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.tuning.adapters import add_lora, merge, of_lora, targeted
from clearformer.tuning.freeze import freeze, full, head_names
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import PrefixConfig, add_prefix, bare_layers, fold, is_prefix

NEW_HEAD = "classifier"  # the child module that the base model does not have

Method = Literal["full", "lora", "prefix", "head"]
METHOD_NAMES = {
    "full": "full fine-tuning",
    "lora": "LoRA fine-tuning",
    "prefix": "prefix tuning",
    "head": "head-only fine-tuning",
}
# Peak learning rates for a width of 768 (BERT-base). Devlin et al. 2019, A.3, fine-tune all weights at 2e-5 to 5e-5.
LEARNING_RATES = {"full": 5e-5, "lora": 5e-4, "prefix": 1.5e-2, "head": 2.5e-3}


def rate_for(method: Method, width: int) -> float:
    """Return the peak learning rate, inversely proportional to the width. It suits MiniLM (width 384) well."""
    return LEARNING_RATES[method] * 768 / width


class TuningConfig(Config):
    """The [tuning] table of a recipe: how a trained model is fine-tuned."""

    method: Method = "full"
    base: str | None = Field(
        None, description="model to start from: a folder, relative to the run folder, or the name of a bundled model"
    )
    fingerprint: str | None = Field(
        None, description="fingerprint of the base model's weights; a base model with other weights is refused"
    )
    new: tuple[str, ...] = Field(
        (), description="modules that the base model lacks, such as base.pooler; every method trains them"
    )
    lora: LoraConfig = LoraConfig()
    prefix: PrefixConfig = PrefixConfig()

    def model_post_init(self, _: object) -> None:
        if self.is_partial and self.base is None:
            raise ValueError(f'method = "{self.method}" needs `base`, the model to start from')

    @property
    def is_partial(self) -> bool:
        """Whether only the trained weights are saved, without the frozen weights of the base model."""
        return self.method != "full"


def refuse_method(model: nn.Module, config: TuningConfig) -> None:
    """Raise an error if a model does not support the method. The model is not changed and may be on the meta device."""
    match config.method:
        case "lora":
            targeted(model, config.lora)
        case "prefix":
            bare_layers(model)
        case "head":
            head_names(model)


def tune(model: nn.Module, config: TuningConfig) -> list[str]:
    """Prepare a model for this method, once base weights are loaded. Returns the names of the parameters to train."""
    match config.method:
        case "full":
            return full(model)
        case "head":
            heads = head_names(model)
            return freeze(model, lambda name: name.split(".")[0] in heads or is_new(name, config))
        case "lora":
            add_lora(model, config.lora)
            is_added = of_lora("default")
        case "prefix":
            add_prefix(model, config.prefix)
            is_added = is_prefix
    return freeze(model, lambda name: is_added(name) or is_new(name, config))


def is_new(name: str, config: TuningConfig) -> bool:
    """Whether a parameter belongs to a module that the base model does not have."""
    return name.startswith(tuple(f"{module}." for module in (NEW_HEAD, *config.new)))


def for_inference(model: nn.Module, config: TuningConfig) -> nn.Module:
    """Speed up a fine-tuned model: merge its adapter, or replace the MLP of its prefix by the vectors it computes."""
    if config.method == "lora":
        return merge(model)
    return fold(model) if config.method == "prefix" else model
