"""Byte-pair encoding on characters (Sennrich et al. 2016): merge the most frequent pair, repeatedly.

    "Hello, world !"  ->  ▁Hello  ,  ▁world  ▁!  ->  ▁Hel lo , ▁wor ld ▁!

Merges stay inside the words matched by `WORD`. A word includes the space before it, as ▁, so that decoding restores
every space: "world !" and "world!" differ. `merges.py` shows the algorithm step by step.
"""

from collections import Counter
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from clearformer.text.config import TextConfig
from clearformer.text.normalize import normalizer

WORD = Regex(r" ?[\p{L}\p{M}\x{200C}\x{200D}]+| ?\p{N}| ?[^ \p{L}\p{M}\p{N}]")
"""A run of letters with their marks and joiners (Hindi vowel signs are marks), one digit, or one other character."""


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = spaced(config), marked()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        limit_alphabet=alphabet_limit(config),
        special_tokens=list(config.specials),
        show_progress=progress,
    )
    tokenizer.train_from_iterator(untie(lines, spaced(config), alphabet_limit(config)), trainer)
    return tokenizer


def spaced(config: TextConfig) -> Normalizer:
    """Return a normalizer that also puts a space before the first word, so that "the" is the same token everywhere.

    A ▁ in the text itself would be decoded as a space, so it is replaced by one.
    """
    norm = normalizer(config.normalization, config.lowercase)
    return normalizers.Sequence([normalizers.Replace("▁", " "), norm, normalizers.Prepend(" ")])


def marked() -> PreTokenizer:
    """Return a pre-tokenizer that splits text into words, then replaces their spaces by ▁."""
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(WORD, "isolated"), metaspace])


def alphabet_limit(config: TextConfig) -> int:
    """Return the maximum number of single characters in the vocabulary: half of its size, or 256 if that is more."""
    return min(config.vocab_size - len(config.specials), max(256, config.vocab_size // 2))


def untie(lines: Iterator[str], norm: Normalizer, limit: int) -> Iterator[str]:
    """Yield the lines and, if they have more than `limit` distinct characters, a line that breaks ties among these.

    The trainer keeps the most frequent characters, but it breaks ties by the order of a hash table, differently in
    every run. The last line repeats the tied characters that come first by code point, so that they win.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(norm.normalize_str(line))
        yield line
    if len(counts) > limit:
        alphabet = sorted(counts, key=lambda char: (-counts[char], char))[:limit]
        yield " ".join(char for char in alphabet if counts[char] == counts[alphabet[-1]])
