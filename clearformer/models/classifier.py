"""A classification head on any network that reads text (Devlin et al. 2019, section 4).

    hidden(batch)      h = pool(base(x)): one vector per text, or one vector per position
    head(hidden)       W dropout(h) + b: logits of the classes; a regression has one output, the value

`pooling` chooses the vector that represents a text:

    first     h_1, the first token                                     BERT's CLS
    pooler    tanh(W h_1), trained by next-sentence prediction         BERT
    mean      the mean over real tokens                                Reimers & Gurevych 2019
    max       the maximum of each feature over real tokens             Kim 2014
    last      h_n, the last real token, the only one to see the whole text in a left-to-right model
    ends      →h_n and ←h_1, the last states of a bidirectional recurrent network
    none      no pooling: every position is classified separately
"""

from typing import Any, Literal

import torch
from pydantic import BaseModel, Field, field_validator
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, EncoderBatch, TextBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import Core
from clearformer.layers.init import gaussian
from clearformer.models import MODELS

HEADLESS = {"word_head": False, "next_sentence_head": False, "tied": True, "head_bias": False}  # no head for tokens
TASKS = ("masked-lm", "causal-lm")  # tasks of the networks that can be the base of a classifier

Pooling = Literal["first", "pooler", "mean", "max", "last", "ends", "none"]


class ClassifierConfig(Config):
    """The [model] table of a recipe, for kind = "classifier".

    Its table [model.base] describes an encoder or a decoder, which is built without its heads.
    """

    kind: Literal["classifier"] = "classifier"
    preset: str | None = Field(None, description="name of a preset")
    pooling: Pooling = Field("mean", description="vector that represents a text; none: classify every position")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability on the head's input")
    n_classes: int = Field(2, gt=0, description="number of classes, set from the data in training; 1 for a regression")
    base: Any = Field({"kind": "bert"}, description="table of the network below the head: its kind and sizes")

    @field_validator("base", mode="after")
    @classmethod
    def _resolve(cls, base: Any, info: Any) -> Any:
        """Return the configuration of the base model, with `kind` always set and without heads that predict tokens."""
        table = (
            base.model_dump(exclude_unset=True) | {"kind": vars(base)["kind"]}
            if isinstance(base, BaseModel)
            else dict(base)
        )
        try:
            schema: Any = MODELS.resolve(str(table.setdefault("kind", "bert")))
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if getattr(schema, "task", None) not in TASKS:
            raise ValueError(
                f'kind = "{table["kind"]}" cannot be the base of a classifier; use bert, gpt, rnn-lm, birnn or textcnn'
            )
        fields = schema.Config.model_fields
        if info.data.get("pooling") == "pooler" and "pooler" not in fields:
            raise ValueError(f'kind = "{table["kind"]}" has no pooler; choose another pooling')
        if info.data.get("pooling") == "ends" and table["kind"] != "birnn":
            raise ValueError(f'pooling = "ends" needs kind = "birnn", not "{table["kind"]}"; choose another pooling')
        heads = HEADLESS | {"pooler": info.data.get("pooling") == "pooler"}
        return schema.Config(**table | {key: value for key, value in heads.items() if key in fields})

    @property
    def vocab(self) -> int:
        return int(self.base.vocab)

    @property
    def max_length(self) -> int:
        return int(self.base.max_length)


class Classifier(nn.Module):
    """A text classifier: tokens (B, T) -> logits (B, C), or (B, T, C) if every position is classified."""

    Config = ClassifierConfig
    task = "classification"
    batch_class = EncoderBatch

    def __init__(self, config: ClassifierConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config = config
        self.base: Any = MODELS.resolve(config.base.kind)(config.base, *([] if core is None else [core]))
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.base.d_model, config.n_classes)
        self.classifier.apply(gaussian)

    def forward(self, batch: EncoderBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: EncoderBatch) -> Tensor:
        """Return the input of the head: (B, D), or (B, T, D) if every position is classified."""
        hidden = read(self.base, batch)
        if self.config.pooling == "none":
            return hidden
        return (
            self.base.pooled(hidden)
            if self.config.pooling == "pooler"
            else POOLS[self.config.pooling](hidden, batch.mask)
        )

    def head(self, hidden: Tensor) -> Tensor:
        return self.classifier(self.dropout(hidden))


def read(base: Any, batch: EncoderBatch) -> Tensor:
    """Return the hidden states (B, T, D) of the base model."""
    if base.task == "causal-lm":  # needs no mask: causal positions do not see the padding at the end
        labels = batch.tokens if batch.mask is None else batch.tokens.where(batch.mask, IGNORE)
        batch = TextBatch(batch.tokens, labels, n_tokens=0)  # type: ignore[assignment]
    return base.hidden(batch)


def pool_first(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return hidden[:, 0]


def pool_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean over real tokens, Σ_t m_t h_t / Σ_t m_t: hidden (B, T, D), mask (B, T) -> (B, D)."""
    if mask is None:
        return hidden.mean(1)
    real = mask[:, :, None]
    return hidden.where(real, 0).sum(1) / real.sum(1)


def pool_last(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden[:, -1]
    return hidden[torch.arange(hidden.size(0), device=hidden.device), mask.sum(1) - 1]


def pool_max(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return (hidden if mask is None else hidden.masked_fill(~mask[:, :, None], float("-inf"))).amax(1)


def pool_ends(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Join the last states of the forward and the reverse direction: hidden (B, T, 2D), mask (B, T) -> (B, 2D)."""
    forwards, backwards = hidden.chunk(2, dim=2)
    return torch.cat([pool_last(forwards, mask), pool_first(backwards, mask)], dim=1)


POOLS = {"first": pool_first, "mean": pool_mean, "max": pool_max, "last": pool_last, "ends": pool_ends}
