"""An encoder–decoder (a translator or T5) with the generation interface of a language model.

x_1 … x_n EOS   ->  encoder: the prompt
BOS             ->  decoder: the generated text follows
"""

from collections.abc import Callable

from torch import nn

from clearformer.generation.decode import DecodeConfig
from clearformer.handles.writer import Writer
from clearformer.text import Tokenizer


class EncoderDecoderWriter(Writer):
    """A generating encoder–decoder. encode(prompt) returns the source, EOS and the decoder's first token."""

    kind = "an encoder–decoder"

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        decode: DecodeConfig,
        name: str,
        encode: Callable[[str], list[int]],
    ) -> None:
        super().__init__(model, tokenizer, decode, name)
        self.encode_prompt = encode

    def encode(self, prompt: str) -> list[int]:
        return self.encode_prompt(prompt)

    def before(self, prompt: list[int]) -> list[int]:
        return []

    def limit(self, prompt: list[int], decode: DecodeConfig) -> int:
        """Return the maximum number of tokens to generate. The prompt uses none of the decoder's positions."""
        return min(decode.max_new, int(self.model.config.max_length))
