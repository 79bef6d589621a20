"""Masked language modelling: predict the masked tokens from the tokens around them (Devlin et al. 2019, section 3.1).

    loss = − Σ_m log p(x_m | x̂),    m over the selected positions, x̂ the text with most of them masked

If the batch also has a class for each row (does its second text follow the first?), the next-sentence loss is added.
The paper's loss is the mean over the n selected positions plus the mean over the B rows. Since the total is divided by
n later, it is

    total = Σ tokens + n · (1/B) Σ rows

with the n and B of the whole batch, also where only a part of it is computed at a time.
The language-model head is applied only at the selected positions, about one in seven.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.masking import MaskingConfig
from clearformer.objectives.cross_entropy import Loss, token_loss


class MaskedLMConfig(MaskingConfig):
    """The [objective] table of a recipe: settings of masked language modelling.

    With `next_sentence`, this is the objective of BERT; without it, of RoBERTa. data/masking.py selects the positions.
    """

    kind: str = "masked-lm"
    next_sentence: bool = Field(
        False,
        description="whether to train the next-sentence head as well, which predicts whether the second text follows "
        "the first; if false, the model is built without this head",
    )
    whole_word: bool = Field(False, description="whether to mask all tokens of a word together")


class MaskedLM:
    """For a batch without labels, only the next-sentence loss remains, and n is the number of rows."""

    Config = MaskedLMConfig
    task = "masked-lm"
    chunk: int | None = None  # positions per chunk of head and loss; None computes all logits at once

    def __init__(self, config: MaskedLMConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        hidden = model.hidden(batch)  # type: ignore[operator]
        total, n = hidden.new_zeros(()), len(batch)
        if batch.labels is not None:
            vectors, labels = at_selected(hidden, batch)
            n = len(labels)  # not batch.n_tokens: a compiled objective does not receive it
            total = token_loss(model.head, vectors, labels, chunk=self.chunk)  # type: ignore[arg-type]
        if batch.classes is not None and getattr(model, "next_sentence_head", None) is not None:
            logits = model.next_sentence(model.pooled(hidden))  # type: ignore[operator]  # (B, 2)
            weight = n if batch.labels_per_row is None else batch.labels_per_row * len(batch)
            total = total + weight * cross_entropy(logits, batch.classes, "mean")
        return Loss(total, batch.n_tokens)


def at_selected(hidden: Tensor, batch: EncoderBatch) -> tuple[Tensor, Tensor]:
    """Return the vectors (n, D) of `hidden` (B, T, D) and the labels (n,) at the selected positions.

    The index holds positions, so n is known on the host; a boolean mask would make the host wait for the device.
    """
    assert batch.labels is not None
    return hidden.flatten(0, 1)[batch.labelled], batch.labels.flatten()[batch.labelled]


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """Compute the cross-entropy in float32 or better: logits (n, V), labels (n,) -> ()."""
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), labels, reduction=reduction)
