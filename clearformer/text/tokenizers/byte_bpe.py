"""Byte-pair encoding on UTF-8 bytes (Radford et al. 2019): 256 bytes spell everything, so nothing is ever unknown.

    "naïve 🙂"  ->  " na" "ï" "ve"  " " f0 9f 99 82      until merges join them

Words are cut as in `bpe`, rather than by GPT-2's rule, which tears Hindi vowel signs from their letters.
"""

from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from clearformer.errors import TokenizerError
from clearformer.text.normalize import normalizer
from clearformer.text.tokenizer import SPECIALS, TextConfig
from clearformer.text.tokenizers.bpe import WORD


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    smallest = len(SPECIALS) + 256
    if config.vocab_size < smallest:
        raise TokenizerError(
            f"vocab_size = {config.vocab_size} cannot hold the 256 bytes of byte-bpe and the special tokens",
            f"ask for {smallest} or more",
        )
    tokenizer = Tokenizer(models.BPE())
    norm = normalizer(config.normalization, config.lowercase)
    tokenizer.normalizer = normalizers.Sequence([norm, normalizers.Prepend(" ")])
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(WORD, "isolated"), as_bytes])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIALS),
        show_progress=progress,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer
