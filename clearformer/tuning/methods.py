"""[tuning]: which part of a trained model learns when it goes on from there.

    full       everything                                                 saved whole
    lora       a narrow pair beside some matrices (lora.py)               ─┐
    prefix     keys and values before the real ones (prefix.py)            │ saved by itself: what else the model
    head       the layer that gives the answer                            ─┘ computes with stays in its base

A classification head is new to the model, so it learns with every method.
"""

from typing import Literal

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.tuning.adapters import add_lora, merge, of_lora, targeted
from clearformer.tuning.freeze import freeze, full, head_names, head_only
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import PrefixConfig, add_prefix, bare_layers, fold, is_prefix

NEW = "classifier"  # the child of a model that its base has not

Method = Literal["full", "lora", "prefix", "head"]
SAID = {"full": "all weights", "lora": "low-rank adapters", "prefix": "a learned prefix", "head": "a new head"}
# Peak learning rates for a width of 768, as BERT-base has; Devlin et al. 2019, A.3, tune everything at 2e-5 to 5e-5.
RATES = {"full": 5e-5, "lora": 5e-4, "prefix": 1.5e-2, "head": 2.5e-3}


def rate_for(method: Method, width: int) -> float:
    """The narrower a model, the faster it may learn: these are about the best for MiniLM, of width 384."""
    return RATES[method] * 768 / width


class TuningConfig(Config):
    """[tuning]"""

    method: Method = "full"
    base: str | None = Field(
        None, description="the model that it starts from: a run folder, or a published one, as seen from the run"
    )
    fingerprint: str | None = Field(None, description="of the base's weights, so that no other is taken for it")
    lora: LoraConfig = LoraConfig()
    prefix: PrefixConfig = PrefixConfig()

    def model_post_init(self, _: object) -> None:
        if self.is_partial and self.base is None:
            raise ValueError(f'method = "{self.method}" needs `base`, the model that it starts from')

    @property
    def is_partial(self) -> bool:
        """Whether what learns is saved by itself."""
        return self.method != "full"


def refuse_method(model: nn.Module, config: TuningConfig) -> None:
    """Refuse a method that a model cannot take, without changing it; one on the meta device will do."""
    match config.method:
        case "lora":
            targeted(model, config.lora)
        case "prefix":
            bare_layers(model)
        case "head":
            head_names(model)


def tune(model: nn.Module, config: TuningConfig) -> list[str]:
    """Change a model that computes as its base does so that this method trains it; returns what learns, by name."""
    match config.method:
        case "full":
            return full(model)
        case "head":
            return head_only(model)
        case "lora":
            add_lora(model, config.lora)
            is_own = of_lora("default")
        case "prefix":
            add_prefix(model, config.prefix)
            is_own = is_prefix
    return freeze(model, lambda name: is_own(name) or name.split(".")[0] == NEW)


def settle(model: nn.Module, config: TuningConfig) -> nn.Module:
    """The same model for use: an adapter goes into the weights, a prefix by way of an MLP becomes a plain one."""
    if config.method == "lora":
        return merge(model)
    return fold(model) if config.method == "prefix" else model
