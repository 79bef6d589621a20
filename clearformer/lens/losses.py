"""The loss of a model on one text, for views that need its gradient.

translator         −mean log p(y_t | y_<t, x)             of the translation that it reads
language model     −mean log p(x_t | x_<t)
masked model       −mean log p(x_t | the others)          every seventh token is masked
classifier         −log p(ŷ | x), ŷ the prediction        there is no label; taggers: the mean over tokens
speech             −mean log p(π_t | x)                   of the best path π
others             mean square of the output / 2          regressions, encoders, autoencoders
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError, DataError
from clearformer.handles.handle import Handle
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.translator import Translator
from clearformer.layers.int8 import Int8Linear
from clearformer.lens.reading import Reading

MASK_EVERY = 7  # BERT masks 15 % of the tokens


def loss_of(handle: Handle, reading: Reading) -> tuple[Tensor, str]:
    """Compute the loss, with gradients, and say what it is. Call it inside `differentiable`."""
    batch: Any = reading.batch
    if isinstance(handle, Translator):
        return F.cross_entropy(flat(reading.compute(batch)), batch.labels.flatten(), ignore_index=IGNORE), "translation"
    if isinstance(handle, LanguageModel):
        if batch.tokens.size(1) < 2:
            raise DataError("the text has a single token, so there is no next token to predict", "give a longer text")
        return F.cross_entropy(flat(reading.compute(batch)[:, :-1]), batch.tokens[0, 1:]), "next token"
    if isinstance(handle, MaskedModel):
        places = masked_places(handle, batch.tokens[0].tolist())
        tokens = batch.tokens.clone()
        tokens[0, places] = handle.mask_id
        logits = reading.compute(replace(batch, tokens=tokens))
        return F.cross_entropy(flat(logits[:, places]), batch.tokens[0, places]), "masked tokens"
    output = reading.compute(batch)
    if reading.spell is not None and output.size(-1) > 1:
        logits = flat(output)
        return F.cross_entropy(logits, logits.argmax(-1)), "the prediction"
    return output.float().square().mean() / 2, "half the mean square of the output"


def masked_places(handle: MaskedModel, tokens: list[int]) -> list[int]:
    special = set(handle.tokenizer.special_ids) - {handle.tokenizer.unk_id}
    places = [t for t, token in enumerate(tokens) if token not in special]
    if not places:
        raise DataError("the text has no words to mask", "give a text with at least one word")
    return places[::MASK_EVERY]


def flat(logits: Tensor) -> Tensor:
    return logits.float().flatten(0, -2)


@contextmanager
def differentiable(model: nn.Module) -> Iterator[None]:
    """Compute gradients with respect to every weight inside the block, also of weights that fine-tuning froze."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ConfigError("a model with int8 weights has no gradients", "load it without precision=int8")
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):  # cuDNN has no backward in eval mode
            yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
