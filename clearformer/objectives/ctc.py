"""Connectionist temporal classification: learn transcripts without knowing when each token was spoken.

    p(y | x) = Σ_π Π_t p(π_t | x)        over all paths π that collapse to y               Graves et al. 2006
    loss = − log p(y | x)

A path has one token, or the blank, for each frame. It collapses by merging repeats, then removing blanks: aa-ab- → aab.
A recording too short for its transcript has no path; its loss counts as 0 instead of infinity.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, SoundBatch
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.objectives.cross_entropy import Loss


class CTCConfig(Config):
    """The [objective] table of a recipe for CTC, which has no settings."""

    kind: str = "ctc"


class CTC:
    """Samples are converted to log-mel frames here, and augmented in training. Batches of frames are used unchanged."""

    Config = CTCConfig
    task = "ctc"
    tables = ("sound",)

    def __init__(self, config: CTCConfig, sound: SoundConfig | None = None) -> None:
        self.config, self.frontend = config, SoundFrontend(sound or SoundConfig())

    def __call__(self, model: nn.Module, batch: SoundBatch) -> Loss:
        batch = self.frontend.train(model.training)(batch)
        assert batch.labels is not None, "training needs transcripts"
        logits = model.head(model.hidden(batch))  # type: ignore[operator]
        return Loss(ctc_loss(logits, model.shortened(batch.lengths), batch.labels), batch.n_tokens)  # type: ignore[operator]


def ctc_loss(logits: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    """Sum the loss over a batch.

    logits (B, T, V + 1) with the blank last, lengths (B,) in frames, labels (B, U) padded with IGNORE -> ()
    """
    logits32 = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_probs = logits32.log_softmax(-1).transpose(0, 1)  # (T, B, V + 1)
    if torch.are_deterministic_algorithms_enabled():  # the gradient on CUDA is not deterministic
        log_probs, lengths, labels = log_probs.cpu(), lengths.cpu(), labels.cpu()
    is_token = labels != IGNORE
    return F.ctc_loss(
        log_probs,
        labels.where(is_token, 0),
        lengths,
        is_token.sum(1),
        blank=log_probs.size(-1) - 1,
        reduction="sum",
        zero_infinity=True,
    ).to(logits.device)
