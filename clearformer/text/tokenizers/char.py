"""One token per character (Unicode code point), the space included: nothing to learn but which characters exist.

    "a cat"  ->  a ▁ c a t

A Hindi syllable is several code points, so several tokens.
"""

from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

from clearformer.text.config import TextConfig
from clearformer.text.tokenizers.word import frequent


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    character = Regex(r"[\s\S]" if config.whitespace == "keep" else ".")  # the dot matches no line feed
    tokenizer = frequent(lines, config, pre_tokenizers.Split(character, "isolated"), progress)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
