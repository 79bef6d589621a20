"""One token per character (Unicode code point), including the space. Training only collects the characters.

    "a cat"  ->  a ▁ c a t

A Hindi syllable has several code points, and so several tokens.
"""

from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

from clearformer.text.config import TextConfig
from clearformer.text.tokenizers.word import frequent


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    character = Regex(r"[\s\S]" if config.whitespace == "keep" else ".")  # the dot does not match line feeds
    tokenizer = frequent(lines, config, pre_tokenizers.Split(character, "isolated"), progress)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
