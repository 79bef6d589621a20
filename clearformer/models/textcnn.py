"""A convolution over stacked word vectors, as over an image one word wide (Kim 2014).

    x = E[w_1] … E[w_T] stacked                     an image of T rows, E columns
    h_t,f = relu(Σ_i <F_f,i, x_t+i> + b_f)          a filter f of k words, at every place: k = 3, 4, 5 side by side
    c_f = max_t h_t,f                               pooling = "max": did f find its phrase, wherever it stood?

It sees phrases and not their order in the text: "In 2017, I went to IIT" and "I went to IIT in 2017" look alike to it
only as far as their phrases do, which is where the notes turn to recurrence.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.models.bert import there


class TextCNNConfig(Config):
    """[model], or the [model.base] of a classifier, of kind "textcnn". The defaults are Kim's sizes."""

    kind: Literal["textcnn"] = "textcnn"
    preset: str | None = None
    vocab: int = Field(30000, gt=0, description="entries; taken from the tokenizer when training")
    widths: tuple[PositiveInt, ...] = Field((3, 4, 5), min_length=1, description="words that a filter sees")
    d_model: int = Field(300, gt=0, description="filters of all widths together")
    d_embedding: int = Field(300, gt=0)
    dropout: float = Field(0.5, ge=0, lt=1, description="on embeddings")
    word_head: bool = Field(True, description="says which word is missing; the base of a classifier does not")
    max_length: int = Field(512, gt=0, description="tokens; longer texts are cut")

    def model_post_init(self, _: object) -> None:
        if self.d_model % len(self.widths):
            raise ValueError(f"d_model = {self.d_model} must be a multiple of the {len(self.widths)} widths")


class TextCNN(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or hidden (B, T, D) where there is no word head."""

    Config = TextCNNConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    pooling = "max"
    """What speaks for a text, unless the recipe says otherwise."""

    def __init__(self, config: TextCNNConfig) -> None:
        super().__init__()
        self.config, D, E = config, config.d_model, config.d_embedding
        self.embedding = TokenEmbedding(config.vocab, E, scale=False)
        self.filters = nn.ModuleList(nn.Conv1d(E, D // len(config.widths), width) for width in config.widths)
        self.word_head = Unembedding(D, config.vocab, bias=True) if config.word_head else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: EncoderBatch) -> Tensor:
        hidden = self.hidden(batch)
        return hidden if self.word_head is None else self.head(hidden)

    def hidden(self, batch: EncoderBatch) -> Tensor:
        """What each filter finds around each word: (B, T, D). Beyond both ends of a text stand zeros."""
        x = self.dropout(self.embedding(batch.tokens)).mT  # (B, E, T)
        if batch.mask is not None:
            x = x * batch.mask[:, None]
        found = [f(F.pad(x, ((width - 1) // 2, width // 2))) for f, width in zip(self.filters, self.config.widths)]
        return F.relu(torch.cat(found, dim=1).mT)

    def head(self, hidden: Tensor) -> Tensor:
        """hidden (…, D) -> scores for the word of each position (…, V)."""
        return there(self.word_head, "word_head")(hidden)
