"""Mask some tokens of a text for a model to predict from the others (Devlin et al. 2019, section 3.1).

    15 % of the tokens are chosen, differently each time a text is seen (Liu et al. 2019); of these
    80 %  become the mask token
    10 %  become a random token                     so that the model cannot rely on any token being correct
    10 %  stay unchanged                            because the texts of later tasks contain no mask token

The result depends only on the tokens and the generator, so that an epoch can be repeated. BERT masked its texts in
advance, in ten versions; `fixed_masks` does the same, with a generator for each row and version (data/row_draws.py). As
BERT's files, these versions serve all runs on a text, whatever their seeds.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.data.batch import IGNORE
from clearformer.data.row_draws import Draws


class MaskingConfig(Config):
    """Settings of masking, in the [objective] table of a recipe for masked language modelling."""

    rate: float = Field(0.15, gt=0, lt=1, description="probability that a token is chosen for prediction")
    masked: float = Field(0.8, ge=0, le=1, description="fraction of the chosen tokens replaced by the mask token")
    random: float = Field(
        0.1,
        ge=0,
        le=1,
        description="fraction of the chosen tokens replaced by a random token; the rest stays unchanged",
    )
    fixed_masks: int | None = Field(
        None,
        ge=1,
        description="number of masked versions of each row, which are the same in every run on this text; each epoch "
        "takes one of them, by train.seed. 10 in BERT; default: other masks in every epoch, as in RoBERTa",
    )

    def model_post_init(self, _: object) -> None:
        if self.masked + self.random > 1:
            raise ValueError(f"masked = {self.masked} and random = {self.random} add up to more than 1")


def mask_tokens(
    tokens: np.ndarray,
    config: MaskingConfig,
    rng: Draws,
    mask_id: int,
    vocab: int,
    specials: Sequence[int],
    words: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mask tokens (B, T). Returns the masked tokens, and labels (B, T): the original at chosen positions, else IGNORE.

    specials: ids that are neither chosen nor drawn, padding included; `mask_id` is always one of them.
    words (B, T), integers below T: tokens of a row with the same number are chosen together or not at all, as in BERT's
    "whole word masking" models; the replacement is still drawn for each token independently.
    """
    reserved = np.union1d(np.asarray(specials, "int64"), [mask_id])
    selection, replacement = rng.random(tokens.shape), rng.random(tokens.shape)
    if words is not None:
        selection = np.take_along_axis(selection, words, axis=1)
    chosen = (selection < config.rate) & ~np.isin(tokens, reserved)
    drawn = rng.choice(np.setdiff1d(np.arange(vocab), reserved), tokens.shape)
    is_masked = replacement < config.masked
    is_drawn = (replacement >= config.masked) & (replacement < config.masked + config.random)
    masked = np.where(chosen & is_masked, mask_id, np.where(chosen & is_drawn, drawn, tokens))
    return masked, np.where(chosen, tokens, IGNORE)
