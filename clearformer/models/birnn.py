"""A bidirectional recurrent network that reads a text whole: what a word means may depend on what follows it.

    h_t = [→h_t; ←h_t]                  "Teddy bears are on sale", "Teddy Roosevelt was a president"
    logits_t = V h_t + c                which word stands, or should stand, at each position: the word head

With a classifier on it (models/classifier.py), it is the notes' many-to-one network.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.layers.cells import CellName
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.recurrent import recurrent
from clearformer.models.bert import there


class BiRNNConfig(Config):
    """[model], or the [model.base] of a classifier, of kind "birnn"."""

    kind: Literal["birnn"] = "birnn"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as bigru")
    vocab: int = Field(30000, gt=0, description="entries; taken from the tokenizer when training")
    cell: CellName = Field("gru", description="its equation: layers/cells.py")
    n_layers: int = Field(1, gt=0)
    d_model: int = Field(256, gt=0, multiple_of=2, description="of both directions together")
    d_embedding: int = Field(128, gt=0)
    dropout: float = Field(0.5, ge=0, lt=1, description="on embeddings and between layers")
    word_head: bool = Field(True, description="says which word is missing; the base of a classifier does not")
    max_length: int = Field(512, gt=0, description="tokens; longer texts are cut")


class BiRNN(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or hidden (B, T, D) where there is no word head."""

    Config = BiRNNConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    pooling = "max"
    """What speaks for a text, unless the recipe says otherwise."""

    def __init__(self, config: BiRNNConfig) -> None:
        super().__init__()
        self.config, D, E = config, config.d_model, config.d_embedding
        self.embedding = TokenEmbedding(config.vocab, E, scale=False)
        self.layers = recurrent(config.cell, E, D // 2, config.n_layers, bidirectional=True, dropout=config.dropout)
        self.word_head = Unembedding(D, config.vocab, bias=True) if config.word_head else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: EncoderBatch) -> Tensor:
        hidden = self.hidden(batch)
        return hidden if self.word_head is None else self.head(hidden)

    def hidden(self, batch: EncoderBatch) -> Tensor:
        """The last layer (B, T, D), zero at padding. Of a pair only the token between its texts tells them apart."""
        lengths = None if batch.mask is None else batch.mask.sum(1)
        return self.layers.outputs(self.dropout(self.embedding(batch.tokens)), lengths)

    def head(self, hidden: Tensor) -> Tensor:
        """hidden (…, D) -> scores for the word of each position (…, V)."""
        return there(self.word_head, "word_head")(hidden)
