"""Hide some words of a text, to be said again by a model that sees the others (Devlin et al. 2019, section 3.1).

    15 % of the tokens are chosen, drawn anew each time a text is seen (Liu et al. 2019); of those
    80 %  become the mask token
    10 %  become a token drawn at random            so that no word can be trusted to be the right one
    10 %  stay                                      since the texts of later tasks have no mask token at all

What is hidden is a function of the generator alone, so that an epoch can be repeated.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.data.batch import IGNORE


class MaskingConfig(Config):
    """[masking]"""

    rate: float = Field(0.15, gt=0, lt=1, description="share of the tokens that are chosen, on average")
    masked: float = Field(0.8, ge=0, le=1, description="of those, the share that becomes the mask token")
    random: float = Field(0.1, ge=0, le=1, description="of those, the share that becomes any token; the rest stays")

    def model_post_init(self, _: object) -> None:
        if self.masked + self.random > 1:
            raise ValueError(f"masked = {self.masked} and random = {self.random} are more than all")


def mask_tokens(
    tokens: np.ndarray,
    config: MaskingConfig,
    rng: np.random.Generator,
    mask_id: int,
    vocab: int,
    specials: Sequence[int],
    words: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """tokens (B, T) -> the same with some hidden, and labels (B, T): what stood at those chosen, IGNORE elsewhere.

    specials: ids that are never chosen and never drawn, padding among them; `mask_id` is one without being named.
    words (B, T), numbers below T: tokens of a row with the same number are chosen together or not at all, as BERT's
    later "whole word" models want; each of them still becomes mask, any token or itself by its own luck.
    """
    reserved = np.union1d(np.asarray(specials, "int64"), [mask_id])
    luck, fate = rng.random(tokens.shape), rng.random(tokens.shape)
    if words is not None:
        luck = np.take_along_axis(luck, words, axis=1)
    chosen = (luck < config.rate) & ~np.isin(tokens, reserved)
    drawn = rng.choice(np.setdiff1d(np.arange(vocab), reserved), tokens.shape)
    is_masked, is_drawn = fate < config.masked, (fate >= config.masked) & (fate < config.masked + config.random)
    hidden = np.where(chosen & is_masked, mask_id, np.where(chosen & is_drawn, drawn, tokens))
    return hidden, np.where(chosen, tokens, IGNORE)
