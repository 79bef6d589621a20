"""A translator or a T5 that generates as a language model does: the prompt goes to the encoder.

x_1 … x_n EOS   ->  encoder
BOS             ->  decoder, which continues from there
"""

from collections.abc import Callable

from torch import nn

from clearformer.generation.decode import DecodeConfig
from clearformer.handles.writer import Writer
from clearformer.text import Tokenizer


class EncoderDecoderWriter(Writer):
    """`encode` gives the source with its EOS, for the encoder, and the decoder's first token."""

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
        """The decoder has positions of its own, which the prompt does not use up."""
        return min(decode.max_new, int(self.model.config.max_length))
