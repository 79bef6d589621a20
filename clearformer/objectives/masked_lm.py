"""Masked language modelling: say the words that were hidden, from those around them (Devlin et al. 2019, section 3.1).

    loss = − Σ_m log p(x_m | x̂),    m over the positions that are asked for, x̂ the text with some of them hidden

When a batch also says which rows' second text follows the first, the next-sentence loss is added. After the division
by the n positions asked for, the sum is the paper's: mean over words + mean over the batch's B rows. So here

    total = Σ words + n · (1/B) Σ rows

The head is computed only where something is asked, about one position in seven.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.masking import MaskingConfig
from clearformer.objectives.cross_entropy import Loss


class MaskedLMConfig(MaskingConfig):
    """[objective]: BERT's, with the next sentence; or RoBERTa's, without. What is hidden, data/masking.py says."""

    kind: str = "masked-lm"
    next_sentence: bool = Field(
        False, description="ask whether the second text follows the first, too; if not, the head for it is not built"
    )
    whole_word: bool = Field(False, description="hide all the pieces of a word, or none")


class MaskedLM:
    """Of a batch without labels only the next-sentence loss is left, and n is the number of its rows."""

    Config = MaskedLMConfig
    task = "masked-lm"

    def __init__(self, config: MaskedLMConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        hidden = model.hidden(batch)  # type: ignore[operator]
        total, n = hidden.new_zeros(()), len(batch)
        if batch.labels is not None:
            vectors, labels = asked_for(hidden, batch)
            n = len(labels)  # not batch.n_tokens, which a compiled objective is not told
            total = cross_entropy(model.head(vectors), labels, "sum")  # type: ignore[operator]
        if batch.classes is not None and getattr(model, "next_sentence_head", None) is not None:
            scores = model.next_sentence(model.pooled(hidden))  # type: ignore[operator]  # (B, 2)
            total = total + n * cross_entropy(scores, batch.classes, "mean")
        return Loss(total, batch.n_tokens)


def asked_for(hidden: Tensor, batch: EncoderBatch) -> tuple[Tensor, Tensor]:
    """hidden (B, T, D) -> (n, D) where something is asked, and what belongs there (n,).

    By an index whose length the host knows: to learn how many places a mask has, it would wait for the device.
    """
    assert batch.labels is not None
    return hidden.flatten(0, 1)[batch.asked], batch.labels.flatten()[batch.asked]


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """logits (n, V), labels (n,) -> (), in float32 at least."""
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), labels, reduction=reduction)
