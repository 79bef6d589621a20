"""Connectionist temporal classification: what was said, whenever it was said (Graves et al. 2006).

    p(y | x) = Σ_π Π_t p(π_t | x)        over all paths π, a letter or the blank for each moment, that read as y
    loss = − log p(y | x)                a path reads as y once repeats are dropped, and then blanks: aa-ab- → aab

A recording too short for its transcript has no path, and teaches nothing rather than infinitely much.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, SoundBatch
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.objectives.cross_entropy import Loss


class CTCConfig(Config):
    """[objective]"""

    kind: str = "ctc"


class CTC:
    """Sounds become frames here, distorted while the model trains; frames are taken as they are."""

    Config = CTCConfig
    task = "ctc"
    tables = ("sound",)

    def __init__(self, config: CTCConfig, sound: SoundConfig | None = None) -> None:
        self.config, self.ear = config, SoundFrontend(sound or SoundConfig())

    def __call__(self, model: nn.Module, batch: SoundBatch) -> Loss:
        batch = self.ear.train(model.training)(batch)
        assert batch.labels is not None, "a batch to learn from says what is said"
        logits = model.head(model.hidden(batch))  # type: ignore[operator]
        return Loss(ctc_loss(logits, model.shortened(batch.lengths), batch.labels), batch.n_tokens)  # type: ignore[operator]


def ctc_loss(logits: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """logits (B, T, V + 1), of which row i has lengths[i] moments; labels (B, U), IGNORE after the last -> the sum."""
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1).transpose(0, 1)  # (T, B, V+1)
    if torch.are_deterministic_algorithms_enabled():  # of which CUDA's gradient is none
        scores, lengths, labels = scores.cpu(), lengths.cpu(), labels.cpu()
    said = labels != IGNORE
    return F.ctc_loss(
        scores,
        labels.where(said, 0),
        lengths,
        said.sum(1),
        blank=scores.size(-1) - 1,
        reduction="sum",
        zero_infinity=True,
    ).to(logits.device)
