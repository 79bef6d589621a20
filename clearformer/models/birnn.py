"""A bidirectional recurrent network, which reads each word in the context of the words before and after it.

    h_t = [→h_t; ←h_t]                  "Teddy bears are on sale", "Teddy Roosevelt was a president"
    logits_t = V h_t + c                the word head: which token is, or should be, at each position

With a classification head on top (models/classifier.py), it is the many-to-one network of the course notes.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.layers.cells import CellName
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.recurrent import recurrent
from clearformer.models.bert import require_head


class BiRNNConfig(Config):
    """The [model] table of a recipe, or [model.base] of a classifier, for kind = "birnn"."""

    kind: Literal["birnn"] = "birnn"
    preset: str | None = Field(None, description="name of a preset, such as bigru")
    vocab: int = Field(30000, gt=0, description="vocabulary size, set from the tokenizer in training")
    cell: CellName = Field("gru", description="recurrent cell; layers/cells.py has the equations")
    n_layers: int = Field(1, gt=0, description="number of recurrent layers")
    d_model: int = Field(256, gt=0, multiple_of=2, description="width of both directions together, an even number")
    d_embedding: int = Field(128, gt=0, description="width of the embeddings")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout probability on embeddings and between layers")
    word_head: bool = Field(True, description="whether there is a head that predicts tokens; false in a classifier")
    max_length: int = Field(512, gt=0, description="max length of a text in tokens; longer texts are truncated")


class BiRNN(nn.Module):
    """A bidirectional RNN: tokens (B, T) -> logits (B, T, V), or hidden states (B, T, D) if it has no word head."""

    Config = BiRNNConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    pooling = "max"
    """The default pooling of a classifier on this network."""

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
        """Return the output of the last layer, (B, T, D), zero at padding.

        The two texts of a pair are distinguished only by the special token between them.
        """
        lengths = None if batch.mask is None else batch.mask.sum(1)
        return self.layers.outputs(self.dropout(self.embedding(batch.tokens)), lengths)

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits (…, V) of the token at each position, from hidden states (…, D)."""
        return require_head(self.word_head, "word_head")(hidden)
