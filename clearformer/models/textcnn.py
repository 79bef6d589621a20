"""A convolutional network over the sequence of word vectors (Kim 2014).

    x = E[w_1] … E[w_T] stacked                     a matrix of T rows and E columns
    h_t,f = relu(Σ_i <F_f,i, x_t+i> + b_f)          filter f over k tokens, at every position; k = 3, 4, 5 in parallel
    c_f = max_t h_t,f                               pooling = "max": does the phrase of f occur anywhere?

The network sees phrases but not their order in the text: "In 2017, I went to IIT" and "I went to IIT in 2017" look
similar to it only insofar as they contain the same phrases. At this point, the course notes turn to recurrence.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.models.bert import require_head


class TextCNNConfig(Config):
    """The [model] table of a recipe, or [model.base] of a classifier, for kind = "textcnn".

    The defaults are the sizes of Kim 2014.
    """

    kind: Literal["textcnn"] = "textcnn"
    preset: str | None = Field(None, description="name of a preset")
    vocab: int = Field(30000, gt=0, description="vocabulary size, set from the tokenizer in training")
    widths: tuple[PositiveInt, ...] = Field((3, 4, 5), min_length=1, description="filter sizes in tokens")
    d_model: int = Field(300, gt=0, description="total number of filters of all sizes")
    d_embedding: int = Field(300, gt=0, description="width of the embeddings")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout probability on embeddings")
    word_head: bool = Field(True, description="whether there is a head that predicts tokens; false in a classifier")
    max_length: int = Field(512, gt=0, description="max length of a text in tokens; longer texts are truncated")

    def model_post_init(self, _: object) -> None:
        if self.d_model % len(self.widths):
            raise ValueError(f"d_model = {self.d_model} must be a multiple of {len(self.widths)}, the number of widths")


class TextCNN(nn.Module):
    """A CNN for text: tokens (B, T) -> logits (B, T, V), or hidden states (B, T, D) if it has no word head."""

    Config = TextCNNConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    pooling = "max"
    """The default pooling of a classifier on this network."""

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
        """Return the output of each filter at each token, (B, T, D). Both ends of a text are padded with zeros."""
        x = self.dropout(self.embedding(batch.tokens)).mT  # (B, E, T)
        if batch.mask is not None:
            x = x * batch.mask[:, None]
        maps = [f(F.pad(x, ((width - 1) // 2, width // 2))) for f, width in zip(self.filters, self.config.widths)]
        return F.relu(torch.cat(maps, dim=1).mT)

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits (…, V) of the token at each position, from hidden states (…, D)."""
        return require_head(self.word_head, "word_head")(hidden)
