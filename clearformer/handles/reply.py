"""A translator, or a T5, as a writer: what it is asked goes to the encoder, what it writes stands by itself.

x_1 … x_n EOS   ->  encoder
BOS             ->  decoder, which goes on from there as a language model does from its prompt
"""

from clearformer.generation.decode import DecodeConfig
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.translator import Translator


class Reply(LanguageModel):
    """The same model; `generate` and `stream` sample, stop and stream as those of a language model do."""

    continues = False

    def __init__(self, translator: Translator) -> None:
        super().__init__(translator.model, translator.target_tokenizer, translator.decode, translator.name)
        self.translator = translator

    def encode(self, prompt: str) -> list[int]:
        """The source and its EOS, which the encoder reads, and what the decoder begins with."""
        [ids] = self.translator.encode_sources([prompt])
        return [*ids, self.translator.source_tokenizer.eos_id, self.translator.start_id]

    def before(self, prompt: list[int]) -> list[int]:
        return []

    def limit(self, prompt: list[int], decode: DecodeConfig) -> int:
        """The decoder's positions are its own."""
        return min(decode.max_new, int(self.model.config.max_length))
