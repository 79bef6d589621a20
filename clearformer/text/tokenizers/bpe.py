"""Byte-pair encoding on characters (Sennrich et al. 2016): merge the most frequent pair, repeatedly.

    "Hello, world !"  ->  ▁Hello  ,  ▁world  ▁!  ->  ▁Hel lo , ▁wor ld ▁!

Merges stay inside the words matched by `WORD`. A word includes the space before it, as ▁, so that decoding restores
every space: "world !" and "world!" differ. `merges.py` shows the algorithm step by step.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from clearformer.text.config import TextConfig
from clearformer.text.normalize import is_clean, normalizer

WORD = Regex(r" ?[\p{L}\p{M}\x{200C}\x{200D}]+| ?\p{N}| ?[^ \p{L}\p{M}\p{N}]")
"""A run of letters with their marks and joiners (Hindi vowel signs are marks), one digit, or one other character."""
BLOCK = 4096  # lines whose characters are counted at a time


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = marked(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        limit_alphabet=alphabet_limit(config),
        special_tokens=list(config.specials),
        show_progress=progress,
    )
    tokenizer.train_from_iterator(untie(normalised(lines, config), alphabet_limit(config)), trainer)
    tokenizer.normalizer = spaced(config)  # the lines that it was trained on were normalised before
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


def normalised(lines: Iterator[str], config: TextConfig) -> Iterator[str]:
    """Yield each line as `spaced` changes it. A clean line, the common case, needs only the space before it."""
    normalize, is_cased = spaced(config).normalize_str, not config.lowercase
    for line in lines:
        is_ready = is_cased and line and "▁" not in line and is_clean(line, config.normalization)
        yield f" {line}" if is_ready else normalize(line)


def untie(lines: Iterator[str], limit: int, normalize: Callable[[str], str] = str) -> Iterator[str]:
    """Yield the lines and, if they have more than `limit` distinct characters, a line that breaks ties among these.

    The trainer keeps the most frequent characters, but it breaks ties by the order of a hash table, differently in
    every run. The last line repeats the tied characters that come first by code point, so that they win. Characters
    are counted as `normalize` changes them.
    """
    counts = np.zeros(0x110000, "int64")  # by code point
    while block := list(islice(lines, BLOCK)):
        points = np.frombuffer("".join(map(normalize, block)).encode("utf-32-le"), "<u4")
        block_counts = np.bincount(points)
        counts[: len(block_counts)] += block_counts
        yield from block
    if np.count_nonzero(counts) > limit:
        alphabet = np.argsort(-counts, kind="stable")[:limit]  # stable: ties by code point
        tied = alphabet[counts[alphabet] == counts[alphabet[-1]]]
        yield " ".join(map(chr, tied.tolist()))
