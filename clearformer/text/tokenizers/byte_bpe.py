"""Byte-pair encoding on UTF-8 bytes (Radford et al. 2019): 256 bytes cover every text, so nothing is unknown.

    "naïve 🙂"  ->  " na" "ï" "ve"  " " f0 9f 99 82      (single bytes until merges join them)

Words are split as in `bpe` and not by GPT-2's rule, which separates Hindi vowel signs from their letters. With
whitespace = "keep", a run of white space is also a word, except for its last space, which belongs to the next word:

    "if x:\\n\\n    y"  ->  "if" " x" ":" "\\n\\n   " " y"
"""

from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from clearformer.errors import TokenizerError
from clearformer.text.config import TextConfig
from clearformer.text.normalize import composer, normalizer
from clearformer.text.tokenizers.bpe import WORD
from clearformer.wording import count

WORD_OR_SPACE = Regex(r" ?[\p{L}\p{M}\x{200C}\x{200D}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]|\s+(?= \S)|\s+")
"""`WORD`, or a run of white space without the space that belongs to the next word."""


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    smallest = len(config.specials) + 256
    if config.vocab_size < smallest:
        raise TokenizerError(
            f"vocab_size = {config.vocab_size} is too small for the 256 bytes of byte-bpe and "
            f"{count(len(config.specials), 'special token')}",
            f"set text.vocab_size to at least {smallest}",
        )
    tokenizer = Tokenizer(models.BPE())
    if config.whitespace == "keep":
        word, tokenizer.normalizer = WORD_OR_SPACE, composer(config.normalization, config.lowercase)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        norm = normalizer(config.normalization, config.lowercase)
        word, tokenizer.normalizer = WORD, normalizers.Sequence([norm, normalizers.Prepend(" ")])
        tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(word, "isolated"), as_bytes])
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(config.specials),
        show_progress=progress,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer
