"""A model that was opened: recipe, network and tokenizers as one value."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from clearformer.loading.contents import is_pair
from clearformer.prepare import start_id
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer


@dataclass(frozen=True)
class Opened:
    """A model as it lies in a folder, ours or Hugging Face's, before it is made ready for a use."""

    name: str
    recipe: Recipe
    """Of a Hugging Face folder what `import` would write: [origin] and [model], of pictures also [image]."""
    network: nn.Module
    tokenizers: list[Tokenizer]
    """Of the source and of the target, where there are two sides; else one; of pictures none."""
    template: str | None
    """How a conversation is written, if the model was taught to converse."""

    @property
    def config(self) -> Any:
        return self.recipe.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[-1]

    @property
    def opening(self) -> list[int]:
        """What stands before the first token that is written, or before a prompt, which may be nothing."""
        if is_pair(self.recipe):
            return [start_id(self.recipe, self.tokenizers[1])]
        return list(habits(self.recipe, self.tokenizers[0])["opening"])


def habits(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the texts of a training were: documents, begun by BOS and ended by EOS, or pages of a book.

    Documents that were joined begin after the EOS of the one before. A tokenizer from elsewhere may say itself what
    begins a text.
    """
    is_collection = recipe.data is not None and recipe.data.train.is_collection
    first = tokenizer.eos_id if getattr(recipe.data, "joined", False) else tokenizer.bos_id
    return {"opening": tokenizer.opening or ([first] if is_collection else []), "closed": is_collection}
