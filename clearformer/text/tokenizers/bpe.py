"""Byte-pair encoding on characters (Sennrich et al. 2016): merge the most frequent pair, again and again.

    "Hello, world !"  ->  ▁Hello  ,  ▁world  ▁!  ->  ▁Hel lo , ▁wor ld ▁!

Merges stay inside the words that `WORD` cuts, and a word carries the space before it as ▁, so that decoding gives
back every space: "world !" and "world!" differ. `merges.py` tells the algorithm slowly.
"""

from collections import Counter
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from clearformer.text.config import TextConfig
from clearformer.text.normalize import normalizer

WORD = Regex(r" ?[\p{L}\p{M}\x{200C}\x{200D}]+| ?\p{N}| ?[^ \p{L}\p{M}\p{N}]")
"""A run of letters with their marks and joiners (a Hindi vowel sign is a mark), one digit, or one other character."""


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
    """Normalise, and give the first word its space too, since "the" is the same word wherever it stands.

    A ▁ of the text itself would be decoded as a space, so it is read as one.
    """
    norm = normalizer(config.normalization, config.lowercase)
    return normalizers.Sequence([normalizers.Replace("▁", " "), norm, normalizers.Prepend(" ")])


def marked() -> PreTokenizer:
    """Cut into words, then show their spaces as ▁."""
    show = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(WORD, "isolated"), show])


def alphabet_limit(config: TextConfig) -> int:
    """How many characters are entries, the most frequent ones: at most half the vocabulary, unless that is tiny."""
    return min(config.vocab_size - len(config.specials), max(256, config.vocab_size // 2))


def untie(lines: Iterator[str], norm: Normalizer, limit: int) -> Iterator[str]:
    """The same lines and, if there are more than `limit` characters, a last one that settles which of them stay.

    The trainer keeps the most frequent, but picks among equals in the order of a hash table, differently in every
    run. The line holds once more each of those equals that has its place by code point.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(norm.normalize_str(line))
        yield line
    if len(counts) > limit:
        kept = sorted(counts, key=lambda char: (-counts[char], char))[:limit]
        yield " ".join(char for char in kept if counts[char] == counts[kept[-1]])
