"""A classifier: any network that reads text, and a matrix that judges what it has read (Devlin et al. 2019, section 4).

    hidden(batch)      h = pool(base(x)): one vector for each text, or one for each position
    head(hidden)       W dropout(h) + b: a score for every class; a regression has one, its value

What speaks for a text is for `pooling` to say:

    first     h_1, the token that opens the text                       BERT's CLS
    pooler    tanh(W h_1), as the base learnt it with next sentences   BERT
    mean      the mean over real tokens                                Reimers & Gurevych 2019
    max       of each feature the largest, over real tokens            Kim 2014
    last      h_n, the last real token, the only one that has read all when reading goes from left to right
    ends      →h_n and ←h_1, the last states of a network that reads both ways
    none      nothing does: every position is judged by itself
"""

from typing import Any, Literal

import torch
from pydantic import BaseModel, Field, field_validator
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch, TextBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import Core
from clearformer.layers.init import gaussian
from clearformer.models import MODELS

HEADLESS = {"word_head": False, "next_sentence_head": False, "tied": True, "head_bias": False}  # no words are said
TASKS = ("masked-lm", "causal-lm")  # of the networks that can be read from

Pooling = Literal["first", "pooler", "mean", "max", "last", "ends", "none"]


class ClassifierConfig(Config):
    """[model] of kind "classifier"; [model.base] is the [model] of an encoder or a decoder, its heads left out."""

    kind: Literal["classifier"] = "classifier"
    preset: str | None = None
    pooling: Pooling = "mean"
    dropout: float = Field(0.1, ge=0, lt=1, description="on what the head reads")
    n_classes: int = Field(2, gt=0, description="taken from the data when training; 1 is a regression")
    base: Any = Field({"kind": "bert"}, description="the network that reads: its kind and sizes")

    @field_validator("base", mode="after")
    @classmethod
    def _resolve(cls, base: Any, info: Any) -> Any:
        """The base's own configuration. Its kind is always written out, and what would say words is left out."""
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
            raise ValueError(f"a {table['kind']} cannot be read from; choose a bert, a gpt, a birnn or a textcnn")
        known = schema.Config.model_fields
        if info.data.get("pooling") == "pooler" and "pooler" not in known:
            raise ValueError(f"a {table['kind']} has no pooler; choose another pooling")
        if info.data.get("pooling") == "ends" and table["kind"] != "birnn":
            raise ValueError(f"a {table['kind']} does not read both ways apart; choose another pooling")
        wanted = HEADLESS | {"pooler": info.data.get("pooling") == "pooler"}
        return schema.Config(**table | {key: value for key, value in wanted.items() if key in known})

    @property
    def vocab(self) -> int:
        return int(self.base.vocab)

    @property
    def max_length(self) -> int:
        return int(self.base.max_length)


class Classifier(nn.Module):
    """tokens (B, T) -> scores (B, C), or (B, T, C) where every position is judged."""

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
        """What is judged: (B, D), or (B, T, D) where every position is."""
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
    """The last layer (B, T, D) of a network that reads whole texts, or of one that reads from left to right."""
    if base.task == "causal-lm":  # what a causal position cannot see, padding at the end, cannot matter
        batch = TextBatch(batch.tokens, batch.tokens, n_tokens=0)  # type: ignore[assignment]
    return base.hidden(batch)


def pool_first(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return hidden[:, 0]


def pool_mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Σ_t m_t h_t / Σ_t m_t, m_t = 1 at real tokens: hidden (B, T, D), mask (B, T) -> (B, D)."""
    if mask is None:
        return hidden.mean(1)
    real = mask[:, :, None]
    return hidden.where(real, 0).sum(1) / real.sum(1)


def pool_last(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden[:, -1]
    return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]


def pool_max(hidden: Tensor, mask: Tensor | None) -> Tensor:
    return (hidden if mask is None else hidden.masked_fill(~mask[:, :, None], float("-inf"))).amax(1)


def pool_ends(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """hidden (B, T, 2D): forwards, then backwards."""
    forwards, backwards = hidden.chunk(2, dim=2)
    return torch.cat([pool_last(forwards, mask), pool_first(backwards, mask)], dim=1)


POOLS = {"first": pool_first, "mean": pool_mean, "max": pool_max, "last": pool_last, "ends": pool_ends}
